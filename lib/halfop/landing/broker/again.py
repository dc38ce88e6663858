"""`land broker --again`: ranges of queues to pull once more, as far as the broker still has them."""

from __future__ import annotations

from collections.abc import Iterable

from halfop.frame.errors import InputRefused
from halfop.landing import lost
from halfop.landing.again import Again, kind_of
from halfop.rocketmq.batches import KINDS
from halfop.rocketmq.wire.client import Broker
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
