"""Values of one column: whole numbers as RocketMQ reads them, texts that are present, times as microseconds.

A whole number is an optional sign and ASCII digits within the type, nothing trimmed; anything else gives null. It comes
as a Column and, for frames with so many expressions that each Column's calls to the JVM would show, as SQL text.
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.rocketmq.numbers import WHOLE_NUMBER

FARTHEST = 4 * 10**17  # microseconds: some 12,000 years, further than any time that a rule compares
_WHOLE_NUMBER = rf"\A{WHOLE_NUMBER}\z"


def whole_number(text: Column) -> Column:
    """The Java long that a text is; null if it is none."""
    return F.when(text.rlike(_WHOLE_NUMBER), text.try_cast("bigint"))


def present(text: Column) -> Column:
    """A property's text, null if it is empty: a broker's store loses empty values."""
    return F.nullif(text, F.lit(""))


def micros(time: Column) -> Column:
    """Microseconds since 1970, kept within bounds that differences cannot overflow."""
    return F.greatest(F.lit(-FARTHEST), F.least(F.lit(FARTHEST), F.unix_micros(time)))


def in_micros(length: timedelta) -> int:
    """A duration in microseconds."""
    return length // timedelta(microseconds=1)


def millis(column: str) -> Column:
    """The column as milliseconds since 1970, under its own name: a collected timestamp has no zone."""
    return F.unix_millis(column).alias(column)
