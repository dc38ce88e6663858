"""Outcomes of op items: COMMIT or ROLLBACK from what a real broker wrote, because its op messages name none.

A half message was committed if the log holds its final message, and rolled back if all of the log between the half
message and its op has been read and no final message was there. Workers settle nearly all items within their stretch of
the log, because all three mostly stand close together; a join with what has landed settles the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from halfop.columns.finals import is_put_again
from halfop.columns.key_sets import look_up, packed
from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.columns.lives import Lives, owner
from halfop.frame.errors import InputRefused
from halfop.landing.fields import items
from halfop.rocketmq.batches import FINAL, HALF, HEADS, OP
from halfop.rocketmq.buffers import Longs, Mask
from halfop.rocketmq.names import ROCKSDB_QUEUES
from halfop.rocketmq.store.stretch import Stretch, read
from halfop.warehouse.rows import Kept
from halfop.warehouse.schema import table
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import Where, all_of, between, is_null, one_of

_KEY = ["broker_name", "queue_id", "queue_offset", "item", "source", "of_life"]
_FEW = 200_000


@dataclass(frozen=True)
class Reach:
    """The part of a broker's log that has been read, as far as outcomes depend on it.

    `known` is a condition on an item and its half message's `half_log_offset`; `seen` adds column `seen` to half rows.
    """

    lives: Lives
    source: str
    known: Column
    seen: Callable[[DataFrame], DataFrame]


def looked_up(warehouse: Warehouse, unsettled: DataFrame, reach: Reach) -> DataFrame:
    """Items without an outcome as rows of op_messages, without landed_at, with what has landed of the others."""
    return _with_outcomes(warehouse, warehouse.stage.at_hand(unsettled.drop("outcome")), reach)


def _columns() -> list[str]:
    return [c for c in table("op_messages").given if c != "landed_at"]


def land_again(warehouse: Warehouse, reach: Reach, landed_at: int) -> int:
    """Lands items again that landed without an outcome which is known by now; returns their number."""
    of_broker = one_of("broker_name", reach.lives.names)
    mine = F.col("source") == reach.source
    unknown, files = warehouse.select("op_messages", where=all_of(of_broker, is_null("outcome")))
    if not files:
        return 0
    unknown = unknown.where(mine & (F.col("half_offset").isNotNull() | _place().isNotNull()))
    places = unknown.agg(F.min("queue_offset").alias("low"), F.max("queue_offset").alias("high")).collect()[0]
    if places["low"] is None:
        return 0
    near = all_of(of_broker, between("queue_offset", places["low"], places["high"]))
    of_life = F.coalesce("life", F.lit(0))
    settled = warehouse.read("op_messages", where=near).where(mine & F.col("outcome").isNotNull())
    settled = settled.withColumn("of_life", of_life).select(_KEY)
    unknown = unknown.withColumn("of_life", of_life).dropDuplicates(_KEY)
    waiting = unknown.join(settled, _KEY, "left_anti").drop("outcome", "of_life")
    known = _with_outcomes(warehouse, waiting, reach).where(F.col("outcome").isNotNull())
    with Kept(warehouse.stage) as kept:
        known = kept.persisted(known)
        number = known.count()
        if number:
            warehouse.commit("op_messages", known.withColumn("landed_at", F.timestamp_micros(F.lit(landed_at))))
        return number


def _place() -> Column:
    """The place in the log that an op of a transaction in RocksDB names; null if its half offset is known."""
    of_rocksdb = (F.col("queue_id") >= ROCKSDB_QUEUES) & F.col("half_offset").isNull()
    return F.when(of_rocksdb, F.col("body").try_cast("bigint"))


def _with_outcomes(warehouse: Warehouse, split: DataFrame, reach: Reach) -> DataFrame:
    """The items with outcomes; earlier rows are read only as far as the items reach."""
    mine, named = one_of("broker_name", reach.lives.names), _named(split)
    if named["first"] is not None:
        near = warehouse.read("half_messages", where=all_of(mine, between("commit_log_offset", *named[3:])))
        split = warehouse.stage.at_hand(_placed(split, near, reach.lives))
        named = _named(split)
    halves, finals = _near(warehouse, mine, split, named)
    return with_outcomes(split, reach.seen(halves), finals, reach.known, halves.count()).select(_columns())


def _named(split: DataFrame) -> Row:
    """The half offsets that items name, from `low` to `high`, the number of `rows`, places from `first` to `last`."""
    offsets = (F.min("half_offset").alias("low"), F.max("half_offset").alias("high"), F.count("*").alias("rows"))
    return split.agg(*offsets, F.min(_place()).alias("first"), F.max(_place()).alias("last")).collect()[0]


def _placed(split: DataFrame, halves: DataFrame, lives: Lives) -> DataFrame:
    """The items with the offsets of these half messages, if they name the place of one in its life's log."""
    of_life = F.get(F.array(*map(F.lit, lives.names)), owner(lives.log_cuts, F.lit(0), F.col("place")))
    there = halves.select("queue_id", F.col("commit_log_offset").alias("place"), "broker_name", "queue_offset")
    there = there.where((F.col("queue_id") >= ROCKSDB_QUEUES) & (F.col("broker_name") == of_life)).distinct()
    rows = split.withColumn("place", _place()).alias("op").join(there.alias("half"), ["queue_id", "place"], "left")
    found = {
        "half_offset": F.coalesce("op.half_offset", "half.queue_offset"),
        "broker_name": F.coalesce("half.broker_name", "op.broker_name"),
        "life": F.when(F.col("half.broker_name") != lives.current, lives.number).otherwise(F.col("op.life")),
    }
    kept = (found[c] if c in found else F.col("queue_id" if c == "queue_id" else f"op.{c}") for c in split.columns)
    return rows.select(*[column.alias(c) for c, column in zip(split.columns, kept, strict=True)])


