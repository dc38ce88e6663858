"""Values of one column: whole numbers as RocketMQ reads them, texts that are there, times as microseconds."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

FARTHEST = 4 * 10**17  # microseconds; some 12,000 years, beyond any time worth telling apart


def whole_number(text: Column) -> Column:
    """RocketMQ's whole number: an optional sign and ASCII digits within a Java long, nothing trimmed; else null."""
    return F.when(text.rlike(r"\A[+-]?[0-9]+\z"), text.try_cast("bigint"))


def present(text: Column) -> Column:
    """A property that is there: a broker's store loses empty values."""
    return F.nullif(text, F.lit(""))


def micros(time: Column) -> Column:
    """Microseconds since 1970, kept within bounds that differences cannot overflow."""
    return F.greatest(F.lit(-FARTHEST), F.least(F.lit(FARTHEST), F.unix_micros(time)))


def in_micros(length: timedelta) -> int:
    return length // timedelta(microseconds=1)


def millis(column: str) -> Column:
    """The column as milliseconds since 1970, under its own name: a collected timestamp has no zone."""
    return F.unix_millis(column).alias(column)
