"""Problems of a row, as SQL text: null, or a struct of a short code and a text."""

from __future__ import annotations

from collections.abc import Sequence

from halfop.landing.columns.fields import Field
from halfop.warehouse.sql import literal

MISSING_COLUMN = "MISSING_COLUMN"
NULL_VALUE = "NULL_VALUE"
WRONG_TYPE = "WRONG_TYPE"
OUT_OF_RANGE = "OUT_OF_RANGE"
BAD_BASE64 = "BAD_BASE64"
BAD_TIME = "BAD_TIME"
UNREADABLE_LINE = "UNREADABLE_LINE"

_SHOWN = 80


def shown(text: str) -> str:
    """The text shortened, and without characters that could drive a terminal."""
    whole = rf"regexp_replace(left({text}, {_SHOWN + 1}), r'\p{{C}}', '?')"
    return f"coalesce(if(length({whole}) > {_SHOWN}, left({whole}, {_SHOWN}) || '...', {whole}), 'null')"


def found(reason: str, text: str, start: str, end: str) -> str:
    """A problem whose detail shows the value of an expression between two texts."""
    detail = f"concat({literal(start)}, {shown(text)}, {literal(end)})"
    return f"named_struct('reason', {reason}, 'detail', {detail})"


def missing(field: Field) -> str:
    return _plain(MISSING_COLUMN, f"{field.name} is missing, expected {field.expected}")


def null_value(field: Field) -> str:
    return _plain(NULL_VALUE, f"{field.name} is null, expected {field.expected}")


def unfit(reason: str, field: Field, text: str) -> str:
    """A problem of a value that is not as it should be; `reason` is an expression."""
    return found(reason, text, f"{field.name}: found ", f", expected {field.expected}")


def first(problems: Sequence[str]) -> str:
    return f"coalesce({', '.join(problems)})"


def _plain(reason: str, detail: str) -> str:
    return f"named_struct('reason', {literal(reason)}, 'detail', {literal(detail)})"
