"""Ranges of a live broker's queues that are still to be landed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from halfop.frame.errors import InputRefused
from halfop.landing.identity import refuse_two_half_topics
from halfop.landing.lost import Range
from halfop.landing.progress import ProgressRow
from halfop.rocketmq.batches import DISCARD, FINAL, HALF, KINDS, OP
from halfop.rocketmq.names import DISCARD_TOPIC, HALF_TOPICS, NOT_ALLOWED_SEND, OP_TOPICS, SYSTEM_PREFIX
from halfop.rocketmq.record import chain
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import Chunk, QueueRange, pull
from halfop.warehouse.progress import COMMIT_LOG

Progress = Mapping[tuple[str, int], ProgressRow]


_OWN = {*HALF_TOPICS, *OP_TOPICS, DISCARD_TOPIC, COMMIT_LOG}


@dataclass
class QueueSample:
    """The ranges to pull, by kind; for final messages, ranges of every topic that clients may send to.

    Op queues are asked for their ends first, half queues last. So the final message of an op in a range is in a range
    too, and so are the half messages of both. `holes` are offsets that the broker has deleted before they landed. A
    real topic that was deleted and made again is a hole as a whole, in no range, until it is as long as it had landed.
    """

    ranges: dict[str, list[QueueRange]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    holes: list[Range] = field(default_factory=list)


class Sampling:
    """Asks one broker. `now`, in epoch microseconds, is the latest time of what an empty queue has lost."""

    def __init__(self, broker: Broker, progress: Progress, now: int, master: bool) -> None:
        self._broker, self._progress, self._now, self._master = broker, progress, now, master

    def sample(self) -> QueueSample:
        queues = self._broker.topics()
        found = QueueSample()
        for kind, topics in (
            (OP, OP_TOPICS),
            (DISCARD, (DISCARD_TOPIC,)),
            (FINAL, [topic for topic in sorted(queues) if _is_real(topic)]),
            (HALF, HALF_TOPICS),
        ):
            self._add(found, kind, [(topic, n) for topic in topics for n in range(queues.get(topic, 1))])
        in_use = [topic for topic in HALF_TOPICS if any(q.topic == topic and q.end for q in found.ranges[HALF])]
        refuse_two_half_topics(self._broker.remote.address, in_use)
        return found

    def _add(self, found: QueueSample, kind: str, queues: Sequence[tuple[str, int]]) -> None:
        """Adds what is to be pulled of these queues."""
        ends = dict(zip(queues, self._broker.max_offsets(queues), strict=True))
        sound = [queue for queue in queues if self._is_sound(found, kind, queue, ends[queue])]
        some = [queue for queue in sound if ends[queue]]
        firsts = dict(zip(some, self._broker.min_offsets(some), strict=True))
        for topic, queue in sound:
            start, first = self._landed((topic, queue)), firsts.get((topic, queue), 0)
            there = QueueRange(topic, queue, max(start, first), ends[topic, queue])
            if first > start:
                found.holes.append(Range(start, first, topic, queue, self._stored(there)))
            found.ranges[kind].append(there)

    def _landed(self, queue: tuple[str, int]) -> int:
        """The offset after the last that has landed."""
        row = self._progress.get(queue)
        return 0 if row is None or row.next_offset is None else row.next_offset

    def _is_sound(self, found: QueueSample, kind: str, queue: tuple[str, int], end: int) -> bool:
        """Returns whether a queue reaches as far as it has landed; if not, it is a hole, or the broker is refused."""
        start = self._landed(queue)
        if end >= start:
            return True
        if kind == FINAL:
            found.holes.append(Range(0, start, *queue))
            return False
        problem = f"queue {queue[1]} of {queue[0]} ends at {end}, but has landed up to {start}"
        hint = (
            "the broker lost the end of its log, or was rebuilt: give it a new brokerName"
            if self._master
            else "it is a slave that lags: wait for it, or for its master"
        )
        raise InputRefused(self._broker.remote.address, None, problem, hint)

    def _stored(self, asked: QueueRange) -> int:
        """The store time of the range's first message; now if there is none."""
        first = asked._replace(end=min(asked.start + 1, asked.end))
        pulled = [each for each in pull(self._broker, first) if isinstance(each, Chunk)]
        return int(chain(pulled[0].data).records.store_ms[0]) * 1000 if pulled else self._now


def _is_real(topic: str) -> bool:
    return topic not in NOT_ALLOWED_SEND and not topic.lower().startswith(SYSTEM_PREFIX)


def choose_finals(
    found: QueueSample, progress: Progress, real_queues: Iterable[tuple[str, int]]
) -> set[tuple[str, int]]:
    """Keeps only real queues that half messages name, now or before; returns those that the sample lacks."""
    named = {*real_queues, *(row for row in progress if row[0] not in _OWN)}
    wanted = {*named, *progress}
    found.ranges[FINAL] = [each for each in found.ranges[FINAL] if each[:2] in wanted]
    found.holes = [h for h in found.holes if (h.topic, h.queue) in wanted or not _is_real(h.topic)]
    return named - {each[:2] for each in found.ranges[FINAL]}


def unfinished(progress: Progress) -> tuple[int, dict[str, list[QueueRange]]] | None:
    """The instant of a landing that was killed, and the ranges that it had recorded; None if there is none."""
    open_rows = [
        row for row in progress.values() if row.planned_at is not None and row.planned_at > (row.landed_at or 0)
    ]
    if not open_rows:
        return None
    at = max(row.planned_at or 0 for row in open_rows)
    ranges: dict[str, list[QueueRange]] = {kind: [] for kind in KINDS}
    for row in open_rows:
        asked = QueueRange(row.topic, row.queue_id, row.next_offset or 0, row.planned_offset or 0)
        ranges[_kind_of(row.topic)].append(asked)
    return at, ranges


def _kind_of(topic: str) -> str:
    return HALF if topic in HALF_TOPICS else OP if topic in OP_TOPICS else DISCARD if topic == DISCARD_TOPIC else FINAL
