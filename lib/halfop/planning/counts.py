"""Counts half messages and ops by key in small jobs, and the ranges of half offsets by which files are skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from halfop.columns.key_sets import BLOCK_BITS, block
from halfop.columns.keys import QUEUE
from halfop.planning.run import Slice
from halfop.warehouse.where import Where, all_of, any_of, between, equal


class KeyCount(NamedTuple):
    """The number of all rows and of arrived ones, the places of the arrived ones, and whether two rows share a key."""

    rows: int
    arrived: int
    repeated: bool
    ranges: list[OffsetRange]


def count_keys(
    rows: DataFrame, offset: str, place: Column, group: Sequence[Column], mark: Column
) -> tuple[KeyCount, bool]:
    """Counts rows in one small job, and finds whether one has the mark. A key is queue, `group` and `place`.

    Keys are distinguished by bits, 64 places a group, so that next to nothing is shuffled.
    """
    rows, marked = (
        rows.withColumns({"place": place, "mine": F.lit(True), "mark": mark}),
        F.bool_or("mark").alias("mark"),
    )
    blocks = rows.groupBy(*QUEUE, *group, block("place")).agg(*_of_block("", F.col("mine"), offset, "place"), marked)
    queues = blocks.groupBy(*QUEUE).agg(*_of_queue(""), marked).collect()
    return _count("", queues), any(queue["mark"] for queue in queues)


class KeyCounts(NamedTuple):
    """Half messages and the ops that name them: `all_met` if every op has its half message here.

    `arrivals_met` says so of arrived ops, the others have waited before; `all_named`: whether an op without a header
    names every half message;
    `copies`: whether a half message is a copy of another, or has one; `may_be_asked`: half messages that may get a
    question in this run.
    """

    halves: KeyCount
    ops: KeyCount
    all_met: bool
    arrivals_met: bool
    all_named: bool
    copies: bool
    may_be_asked: int


def counted(halves: DataFrame, named: DataFrame) -> KeyCounts:
    """Counts both, under half keys, in one small job; half messages with `put_back` and `may_be_asked`."""
    is_op = F.col("is_op")
    of_half = halves.withColumn("is_op", F.lit(False))
    of_half = of_half.withColumn("is_bare", F.lit(False))
    none = {"put_back": F.lit(False), "may_be_asked": F.lit(False)}
    of_op = named.withColumns({"is_op": F.lit(True), "is_bare": ~F.col("op")["header"], **none}).drop("op")
    rows = of_half.unionByName(of_op)
    blocks = rows.groupBy(*QUEUE, block()).agg(
        *_of_block("half_", ~is_op, "queue_offset", "queue_offset"),
        *_of_block("op_", is_op, "queue_offset", "queue_offset"),
        _bits(is_op & F.col("arrived"), "queue_offset").alias("op_arrived_bits"),
        _bits(F.col("is_bare"), "queue_offset").alias("op_bare_bits"),
        F.bool_or("put_back").alias("put_back"),
        F.count_if("may_be_asked").alias("may_be_asked"),
    )
    counted_queues = blocks.groupBy(*QUEUE).agg(
        *_of_queue("half_"),
        *_of_queue("op_"),
        F.bool_or(_beyond("op_bits", "half_bits")).alias("unmet"),
        F.bool_or(_beyond("op_arrived_bits", "half_bits")).alias("unmet_arrivals"),
        F.bool_or(_beyond("half_bits", "op_bare_bits")).alias("unnamed"),
        F.bool_or("put_back").alias("put_back"),
        F.sum("may_be_asked").alias("may_be_asked"),
    )
    queues = counted_queues.collect()
    found = ("unmet", "unmet_arrivals", "unnamed", "put_back")
    unmet, strays, unnamed, copies = (any(r[name] for r in queues) for name in found)
    to_ask = sum(r["may_be_asked"] for r in queues)
    counts = _count("half_", queues), _count("op_", queues)
    return KeyCounts(*counts, not unmet, not strays, not unnamed, copies, to_ask)


def _of_block(prefix: str, mine: Column, offset: str, place: str) -> list[Column]:
    arrived = mine & F.col("arrived")
    return [
        F.count_if(mine).alias(f"{prefix}rows"),
        F.count_if(arrived).alias(f"{prefix}arrived"),
        _bits(mine, place).alias(f"{prefix}bits"),
        F.min(F.when(arrived, F.col(offset))).alias(f"{prefix}low"),
        F.max(F.when(arrived, F.col(offset))).alias(f"{prefix}high"),
    ]


def _of_queue(prefix: str) -> list[Column]:
    rows, bits = F.col(f"{prefix}rows"), F.col(f"{prefix}bits")
    return [
        F.sum(rows).alias(f"{prefix}rows"),
        F.sum(f"{prefix}arrived").alias(f"{prefix}arrived"),
        F.bool_or(rows != F.bit_count(bits)).alias(f"{prefix}repeated"),
        F.min(f"{prefix}low").alias(f"{prefix}low"),
        F.max(f"{prefix}high").alias(f"{prefix}high"),
    ]


def _bits(mine: Column, place: str) -> Column:
    bit = F.expr(f"shiftleft(1L, cast({place} & {(1 << BLOCK_BITS) - 1} as int))")
    return F.bit_or(F.when(mine, bit).otherwise(F.lit(0).cast("bigint")))


def _beyond(bits: str, others: str) -> Column:
    return F.col(bits).bitwiseAND(F.bitwise_not(others)) != 0


def _count(prefix: str, queues: Sequence[Row]) -> KeyCount:
    rows, arrived = (sum(r[f"{prefix}{name}"] for r in queues) for name in ("rows", "arrived"))
    found = [(r["broker_name"], r["queue_id"], r[f"{prefix}low"], r[f"{prefix}high"]) for r in queues]
    ranges = [OffsetRange(*each) for each in found if None not in each]  # no row is under a key with a null
    return KeyCount(rows, arrived, any(r[f"{prefix}repeated"] for r in queues), ranges)


# A condition of so many ranges is made in an instant; beyond it one a broker must do, or one over all queues.
_MOST_RANGES = 100


@dataclass(frozen=True)
class OffsetRange:
    """The lowest and highest offset of some rows of a queue; of one landing only, if its instant is known.

    `landed_at` is that instant in epoch microseconds.
    """

    broker_name: str
    queue_id: int
    low: int
    high: int
    landed_at: int | None = None

    def covers(self, column: str, queue: str = "queue_id") -> Where:
        mine = (equal("broker_name", self.broker_name), equal(queue, self.queue_id))
        landed = () if self.landed_at is None else (equal("landed_at", self.landed_at),)
        return all_of(*mine, between(column, self.low, self.high), *landed)


def ranges_of(rows: DataFrame, column: str) -> list[OffsetRange]:
    """One range a queue."""
    known = rows.where(F.col(column).isNotNull())
    found = known.groupBy(*QUEUE).agg(F.min(column).alias("low"), F.max(column).alias("high")).collect()
    return [OffsetRange(row["broker_name"], row["queue_id"], row["low"], row["high"]) for row in found]


def covers(ranges: Sequence[OffsetRange], column: str, queue: str = "queue_id") -> Where | None:
    """The rows of a table that lie in one of the ranges, or may do so if these are many; None of no ranges.

    `column` and `queue` are the table's names for the offset and the queue.
    """
    if len(ranges) <= _MOST_RANGES:
        return any_of([each.covers(column, queue) for each in ranges]) if ranges else None
    brokers = sorted({each.broker_name for each in ranges})
    if len(brokers) > _MOST_RANGES:
        return between(column, *_span(ranges))
    of_brokers = {name: [each for each in ranges if each.broker_name == name] for name in brokers}
    return any_of([all_of(equal("broker_name", name), between(column, *_span(of_brokers[name]))) for name in brokers])


def _span(ranges: Sequence[OffsetRange]) -> tuple[int, int]:
    return min(each.low for each in ranges), max(each.high for each in ranges)


def in_slice(part: Slice, column: str = "queue_offset") -> Column:
    """Returns whether a row's half offset lies in the slice; rows that name no offset belong to the first slice."""
    low = F.lit(True) if part.from_offset is None else F.col(column) >= part.from_offset
    high = F.lit(True) if part.to_offset is None else F.col(column) < part.to_offset
    return F.coalesce(low & high, F.lit(part.from_offset is None))


def between_values(rows: DataFrame, column: str) -> Where | None:
    """The rows whose column lies between the least and greatest value of these rows; None of no rows."""
    value = F.unix_micros(column) if isinstance(rows.schema[column].dataType, TimestampType) else F.col(column)
    found = rows.agg(F.min(value).alias("low"), F.max(value).alias("high")).collect()[0]
    return None if found["low"] is None else between(column, found["low"], found["high"])
