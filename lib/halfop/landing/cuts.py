"""The cut of a queue: the first offset whose message differs from the one that has landed there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.lives import Cuts, Lives, owner
from halfop.rocketmq.batches import BATCH, HALF, OP
from halfop.rocketmq.names import HALF_TOPICS
from halfop.rocketmq.record import Records
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import all_of, at_least, equal, one_of


class MessagePlace(NamedTuple):
    """A message of a queue and what distinguishes it; `end` is one after its record in the log, if known."""

    offset: int
    log_offset: int | None
    store_ms: int | None
    uniq_key: str | None
    end: int = 0

    def agrees(self, other: MessagePlace) -> bool:
        """Returns whether both are one message, as far as each is known."""
        both = zip(self[1:4], other[1:4], strict=True)
        return all(mine == theirs for mine, theirs in both if mine is not None and theirs is not None)


def place_of(records: Records, kind: str) -> MessagePlace | None:
    """The place of the first of these records, half messages or ops; None if there is none."""
    if not len(records):
        return None
    row = BATCH[kind](records.select(slice(0, 1))).to_pylist()[0]
    log, size = int(records.longs("physical_offset")[0]), int(records.sizes[0])
    stored = int(records.store_ms[0])
    return MessagePlace(row["queue_offset"], log, stored, row["uniq_key"] if kind == HALF else None, log + size)


class There(Protocol):
    """A broker or its store as it is now."""

    def span(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset of a queue and the one after its last."""

    def place(self, kind: str, topic: str, queue_id: int, offset: int) -> MessagePlace | None:
        """The message at an offset; None if it cannot be read."""

    def begins(self, log_offset: int, store_ms: int) -> Mapping[tuple[str, int], int]:
        """Where else to begin, by topic and queue, after what was stored there and then: all that came later."""


class Cut(NamedTuple):
    """The first offset of a queue that differs, how far it had landed, and the last message that agrees."""

    topic: str
    queue_id: int
    offset: int
    landed: int
    agreed: MessagePlace | None

    @property
    def is_below(self) -> bool:
        return self.offset < self.landed

    @property
    def is_unknown(self) -> bool:
        """Nothing could be compared, because all that had landed was trimmed."""
        return self.landed > 0 and self.agreed is None and not self.is_below


def cut_of(landed: LandedQueue, there: There, topic: str, end: int) -> Cut:
    """Finds the cut by binary search: all messages below it agree, none above it does."""
    first, last = there.span(topic, landed.queue_id)
    low, high, agreed, differs = 0, end, None, False
    while low < high:
        middle = (low + high) // 2
        place = landed.at_or_after(middle)
        if place is None or place.offset >= high:
            high = middle
            continue
        found = there.place(landed.kind, topic, landed.queue_id, place.offset) if first <= place.offset < last else None
        if place.offset < first or (found is not None and found.agrees(place)):
            low, agreed = place.offset + 1, found or place
        else:
            high, differs = middle, True
    return Cut(topic, landed.queue_id, low if differs else end, end, agreed)


def cut_by_log(cut: Cut, there: There, log_offset: int) -> Cut:
    """The first message of a queue from that place in the log on: no older one has to land again."""
    kind = HALF if cut.topic in HALF_TOPICS else OP
    low, high = there.span(cut.topic, cut.queue_id)
    while low < high:
        middle = (low + high) // 2
        place = there.place(kind, cut.topic, cut.queue_id, middle)
        if place is None or (place.log_offset or 0) < log_offset:
            low = middle + 1
        else:
            high = middle
    return cut._replace(offset=min(low, cut.landed))


@dataclass(frozen=True)
class LandedQueue:
    """The landed rows of a queue that still stand, life by life. Decisions show half messages that were trimmed."""

    warehouse: Warehouse
    lives: Lives
    kind: str
    queue_id: int

    def end(self, next_offset: int | None) -> int | None:
        """The offset after the last landed message: a landing that was killed has not moved `next_offset`."""
        if not next_offset:  # also of a topic that is not used, whose queue has the number of one that is
            return next_offset
        last = self._first(self._sources(next_offset), F.desc("queue_offset"))
        return next_offset if last is None else max(next_offset, last.offset + 1)

    def at_or_after(self, offset: int) -> MessagePlace | None:
        """The first landed message from an offset on."""
        return self._first(self._sources(offset), F.asc("queue_offset"))

    def last_below(self, offset: int) -> MessagePlace | None:
        """The last landed message before an offset."""
        below = (rows.where(F.col("queue_offset") < offset) for rows in self._sources(0))
        return self._first(below, F.desc("queue_offset"))

    def _first(self, sources: Iterable[DataFrame], order: Column) -> MessagePlace | None:
        for rows in sources:
            found = rows.orderBy(order, "landed").limit(1).collect()
            if found:
                return MessagePlace(*found[0][:4])
        return None

    def _sources(self, offset: int) -> Iterator[DataFrame]:
        names = one_of("broker_name", self.lives.names)
        near = all_of(names, equal("queue_id", self.queue_id), at_least("queue_offset", offset))
        if self.kind == OP:
            rows = self.warehouse.read("op_messages", where=near)
            yield self._standing(rows, "physical_offset", F.lit(None).cast("string"), "landed_at", self.lives.op_cuts)
            return
        for name, landed in (("half_messages", "landed_at"), ("decisions", "half_landed_at")):
            rows = self.warehouse.read(name, where=near)
            rows = rows.where("decision != 'EARLY_OP'") if name == "decisions" else rows
            yield self._standing(rows, "commit_log_offset", F.col("uniq_key"), landed, self.lives.half_cuts)

    def _standing(self, rows: DataFrame, log: str, key: Column, landed: str, cuts: list[Cuts]) -> DataFrame:
        number = F.coalesce(*[F.when(F.col("broker_name") == name, n) for n, name in enumerate(self.lives.names)])
        if self.kind == OP:
            number = F.coalesce(F.col("life") - 1, number)
        mine = rows.where(number == owner(cuts, F.col("queue_id"), F.col("queue_offset")))
        stored = F.unix_millis("store_timestamp").alias("stored")
        return mine.select(
            "queue_offset", F.col(log).alias("log"), stored, key.alias("key"), F.col(landed).alias("landed")
        )
