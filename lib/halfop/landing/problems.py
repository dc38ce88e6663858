"""What can be wrong with a row, as a column: null, or a struct of a short code and a text."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.landing.fields import Field

MISSING_COLUMN = "MISSING_COLUMN"
NULL_VALUE = "NULL_VALUE"
WRONG_TYPE = "WRONG_TYPE"
OUT_OF_RANGE = "OUT_OF_RANGE"
BAD_BASE64 = "BAD_BASE64"
BAD_TIME = "BAD_TIME"
UNREADABLE_LINE = "UNREADABLE_LINE"

_SHOWN = 80


def shown(text: Column) -> Column:
    """Shortened, and without characters that could drive a terminal."""
    whole = F.regexp_replace(F.left(text, F.lit(_SHOWN + 1)), r"\p{C}", "?")
    return F.when(F.length(whole) > _SHOWN, F.concat(F.left(whole, F.lit(_SHOWN)), F.lit("..."))).otherwise(whole)


def problem(reason: str | Column, *detail: str | Column) -> Column:
    code = F.lit(reason) if isinstance(reason, str) else reason
    texts = [F.lit(part) if isinstance(part, str) else F.coalesce(part, F.lit("null")) for part in detail]
    return F.struct(code.alias("reason"), F.concat(*texts).alias("detail"))


def missing(field: Field) -> Column:
    return problem(MISSING_COLUMN, f"{field.name} is missing, expected {field.expected}")


def null_value(field: Field) -> Column:
    return problem(NULL_VALUE, f"{field.name} is null, expected {field.expected}")


def unfit(reason: str | Column, field: Field, found: Column) -> Column:
    return problem(reason, f"{field.name}: found ", shown(found), f", expected {field.expected}")


def first(problems: Sequence[Column]) -> Column:
    return F.coalesce(*problems)