def _near(warehouse: Warehouse, mine: Where, split: DataFrame, named: Row) -> tuple[DataFrame, DataFrame]:
    """The half messages that the items may name, and the final messages that may be theirs."""
    if named["low"] is None:
        return warehouse.empty("half_messages"), warehouse.empty("final_messages")
    near = between("queue_offset", named["low"], named["high"])
    halves, few = warehouse.read("half_messages", where=all_of(mine, near)), named["rows"] <= _FEW
    if few:  # they may be far apart, with millions of others between
        keys = split.select(*QUEUE, F.col("half_offset").alias("queue_offset")).distinct()
        halves = warehouse.stage.at_hand(halves.join(F.broadcast(keys), HALF_KEY, "left_semi"))
    spots = halves.agg(F.min("commit_log_offset").alias("low"), F.max("commit_log_offset").alias("high")).collect()[0]
    if spots["low"] is None:
        return halves, warehouse.empty("final_messages")
    theirs = between("prepared_transaction_offset", spots["low"], spots["high"])
    finals = warehouse.read("final_messages", where=all_of(mine, theirs))
    if few:
        named_by = halves.select(F.col("commit_log_offset").alias("prepared_transaction_offset"))
        finals = finals.join(F.broadcast(named_by), "prepared_transaction_offset", "left_semi")
    return halves, finals


_HALF_AT = "half_log_offset"
_VALUES = [_HALF_AT, "seen", "final"]


