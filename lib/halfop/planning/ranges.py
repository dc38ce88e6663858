"""Ranges of half offsets, queue by queue: literal filters by which Delta skips files that cannot hold a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import QUEUE
from halfop.planning.run import Slice

# A filter of this many ranges still plans in an instant; beyond it one range over all queues must do.
_MOST = 500


@dataclass(frozen=True)
class OffsetRange:
    """The lowest and highest offset of some rows of a queue; of one landing only, if `landed_at` (as text) is known."""

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


def ranges_of(rows: DataFrame, column: str) -> list[OffsetRange]:
    """One range a queue."""
    known = rows.where(F.col(column).isNotNull())
    found = known.groupBy(*QUEUE).agg(F.min(column).alias("low"), F.max(column).alias("high")).collect()
    return [OffsetRange(row["broker_name"], row["queue_id"], row["low"], row["high"]) for row in found]


def covers(ranges: Sequence[OffsetRange], column: str) -> Column:
    """Returns whether a row of the table to be read may lie in one of the ranges."""
    if len(ranges) > _MOST:
        return F.col(column).between(min(each.low for each in ranges), max(each.high for each in ranges))
    return reduce(lambda a, b: a | b, [each.covers(column) for each in ranges], F.lit(False))


def in_slice(part: Slice, column: str = "queue_offset") -> Column:
    """Returns whether a row's half offset lies in the slice; rows that name no offset belong to the first slice."""
    low = F.lit(True) if part.from_offset is None else F.col(column) >= part.from_offset
    high = F.lit(True) if part.to_offset is None else F.col(column) < part.to_offset
    return F.coalesce(low & high, F.lit(part.from_offset is None))


def between_values(rows: DataFrame, column: str) -> Column | None:
    """Returns whether a column lies within the bounds of these rows, given as literals; None if there are no rows."""
    low, high = (fun(column).cast("string").alias(name) for fun, name in ((F.min, "low"), (F.max, "high")))
    found = rows.agg(low, high).collect()[0]
    if found["low"] is None:
        return None
    kind = rows.schema[column].dataType
    return F.col(column).between(F.lit(found["low"]).cast(kind), F.lit(found["high"]).cast(kind))
