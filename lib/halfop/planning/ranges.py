"""Ranges of half offsets, queue by queue: conditions by which files are skipped that cannot hold a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from halfop.columns.keys import QUEUE
from halfop.planning.run import Slice
from halfop.warehouse.where import Where, all_of, any_of, between, equal

# A condition of so many ranges is made in an instant; beyond it one a broker must do, or one over all queues.
_MOST = 100


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

    def covers(self, column: str) -> Where:
        mine = (equal("broker_name", self.broker_name), equal("queue_id", self.queue_id))
        landed = () if self.landed_at is None else (equal("landed_at", self.landed_at),)
        return all_of(*mine, between(column, self.low, self.high), *landed)


def ranges_of(rows: DataFrame, column: str) -> list[OffsetRange]:
    """One range a queue."""
    known = rows.where(F.col(column).isNotNull())
    found = known.groupBy(*QUEUE).agg(F.min(column).alias("low"), F.max(column).alias("high")).collect()
    return [OffsetRange(row["broker_name"], row["queue_id"], row["low"], row["high"]) for row in found]


def covers(ranges: Sequence[OffsetRange], column: str) -> Where | None:
    """The rows of a table that lie in one of the ranges, or may do so if these are many; None of no ranges."""
    if len(ranges) <= _MOST:
        return any_of([each.covers(column) for each in ranges]) if ranges else None
    brokers = sorted({each.broker_name for each in ranges})
    if len(brokers) > _MOST:
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