def with_outcomes(items: DataFrame, halves: DataFrame, finals: DataFrame, known: Column, number: int) -> DataFrame:
    """Returns items of op messages with `outcome`: COMMIT, ROLLBACK, or null if it cannot be known.

    An outcome that an item has stays. A rollback is known if all of the log has been read that could hold the final
    message. `halves` may say so in `seen`, and `known` by an item and its `half_log_offset`. `number`: how many half
    rows there may be.
    """
    keyed = items.withColumnsRenamed({"queue_offset": "op_offset", "half_offset": "queue_offset"})
    placed = look_up(keyed, packed(_ends(halves, finals), number, _VALUES), _VALUES, "left")
    outcome = F.when(F.col("final"), "COMMIT").when(known & F.col("seen"), "ROLLBACK")
    if "outcome" in items.columns:
        outcome = F.coalesce(F.col("outcome"), outcome)
    back = {"queue_offset": "half_offset", "op_offset": "queue_offset"}
    return placed.withColumn("outcome", outcome).drop(*_VALUES).withColumnsRenamed(back)


def _ends(halves: DataFrame, finals: DataFrame) -> DataFrame:
    """Half messages by their place in the log, with `final`: whether a final message names it. Both in one grouping.

    The UNIQ_KEY must be the same: a message that a broker has delayed comes to its real topic naming place 0.
    """
    seen = F.col("seen") if "seen" in halves.columns else F.lit(True)
    message = F.xxhash64("uniq_key").alias("message")
    place = [F.col("commit_log_offset").alias(_HALF_AT), message]
    of_halves = halves.select(*QUEUE, "queue_offset", *place, seen.alias("seen"), F.lit(False).alias("final"))
    at = [F.col("prepared_transaction_offset").alias(_HALF_AT), message]
    of_finals = finals.where(~is_put_again()).select("broker_name", *at, F.lit(True).alias("final"))
    both = of_halves.unionByName(of_finals, allowMissingColumns=True)
    found = both.groupBy("broker_name", _HALF_AT, "message").agg(
        F.max("queue_id").alias("queue_id"),
        F.max("queue_offset").alias("queue_offset"),
        F.bool_or("seen").alias("seen"),
        F.bool_or("final").alias("final"),
    )
    return found.where(F.col("queue_offset").isNotNull())


def read_between(first: int, lost: Sequence[tuple[int, int]]) -> Column:
    """Returns whether the log between a half message and its op was read: all from `first` on, except lost ranges."""
    half, op = F.col(_HALF_AT), F.col("physical_offset")
    touched = [(half < upto) & (op >= since) for since, upto in lost]
    return reduce(lambda known, touches: known & ~touches, touched, half >= first)


_ENDABLE = (HALF, FINAL)
# A final message has the body and the born time of its half message.
_SAME_AS_HALF = ("body_crc", "born_timestamp")


