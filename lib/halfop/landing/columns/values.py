"""Typed values from Arrow columns, strictly: null if a value is not exactly what it should be."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from halfop.landing.columns.fields import Field
from halfop.rocketmq.batches import FIRST_MS, LAST_MS

_INSTANT = pa.timestamp("us", "UTC")


def numbers(given: pa.Array, field: Field) -> pa.Array:
    """Whole numbers of a column of INT or BIGINT."""
    return _between(given, *field.bounds).cast(field.arrow)


def instants(given: pa.Array) -> pa.Array:
    """Timestamps, or epoch milliseconds, as the instants that they are: in the years 1 to 9999."""
    if pa.types.is_timestamp(given.type) and given.type.unit == "us":
        micros = _between(given.cast(pa.int64()), FIRST_MS * 1000, LAST_MS * 1000 + 999)
    else:
        micros = pc.multiply(_between(given.cast(pa.int64()), FIRST_MS, LAST_MS), 1000)
    return micros.cast(_INSTANT)


def _between(given: pa.Array, low: int, high: int) -> pa.Array:
    """The numbers as they are, null outside of these bounds."""
    given = given.cast(pa.int64())
    found = pc.min_max(given).as_py()
    if found["min"] is None or (found["min"] >= low and found["max"] <= high):
        return given
    fits = pc.and_(pc.greater_equal(given, low), pc.less_equal(given, high))
    return pc.if_else(fits, given, pa.scalar(None, pa.int64()))
