"""Typed rows as the tables have them: half messages completed from their properties, op messages split into items."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from halfop.landing.fields import completed, items
from halfop.landing.files.own_life import Stamp, by_half
from halfop.landing.files.typed import Typed
from halfop.landing.table_rows import TABLES
from halfop.warehouse.maps import with_made
from halfop.warehouse.schema import table

SOURCE = "FILES"
BAD = "bad"
BAD_ROW = pa.schema(
    [
        *(("file", pa.string()), ("block", pa.int64()), ("place", pa.int64())),
        *(("reason", pa.string()), ("detail", pa.string())),
        *(("broker_name", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64())),
        *(("item", pa.int32()), ("half_offset", pa.int64())),
    ]
)
_MAKE: dict[str, Callable[[pa.RecordBatch], pa.RecordBatch]] = {"half": completed, "op": items}
# Texts of few values, each many times.
_REPEATING = {
    "broker_name",
    "producer_group",
    "real_topic",
    "tags",
    "born_host",
    "store_host",
    "tag",
    "outcome",
    "source",
}


def table_rows(typed: Typed, stamp: Stamp) -> pa.RecordBatch:
    """The rows of the table that come of the good ones."""
    spec, good = table(TABLES[typed.kind]), typed.good
    made = with_made(_MAKE[typed.kind](good), spec)
    if typed.kind == "op" and stamp.lives:
        made = by_half(made, stamp)
    constant = {"source": pa.scalar(SOURCE), "landed_at": pa.scalar(stamp.landed_at, pa.timestamp("us", "UTC"))}
    columns = {name: pa.repeat(constant[name], len(made)) for name in spec.names if name in constant}
    columns |= dict(zip(made.schema.names, made.columns, strict=True))
    return pa.RecordBatch.from_pydict({name: _encoded(name, columns[name]) for name in spec.names})


def _encoded(name: str, column: pa.Array) -> pa.Array:
    known = pa.types.is_dictionary(column.type) or name not in _REPEATING
    return column if known else column.dictionary_encode()


def bad_rows(file: str, block: int, typed: Typed) -> pa.RecordBatch:
    """The bad rows, each with its place and what is wrong with it."""
    rows = typed.rows.take(pa.array(list(typed.problems), pa.int64()))
    known = dict(zip(rows.schema.names, rows.columns, strict=True))
    about = typed.problems.values()
    known |= {
        "file": pa.repeat(file, len(rows)),
        "block": pa.repeat(pa.scalar(block, pa.int64()), len(rows)),
        "place": pa.array(typed.places[list(typed.problems)]),
        "reason": pa.array([problem.reason for problem in about], pa.string()),
        "detail": pa.array([problem.detail for problem in about], pa.string()),
    }
    known.setdefault("half_offset", known["queue_offset"])
    columns = [known[f.name].cast(f.type) if f.name in known else pa.nulls(len(rows), f.type) for f in BAD_ROW]
    return pa.RecordBatch.from_arrays(columns, schema=BAD_ROW)
