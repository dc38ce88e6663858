"""Which offsets a set of rows covers, queue by queue: what lets Delta skip the files that cannot hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.rules.words import BLOCK_BITS, QUEUE

# A filter of this many spans still plans in an instant; beyond it one span over all queues must do.
_MOST = 500


@dataclass(frozen=True)
class Span:
    """The lowest and highest offset of some rows of a queue; of one landing, where `landed_at` (as text) is known."""

    broker_name: str
    queue_id: int
    low: int
    high: int
    landed_at: str | None = None

    def covers(self, column: str) -> Column:
        mine = (F.col("broker_name") == self.broker_name) & (F.col("queue_id") == self.queue_id)
        mine = mine & F.col(column).between(self.low, self.high)
        return (
            mine if self.landed_at is None else mine & (F.col("landed_at") == F.lit(self.landed_at).cast("timestamp"))
        )


class Tally(NamedTuple):
    """Rows counted: all, those that arrived with this run and where these lie; whether two rows share a key."""

    rows: int
    arrived: int
    repeated: bool
    spans: list[Span]


def tally(rows: DataFrame, offset: str, place: Column | None = None, group: Sequence[Column] = ()) -> Tally:
    """Counts rows in one small job. A key is queue, `group` and `place` (else the offset).

    Keys are told apart by bits, 64 places a group, so that next to nothing is shuffled.
    """
    rows = rows.withColumn("place", F.col(offset) if place is None else place)
    bit = F.expr(f"shiftleft(1L, cast(place & {(1 << BLOCK_BITS) - 1} as int))")
    blocks = rows.groupBy(*QUEUE, *group, F.shiftright("place", BLOCK_BITS)).agg(
        F.count("*").alias("rows"),
        F.count_if("arrived").alias("arrived"),
        F.bit_or(bit).alias("bits"),
        F.min(F.when(F.col("arrived"), F.col(offset))).alias("low"),
        F.max(F.when(F.col("arrived"), F.col(offset))).alias("high"),
    )
    queues = blocks.groupBy(*QUEUE).agg(
        F.sum("rows").alias("rows"),
        F.sum("arrived").alias("arrived"),
        F.bool_or(F.col("rows") != F.bit_count("bits")).alias("repeated"),
        F.min("low").alias("low"),
        F.max("high").alias("high"),
    )
    found = queues.collect()
    spans = [Span(r["broker_name"], r["queue_id"], r["low"], r["high"]) for r in found if r["low"] is not None]
    repeated = any(r["repeated"] for r in found)
    return Tally(sum(r["rows"] for r in found), sum(r["arrived"] for r in found), repeated, spans)


def spans_of(rows: DataFrame, column: str) -> list[Span]:
    """One span a queue."""
    known = rows.where(F.col(column).isNotNull())
    found = known.groupBy(*QUEUE).agg(F.min(column).alias("low"), F.max(column).alias("high")).collect()
    return [Span(row["broker_name"], row["queue_id"], row["low"], row["high"]) for row in found]


def covers(spans: Sequence[Span], column: str) -> Column:
    """Whether a row of the table to be read may lie in one of the spans."""
    if len(spans) > _MOST:
        return F.col(column).between(min(s.low for s in spans), max(s.high for s in spans))
    return reduce(lambda a, b: a | b, [span.covers(column) for span in spans], F.lit(False))
