"""The columns that half and op rows may have, from the tables' own schemas, and the form that each must have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from halfop.landing.tables import TABLES
from halfop.warehouse.schema import table

STRINGS = "MAP<STRING,STRING>"
LONG_MAX = 2**63 - 1
_LOWEST = {"INT": -(2**31), "BIGINT": -(2**63)}
# How like a column a name must be for the hint that the column was meant.
NEAR = 0.75

_MADE_HERE = {"landed_at", "source"}
_KEY = {"broker_name", "queue_id", "queue_offset", "born_timestamp", "store_timestamp"}
_REQUIRED = {"half": _KEY | {"commit_log_offset", "body", "properties"}, "op": _KEY}
_NOT_NEGATIVE = {"queue_offset", "item"}

_EXPECTED = {
    "STRING": "a string",
    "TIMESTAMP": "epoch milliseconds or ISO-8601 as 2025-06-15T15:06:40.123Z, in the years 1 to 9999",
    "BINARY": "base64 text",
    "BOOLEAN": "true or false",
    STRINGS: "an object whose values are strings",
}
_ARROW = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    STRINGS: pa.map_(pa.string(), pa.string()),
}


@dataclass(frozen=True)
class Field:
    """A column of the input: its name, its type, and whether each row must have it."""

    name: str
    type: str
    required: bool = False

    @property
    def not_negative(self) -> bool:
        return self.name in _NOT_NEGATIVE

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest whole number that it may be."""
        lowest = _LOWEST[self.type]
        return 0 if self.not_negative else lowest, -lowest - 1

    @property
    def arrow(self) -> pa.DataType:
        return _ARROW[self.type]

    @property
    def expected(self) -> str:
        if self.type in _LOWEST:
            return "a whole number from {} to {}".format(*self.bounds)
        return _EXPECTED[self.type]


@cache
def fields(kind: str) -> tuple[Field, ...]:
    """The columns that are read from half or op rows."""
    spec = table(TABLES[kind])
    columns = [c for c in spec.columns if c.made is None and c.name not in _MADE_HERE]
    own = [Field(c.name, c.type, c.name in _REQUIRED[kind]) for c in columns]
    return (*own, Field("outcomes", STRINGS)) if kind == "op" else tuple(own)


def known_names(kind: str) -> list[str]:
    """Names that raise no warning: those that are read, and the others of an export of the table itself."""
    return sorted({f.name for f in fields(kind)} | set(table(TABLES[kind]).names))
