"""Problems of a row: a short code, and a text for people."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, NamedTuple

from halfop.landing.fields import Field

MISSING_COLUMN = "MISSING_COLUMN"
NULL_VALUE = "NULL_VALUE"
WRONG_TYPE = "WRONG_TYPE"
OUT_OF_RANGE = "OUT_OF_RANGE"
BAD_BASE64 = "BAD_BASE64"
BAD_TIME = "BAD_TIME"
UNREADABLE_LINE = "UNREADABLE_LINE"

_SHOWN = 80
_ESCAPED = re.compile(r"\\u[0-9a-f]{4}")


class Problem(NamedTuple):
    reason: str
    detail: str


def unreadable(line: bytes) -> Problem:
    text = line.decode(errors="replace")
    return Problem(UNREADABLE_LINE, f"found {_shown(text)}, expected one whole JSON object in UTF-8, each name once")


def missing(field: Field) -> Problem:
    return Problem(MISSING_COLUMN, f"{field.name} is missing, expected {field.expected}")


def null_value(field: Field) -> Problem:
    return Problem(NULL_VALUE, f"{field.name} is null, expected {field.expected}")


def unfit(reason: str, field: Field, found: Any) -> Problem:
    """A problem of a value that is not as it should be."""
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"), default=str)
    text = _ESCAPED.sub(lambda match: "\\u" + match[0][2:].upper(), text)
    return Problem(reason, f"{field.name}: found {_shown(text)}, expected {field.expected}")


def _shown(text: str) -> str:
    """The text shortened, and without characters that could drive a terminal."""
    whole = "".join("?" if unicodedata.category(c)[0] == "C" else c for c in text[: _SHOWN + 1])
    return f"{whole[:_SHOWN]}..." if len(whole) > _SHOWN else whole
