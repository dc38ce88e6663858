"""Texts and numbers to typed values, strictly: null where a value is not exactly what it should be."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.landing.fields import Field

_WHOLE_NUMBER = r"\A[+-]?[0-9]+\z"
_ISO = (
    r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?"
    r"([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?\z"
)
_FIRST_MILLI, _LAST_MILLI = -62135596800000, 253402300799999  # the years 1 to 9999


def is_whole_number(text: Column) -> Column:
    return text.rlike(_WHOLE_NUMBER)


def whole_number(text: Column, type_name: str) -> Column:
    """An optional sign and ASCII digits within the type, nothing trimmed: Java's parseInt and parseLong."""
    return F.when(is_whole_number(text), text.try_cast(type_name))


def in_range(field: Field, number: Column) -> Column:
    return F.when(number >= 0, number) if field.not_negative else number


def epoch_millis(millis: Column) -> Column:
    return F.when(millis.between(_FIRST_MILLI, _LAST_MILLI), F.timestamp_millis(millis))


def iso_instant(text: Column) -> Column:
    """ISO-8601 with or without a zone (without: the session's, UTC)."""
    plain = F.regexp_replace(F.upper(F.replace(text, F.lit(","), F.lit("."))), r"([+-]\d\d)(\d\d)\z", "$1:$2")
    whole = F.regexp_replace(plain, r"([+-]\d\d)\z", "$1:00")
    stamp = F.when(F.length(text) > 10, whole).try_cast("timestamp")
    return known_years(F.when(text.rlike(_ISO), stamp))


def known_years(instant: Column) -> Column:
    millis = F.unix_millis(instant)
    return F.when(millis.between(_FIRST_MILLI, _LAST_MILLI), instant)
