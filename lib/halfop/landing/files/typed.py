"""Rows of input as the columns of half or op rows, and what is wrong with those that are bad."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfop.landing.fields import Field, fields

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Typed:
    """Rows with the columns of their kind, good ones and bad ones; `places` are their places in the input."""

    kind: str
    rows: pa.RecordBatch
    places: Places
    problems: Mapping[int, Problem]
    unknown: Set[str]

    @property
    def good(self) -> pa.RecordBatch:
        if not self.problems:
            return self.rows
        kept = np.ones(len(self.rows), np.bool_)
        kept[list(self.problems)] = False
        return self.rows.filter(pa.array(kept))

    def only(self, kept: Mask) -> Typed:
        """The marked rows."""
        numbers = np.cumsum(kept) - 1
        problems = {int(numbers[row]): problem for row, problem in self.problems.items() if kept[row]}
        rows = self.rows.filter(pa.array(kept))
        return replace(self, rows=rows, places=self.places[kept], problems=problems)


@dataclass(frozen=True)
class Cells:
    """A column's values, null if they do not fit, and which rows were given one that is not null."""

    values: pa.Array
    given: Mask

    @staticmethod
    def of(values: pa.Array, given: pa.Array) -> Cells:
        return Cells(values, pc.is_valid(given).to_numpy(zero_copy_only=False))


def batch_of(kind: str, columns: Mapping[str, Cells]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({field.name: columns[field.name].values for field in fields(kind)})


def first_problems(
    kind: str, columns: Mapping[str, Cells], about: Callable[[Field, int], Problem]
) -> dict[int, Problem]:
    """The first problem of each bad row; `about` words it, of a field and a row."""
    found: dict[int, Problem] = {}
    for field in fields(kind):
        for row in np.flatnonzero(_bad(field, columns[field.name])).tolist():
            if row not in found:
                found[row] = about(field, row)
    return found


def _bad(field: Field, cells: Cells) -> Mask:
    """Rows whose value does not fit, or that lack one that they must have."""
    if not cells.values.null_count:
        return np.zeros(len(cells.values), np.bool_)
    absent: Mask = pc.is_null(cells.values).to_numpy(zero_copy_only=False)
    return absent if field.required else absent & cells.given


# ---- problems of a row: a short code, and a text for people ----

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
