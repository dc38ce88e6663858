"""Ranges of a live broker's queues that are still to be landed, and how far its real queues have been pulled.

A rollback is known only if no final message can be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.frame.errors import InputRefused
from halfop.landing.again import kind_of
from halfop.landing.broker.refused import leaving_out
from halfop.landing.lost import Range
from halfop.landing.progress import ProgressRow
from halfop.landing.rewind import HINT
from halfop.rocketmq.batches import DISCARD, FINAL, HALF, KINDS, OP
from halfop.rocketmq.names import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    HALF_TOPICS,
    OP_TOPICS,
    ROCKSDB_TOPICS,
    is_real_topic,
    queue_number,
)
from halfop.rocketmq.record import chain
from halfop.rocketmq.wire.client import Broker, BrokerClock
from halfop.rocketmq.wire.pull import Chunk, QueueRange, pull
from halfop.warehouse.progress import COMMIT_LOG
from halfop.warehouse.tables import Warehouse

Progress = Mapping[tuple[str, int], ProgressRow]


RealQueue = tuple[str, int]
MARGIN = 60_000  # milliseconds: a broker's clock may have been set back a little between two messages
OWN = {*HALF_TOPICS, *OP_TOPICS, DISCARD_TOPIC, COMMIT_LOG}


@dataclass(frozen=True)
class Since:
    """Where the first landing of a queue begins: at a store time, epoch milliseconds; the half queue at an offset.

    `half_topic`: the one of a broker's two that the offset is of.
    """

    millis: int
    half_offset: int | None = None
    half_topic: str = HALF_TOPIC


@dataclass(frozen=True)
class Wanted:
    """The wanted part of a broker: from where on, None for its beginning; the real topics, None for all.

    The queues of other real topics count as not there.
    """

    since: Since | None = None
    topics: Collection[str] | None = None


@dataclass
class QueueSample:
    """The ranges to pull, by kind.

    Op queues are asked for their ends first, then half queues, then those real queues that the half messages name, and
    then half queues again. So the final message of an op in a range is in a range too, and so are the half messages of
    both. `holes` are offsets that the broker has deleted before they landed. A real topic that was deleted and made
    again is a hole as a whole, in no range, until it is as long as it had landed.
    """

    ranges: dict[str, list[QueueRange]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    holes: list[Range] = field(default_factory=list)


class Sampling:
    """Asks one broker, whose clock bounds the time of what an empty queue has lost."""

    def __init__(
        self, broker: Broker, progress: Progress, clock: BrokerClock, master: bool, wanted: Wanted | None = None
    ) -> None:
        self._broker, self._progress, self._clock, self._master = broker, progress, clock, master
        self._wanted, self._asked = wanted or Wanted(), set[RealQueue]()
        self._queues = broker.topics()

    def sample(self) -> QueueSample:
        """Returns the ranges of ops, discards and half messages."""
        found = QueueSample()
        for kind, topics in ((OP, OP_TOPICS), (DISCARD, (DISCARD_TOPIC,)), (HALF, HALF_TOPICS)):
            queues = [(topic, queue_number(topic, n)) for topic in topics for n in range(self._queues.get(topic, 1))]
            self._add(found, kind, dict.fromkeys(queues, self._wanted.since))
        return found

    def add_finals(self, found: QueueSample, named: Mapping[RealQueue, int | None]) -> set[RealQueue]:
        """Adds the real queues that half messages name, now or before; returns those that the broker does not have.

        A queue is named with the store time of its first half message: its final messages are not older.
        """
        earlier = [queue for queue in self._progress if queue[0] not in OWN]
        wanted = dict.fromkeys(earlier, None) | dict(named)
        self._asked |= wanted.keys()
        return wanted.keys() - self._add_real(found, wanted)

    @property
    def left_out(self) -> list[str]:
        """The real topics that half messages name and that are not wanted."""
        return sorted({topic for topic, _ in self._asked if is_real_topic(topic) and not self._covers(topic)})

    def add_begins(self, found: QueueSample, named: Mapping[RealQueue, int]) -> set[RealQueue]:
        """Adds real queues that only the newest half messages name, as empty ranges; returns those that are not there.

        The next landing pulls them: their final messages may be of half messages that are in no range yet.
        """
        new = {queue: at for queue, at in named.items() if queue not in self._asked}
        self._asked |= new.keys()
        added = self._add_real(found, new)
        ranges = found.ranges[FINAL]
        found.ranges[FINAL] = [each._replace(end=each.start) if each[:2] in added else each for each in ranges]
        return new.keys() - added

    def _add_real(self, found: QueueSample, queues: Mapping[RealQueue, int | None]) -> set[RealQueue]:
        """Adds those of the real queues that are there and sound, and returns them."""
        there = {queue: at for queue, at in sorted(queues.items()) if self._is_there(queue)}
        with leaving_out(FINAL):
            self._add(found, FINAL, {queue: None if at is None else Since(at) for queue, at in there.items()})
        return there.keys() & {each[:2] for each in found.ranges[FINAL]}

    def add_halves(self, found: QueueSample) -> list[QueueRange]:
        """Adds the half messages that have come since the sample; returns their ranges."""
        before = found.ranges[HALF]
        ends = self._broker.max_offsets([each[:2] for each in before])
        found.ranges[HALF] = [each._replace(end=max(each.end, end)) for each, end in zip(before, ends, strict=True)]
        both = zip(before, found.ranges[HALF], strict=True)
        return [now._replace(start=was.end) for was, now in both if now.end > was.end]

    def _is_there(self, queue: RealQueue) -> bool:
        return is_real_topic(queue[0]) and self._covers(queue[0]) and queue[1] < self._queues.get(queue[0], 0)

    def _covers(self, topic: str) -> bool:
        return self._wanted.topics is None or topic in self._wanted.topics

    def _add(self, found: QueueSample, kind: str, queues: Mapping[tuple[str, int], Since | None]) -> None:
        """Adds what is to be pulled of these queues; a queue of which nothing has landed may begin later."""
        ends = dict(zip(queues, self._broker.max_offsets(list(queues)), strict=True))
        used = [queue for queue in queues if ends[queue] or queue[0] not in ROCKSDB_TOPICS or queue in self._progress]
        sound = [queue for queue in used if self._is_sound(found, kind, queue, ends[queue])]
        some = [queue for queue in sound if ends[queue] > self._landed(queue)]
        firsts = dict(zip(some, self._broker.min_offsets(some), strict=True))
        for queue in sound:
            there = QueueRange(*queue, self._landed(queue), ends[queue])
            first = firsts.get(queue, 0)
            late = self._begin(there, first, queues[queue])
            begin = late if late is not None else max(there.start, first)
            if late is None and first > there.start:
                hole = QueueRange(*queue, first, ends[queue])
                found.holes.append(Range(there.start, first, *queue, self._stored(hole)))
            found.ranges[kind].append(there._replace(start=begin))

    def _begin(self, there: QueueRange, first: int, since: Since | None) -> int | None:
        """Where a first landing begins if that is after the queue's first message; None if it is not."""
        if since is None or there.end <= first or (there.topic, there.queue) in self._progress:
            return None
        if since.half_offset is not None and there.topic == since.half_topic:
            return min(max(since.half_offset, first), there.end)
        begin = min(self._broker.offset_at(there.topic, there.queue, since.millis - MARGIN), there.end)
        # a broker may round, or go by the times of its files: what is left out must be older
        return begin if begin > first and self._stored(there._replace(start=begin - 1)) < since.millis * 1000 else None

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
        hint = HINT if self._master else "it is a slave that lags: wait for it, or for its master"
        raise InputRefused(self._broker.remote.address, None, problem, hint)

    def _stored(self, asked: QueueRange) -> int:
        """The store time of the range's first message; the broker's time now if there is none."""
        at = stored(self._broker, asked)
        return self._clock.latest() if at is None else at


