"""What a broker has deleted before it landed, as lost ranges."""

from __future__ import annotations

from halfop.frame.summary import Summary
from halfop.landing import lost
from halfop.landing.broker.sampling import QueueSample
from halfop.rocketmq.batches import FINAL
from halfop.rocketmq.wire.client import BrokerClock


def record_holes(found: QueueSample, known: lost.Ranges, clock: BrokerClock, summary: Summary) -> None:
    """Records the sample's holes as lost; a real topic that was made again counts once it has come far enough."""
    for hole in found.holes:
        if hole.until is None:
            text = f"{_made_again(hole)}: it no longer shows what was committed"
            summary.notes.append(f"broker {known.broker_name}: {text}; `land store` can show it")
            known.add(hole, "made_again", text)
        else:
            known.add(hole, "deleted", f"queue {hole.queue} of {hole.topic}: deleted before it landed")
    pulled = {(q.topic, q.queue) for q in found.ranges[FINAL]}
    for hole in [h for h in known.of_queues if h.until is None and (h.topic, h.queue) in pulled]:
        known.found(hole, "the queue has come as far as it had landed")
        known.add(hole._replace(until=clock.latest()), "made_again", _made_again(hole))


def _made_again(hole: lost.Range) -> str:
    return f"queue {hole.queue} of {hole.topic} was deleted and made again"