class StretchOutcomes:
    """Gathers a stretch's batches, then gives its op items with their outcomes.

    `committed_later` are half messages whose final messages stand in later stretches. If these are not known (None), no
    rollback is either. `rolled_back` are half messages that items name, once these are made.
    """

    def __init__(self, start: int, committed_later: Longs | None) -> None:
        self._start, self._committed_later = start, committed_later
        self._seen: dict[str, list[pa.RecordBatch]] = {kind: [] for kind in _ENDABLE}
        self._ops: list[pa.RecordBatch] = []
        self._gap = False
        self.rolled_back = np.zeros(0, np.int64)

    def see(self, batches: Mapping[str, pa.RecordBatch], gap: bool) -> None:
        """Adds a piece's batches. `gap`: whether a part could not be read, which may have held a final message."""
        self._gap |= gap
        for kind, seen in self._seen.items():
            if kind in batches:
                seen.append(batches[kind])
        if OP in batches:
            self._ops.append(batches[OP])

    def look_back(self, stretch: Stretch) -> None:
        """Adds the log right before the stretch, first of all: the stretch's first ops end half messages there."""
        if stretch.back is None:
            return
        try:
            pieces = list(read(stretch.back, {kind: HEADS[kind] for kind in _ENDABLE}))
        except InputRefused:  # it may have been deleted by now, and has landed long since
            return
        if pieces and pieces[-1].end == stretch.start and not any(piece.faults for piece in pieces):
            for piece in pieces:
                self.see(piece.batches, False)

    @property
    def reaching_back(self) -> Longs:
        """Half messages of earlier stretches whose final messages stand here."""
        prepared, places = (self._longs(FINAL, of) for of in ("prepared_transaction_offset", "physical_offset"))
        return np.unique(prepared[(places >= self._start) & (prepared < self._start)])

    def items(self) -> Iterator[pa.RecordBatch]:
        """Op messages split into items, each with its outcome if the op itself or this stretch alone settles it."""
        committed, rolled_back = self._ends()
        queues, offsets, halves = (self._longs(HALF, of) for of in ("queue_id", "queue_offset", "physical_offset"))
        named = np.where(queues >= ROCKSDB_QUEUES, halves, offsets)
        for batch in self._ops:
            rows = items(batch)
            at = _places(rows, queues, named)
            rows = _by_offset(rows, offsets, at)
            found = (at >= 0) & pc.is_null(rows["outcome"]).to_numpy(zero_copy_only=False)
            outcome = np.where(found & committed[at], 0, 1)
            known = found & (committed[at] | rolled_back[at])
            self.rolled_back = np.union1d(self.rolled_back, halves[at[found & rolled_back[at]]])
            words = pa.array(["COMMIT", "ROLLBACK"]).take(pa.array(outcome, mask=~known))
            given = rows.schema.get_field_index("outcome")
            yield rows.set_column(given, "outcome", pc.coalesce(rows["outcome"], words))

    def _ends(self) -> tuple[Mask, Mask]:
        """Marks half messages that were committed, and those that were rolled back; the last entry stands for none."""
        places = self._longs(HALF, "physical_offset")
        committed, rolled_back = (np.zeros(len(places) + 1, np.bool_) for _ in range(2))
        prepared = self._longs(FINAL, "prepared_transaction_offset")
        at = np.searchsorted(places, prepared)
        finals = np.flatnonzero((at < len(places)) & (np.append(places, -1)[at] == prepared))
        named = at[finals]
        same = [self._longs(HALF, name)[named] == self._longs(FINAL, name)[finals] for name in _SAME_AS_HALF]
        # at place 0 it may be a copy (`is_put_again`), which the join shows
        committed[named[np.logical_and.reduce(same) & (prepared[finals] > 0)]] = True
        if not self._gap and self._committed_later is not None:
            rolled_back[:-1] = ~np.isin(places, self._committed_later)
            rolled_back[named] = False  # a final message names it: unlike ones are left to the join
        return committed, rolled_back

    def _longs(self, kind: str, column: str) -> Longs:
        parts = [pc.cast(batch[column], pa.int64()).to_numpy() for batch in self._seen[kind]]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _by_offset(rows: pa.RecordBatch, offsets: Longs, at: Longs) -> pa.RecordBatch:
    """The items by half offsets, null for a place in the log without a half message here."""
    by_place = rows["queue_id"].to_numpy() >= ROCKSDB_QUEUES
    if not by_place.any():
        return rows
    there = pa.array(np.append(offsets, -1)[at], mask=at < 0)
    given = rows.schema.get_field_index("half_offset")
    return rows.set_column(given, "half_offset", pc.if_else(by_place, there, rows["half_offset"]))


def _places(rows: pa.RecordBatch, queues: Longs, offsets: Longs) -> Longs:
    """The index of the half message that each item names; -1: none."""
    asked_queues = rows["queue_id"].to_numpy()
    asked = rows["half_offset"].fill_null(-1).to_numpy()
    places = np.full(len(asked), -1, np.int64)
    for queue in np.unique(asked_queues):
        mine, asking = np.flatnonzero(queues == queue), asked_queues == queue
        in_order = mine[np.argsort(offsets[mine], kind="stable")]
        at = np.searchsorted(offsets[in_order], asked[asking])
        there = (asked[asking] >= 0) & (np.append(offsets[in_order], -1)[at] == asked[asking])
        places[asking] = np.where(there, np.append(in_order, -1)[at], -1)
    return places
