"""`--accept-rewind`: the broker has begun a new life; where, is found by comparing what has landed with what is there.

What lies below the first offset that differs stands and never lands again. What lies above is of the new life: rows of
landing_progress under its name say where it begins, written by one commit, so that a killed landing has accepted it or
has not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.lives import Cuts, Lives, lives_of, name_of, owner
from halfop.landing import progress
from halfop.rocketmq.batches import BATCH, HALF, OP
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS
from halfop.rocketmq.record import Records
from halfop.warehouse.lock import hold_rejected
from halfop.warehouse.progress import COMMIT_LOG, TABLE, progress_rows
from halfop.warehouse.rejected import TABLE as REJECTED
from halfop.warehouse.rejected import in_form
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import all_of, any_of, at_least, equal

KEY_REUSED, LOST_BY_BROKER = "KEY_REUSED", "LOST_BY_BROKER"
HINT = "if the broker was rebuilt or lost the end of its log, --accept-rewind lands on from there as a new life"
Cells = dict[str, object]
_TOPICS = {HALF: HALF_TOPICS, OP: OP_TOPICS}


class Place(NamedTuple):
    """A message of a queue and what distinguishes it; `end` is one after its record in the log, if known."""

    offset: int
    log_offset: int | None
    store_ms: int | None
    uniq_key: str | None
    end: int = 0

    def agrees(self, other: Place) -> bool:
        """Returns whether both are one message, as far as each is known."""
        both = zip(self[1:4], other[1:4], strict=True)
        return all(mine == theirs for mine, theirs in both if mine is not None and theirs is not None)


def place_of(records: Records, kind: str) -> Place | None:
    """The place of the first of these records, half messages or ops; None if there is none."""
    if not len(records):
        return None
    row = BATCH[kind](records.select(slice(0, 1))).to_pylist()[0]
    log, size = int(records.longs("physical_offset")[0]), int(records.sizes[0])
    stored = int(records.store_ms[0])
    return Place(row["queue_offset"], log, stored, row["uniq_key"] if kind == HALF else None, log + size)


class There(Protocol):
    """A broker or its store as it is now."""

    def span(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset of a queue and the one after its last."""

    def place(self, kind: str, topic: str, queue_id: int, offset: int) -> Place | None:
        """The message at an offset; None if it cannot be read."""

    def begins(self, log_offset: int, store_ms: int) -> Mapping[tuple[str, int], int]:
        """Where else to begin, by topic and queue, after what was stored there and then: all that came later."""


class Cut(NamedTuple):
    """The first offset of a queue that differs, how far it had landed, and the last message that agrees."""

    topic: str
    queue_id: int
    offset: int
    landed: int
    agreed: Place | None

    @property
    def is_below(self) -> bool:
        return self.offset < self.landed


def lives(warehouse: Warehouse, broker_name: str) -> Lives:
    """The lives of a broker as landings know them now."""
    return lives_of(progress_rows(warehouse), broker_name)


@dataclass(frozen=True)
class Rewind:
    """A broker that may have begun a new life; `at` is the landing's instant, `source` what it reads."""

    warehouse: Warehouse
    lives: Lives
    there: There
    at: int
    source: str

    def accepted(self, reused: bool) -> Lives:
        """Begins a new life if something differs, or if a key was reused; returns the broker's lives."""
        rows = progress.of_broker(self.warehouse, self.lives.current)
        cuts = [
            _cut(Landed(self.warehouse, self.lives, kind, queue_id), self.there, topic, row.next_offset)
            for (topic, queue_id), row in rows.items()
            for kind, topics in _TOPICS.items()
            if topic in topics and row.next_offset is not None
        ]
        if not any(cut.is_below for cut in cuts) and not reused:
            return self.lives
        self._begin(cuts)
        return lives(self.warehouse, self.lives.broker_name)

    def _begin(self, cuts: Sequence[Cut]) -> None:
        agreed = [cut.agreed for cut in cuts if cut.agreed is not None]
        newest = max(agreed, key=lambda place: place.end, default=Place(-1, None, 0, None))
        after = self.there.begins(newest.end, newest.store_ms or 0)
        begin(self.warehouse, self.lives, cuts, Begun(self.at, self.source, after))


# ---- the first offset that differs ----


def _cut(landed: Landed, there: There, topic: str, end: int) -> Cut:
    """By binary search: all messages below the cut agree, none above it does."""
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