def stored(broker: Broker, asked: QueueRange) -> int | None:
    """The store time of the range's first message, epoch microseconds; None if there is none."""
    first = asked._replace(end=min(asked.start + 1, asked.end))
    pulled = [each for each in pull(broker, first) if isinstance(each, Chunk)]
    return int(chain(pulled[0].data).records.store_ms[0]) * 1000 if pulled else None


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
        ranges[kind_of(row.topic)].append(asked)
    return at, ranges


def all_pulled(progress: Progress) -> set[RealQueue]:
    """The real queues that the last landing of ops has pulled as well: one that it left out may lack final messages."""
    ops = max((row.landed_at or 0 for (topic, _), row in progress.items() if topic in OP_TOPICS), default=0)
    real = {queue: row for queue, row in progress.items() if queue[0] not in OWN and (row.landed_at or 0) >= ops}
    return {queue for queue, row in real.items() if (row.next_offset or 0) >= (row.planned_offset or 0)}


def real_queues(halves: DataFrame) -> dict[tuple[str, int], int]:
    """The queues that these half messages' final messages may be in, each with the first one's store time in ms."""
    first = F.min(F.unix_millis("store_timestamp")).alias("first")
    rows = halves.na.drop(subset=["real_topic", "real_queue_id"]).groupBy("real_topic", "real_queue_id").agg(first)
    return {(row["real_topic"], row["real_queue_id"]): row["first"] for row in rows.collect()}


def with_seen(
    warehouse: Warehouse, halves: DataFrame, pulled: Collection[tuple[str, int]], holes: Iterable[Range], now: int
) -> DataFrame:
    """The half messages with `seen`: whether their real queue has been pulled and has no hole after them.

    A hole without a time counts as one of `now` (epoch microseconds).
    """
    queues = [(*queue, True) for queue in sorted(pulled)]
    there = warehouse.frame(queues, "real_topic STRING, real_queue_id INT, there BOOLEAN")
    until = _newest_loss(holes, now)
    losses = [(*queue, instant) for queue, instant in until.items()]
    lost_until = warehouse.frame(losses, "real_topic STRING, real_queue_id INT, lost_until BIGINT")
    rows = halves.join(F.broadcast(there), ["real_topic", "real_queue_id"], "left")
    rows = rows.join(F.broadcast(lost_until), ["real_topic", "real_queue_id"], "left")
    after_losses = F.coalesce(F.unix_micros("store_timestamp") > F.col("lost_until"), F.lit(True))
    return rows.withColumn("seen", F.coalesce(F.col("there"), F.lit(False)) & after_losses)


def _newest_loss(holes: Iterable[Range], now: int) -> dict[tuple[str, int], int]:
    until: dict[tuple[str, int], int] = {}
    for hole in holes:
        queue = (hole.topic, hole.queue)
        until[queue] = max(until.get(queue, 0), hole.until or now)
    return until
