"""What a running broker still has: ranges of --again, holes that it has deleted, and how far its own check has come."""

from __future__ import annotations

from collections.abc import Iterable

from halfop.frame.errors import InputRefused
from halfop.frame.summary import Summary
from halfop.landing import lost
from halfop.landing.again import Again, kind_of
from halfop.landing.broker.sampling import Progress, QueueSample
from halfop.landing.progress import ProgressRow, Queue, check_row
from halfop.rocketmq.batches import FINAL, KINDS
from halfop.rocketmq.wire.client import Broker, BrokerClock
from halfop.rocketmq.wire.pull import QueueRange

Ranges = dict[str, list[QueueRange]]


def ranges_again(broker: Broker, wanted: Iterable[Again], known: lost.Ranges, at: int) -> Ranges:
    """The ranges by kind. What the broker no longer has becomes a lost range; one that it has is found again."""
    ranges: Ranges = {kind: [] for kind in KINDS}
    for each in wanted:
        there = [_there(broker, each, topic, known, at) for topic in each.topics]
        if all(asked is None for asked in there):
            problem = f"--again {each}: no such offsets in its queues"
            raise InputRefused(broker.remote.address, None, problem, "give offsets that the broker has, or had")
        for asked in there:
            if asked is not None and asked.start < asked.end:
                ranges[kind_of(asked.topic)].append(asked)
                _find(known, asked)
    return ranges


def _there(broker: Broker, wanted: Again, topic: str, known: lost.Ranges, at: int) -> QueueRange | None:
    """What the broker has of a range; None if its queue never had such offsets."""
    first, end = broker.min_offset(topic, wanted.queue_id), broker.max_offset(topic, wanted.queue_id)
    if end <= wanted.since:
        return None
    low = max(wanted.since, min(first, wanted.upto))
    if wanted.since < low:
        gone = lost.Range(wanted.since, low, topic, wanted.queue_id, at)
        known.add(gone, "deleted", f"queue {wanted.queue_id} of {topic}: deleted, so it cannot land again")
    return QueueRange(topic, wanted.queue_id, low, min(wanted.upto, end))


def _find(known: lost.Ranges, pulled: QueueRange) -> None:
    for gone in [each for each in known.of_queues if (each.topic, each.queue) == pulled[:2]]:
        if pulled.start <= gone.since and gone.upto <= pulled.end:
            known.found(gone, "it has landed again")


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


def check_rows(broker: Broker, name: str, at: int, queues: Iterable[QueueRange], rows: Progress) -> list[ProgressRow]:
    """The rows of landing_progress for half queues that hold something; none if the broker does not answer that.

    `at`: the broker's time, epoch microseconds; `rows`: the progress until now.
    """
    some = [each for each in queues if each.end]
    offsets = [(each, broker.check_offset(each.topic, each.queue)) for each in some]
    return [
        check_row(Queue(name, q.queue), q.topic, offset, at, rows.get((q.topic, q.queue)))
        for q, offset in offsets
        if offset is not None
    ]