@dataclass(frozen=True)
class Landed:
    """What has landed of a queue, of each life what still stands. Decisions show half messages that were trimmed."""

    warehouse: Warehouse
    lives: Lives
    kind: str
    queue_id: int

    def at_or_after(self, offset: int) -> Place | None:
        """The first landed message from an offset on."""
        for rows in self._sources(offset):
            found = rows.orderBy("queue_offset", "landed").limit(1).collect()
            if found:
                return Place(*found[0][:4])
        return None

    def _sources(self, offset: int) -> Iterator[DataFrame]:
        names = any_of([equal("broker_name", name) for name in self.lives.names])
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


# ---- what is written ----


class Begun(NamedTuple):
    """When a life begins, by which source, and where other queues go on in it."""

    at: int
    source: str
    after: Mapping[tuple[str, int], int]


def begin(warehouse: Warehouse, before: Lives, cuts: Sequence[Cut], begun: Begun) -> None:
    """Writes where a broker's next life begins, and what was lost."""
    number, at = before.number + 1, progress.instant(begun.at)
    shared: Cells = {"broker_name": name_of(before.broker_name, number), "life_of": before.broker_name, "life": number}
    shared |= {"source": begun.source, "begun_at": at, "landed_at": at}
    rows = [*map(_row, cuts), *(_row_of_begin(*queue, offset) for queue, offset in begun.after.items())]
    warehouse.make(TABLE)
    warehouse.append_rows(TABLE, [row | shared for row in rows])
    _record_lost(warehouse, before, cuts, begun.at)


def _row(cut: Cut) -> Cells:
    row = {"topic": cut.topic, "queue_id": cut.queue_id, "cut_offset": cut.offset}
    row |= {"next_offset": cut.offset, "first_offset": cut.offset}
    if not cut.landed:  # brokers have a second half topic that they do not use; it cuts nothing
        return row | {"cut_offset": None}
    if cut.topic in HALF_TOPICS:
        row["cut_log_offset"] = 0 if cut.agreed is None else (cut.agreed.log_offset or 0) + 1
    return row


def _row_of_begin(topic: str, queue_id: int, offset: int) -> Cells:
    first = offset if topic == COMMIT_LOG else None
    return {"topic": topic, "queue_id": queue_id, "next_offset": offset, "first_offset": first}


def _record_lost(warehouse: Warehouse, before: Lives, cuts: Sequence[Cut], at: int) -> None:
    """Lists what the broker lost as ranges in `rejected`."""
    rows = [
        ("RANGE", LOST_BY_BROKER, before.current, cut.queue_id, cut.offset, cut.landed, cut.topic, _lost_text(cut), at)
        for cut in cuts
        if cut.is_below
    ]
    columns = """kind STRING, reason STRING, broker_name STRING, queue_id INT, range_from BIGINT, range_to BIGINT,
        range_topic STRING, detail STRING, rejected_at BIGINT"""
    if rows:
        with hold_rejected(warehouse):
            warehouse.make(REJECTED)
            frame = warehouse.frame(rows, columns).withColumn("rejected_at", F.timestamp_micros("rejected_at"))
            warehouse.append(REJECTED, in_form(frame))


def _lost_text(cut: Cut) -> str:
    return (
        f"queue {cut.queue_id} of {cut.topic} from {cut.offset} to {cut.landed}: the broker lost what had landed; "
        "what was committed stays delivered"
    )


def note(warehouse: Warehouse, before: Lives, after: Lives) -> str:
    """What `--accept-rewind` found, for people."""
    if before.number == after.number:
        return f"--accept-rewind: broker {before.current} is the one that has landed; nothing was to be accepted"
    life, lost = after.later[-1], _lost_halves(warehouse, before, after)
    found = (
        ", ".join(f"{number} {decision}" for decision, number in lost.items()) or "none that a run has decided about"
    )
    cuts = ", ".join(f"queue {queue}: {cut}" for queue, cut in sorted(life.halves.items()))
    return (
        f"broker {before.broker_name} goes on as {life.name} from half offset ({cuts}); half messages that it lost, by "
        f"their last decision: {found}. What was committed stays delivered"
    )


def _lost_halves(warehouse: Warehouse, before: Lives, after: Lives) -> dict[str, int]:
    """The half messages that the new life's cut has taken away: their number by last decision."""
    cuts, names = after.later[-1].halves, any_of([equal("broker_name", name) for name in before.names])
    mine = [all_of(names, equal("queue_id", queue), at_least("queue_offset", cut)) for queue, cut in cuts.items()]
    if not mine:
        return {}
    rows = warehouse.read("decisions", where=any_of(mine)).where("decision != 'EARLY_OP'")
    last = rows.groupBy("broker_name", "queue_id", "queue_offset").agg(F.max_by("decision", "run_id").alias("last"))
    return {row["last"]: row["count"] for row in last.groupBy("last").count().orderBy("last").collect()}
