"""Typed rows from Parquet files. A file's schema is checked as a whole, nulls and ranges row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type

from halfop.frame.errors import InputRefused
from halfop.frame.nearest import nearest
from halfop.landing.fields import NEAR, STRINGS, Field, fields, instants, known_names, numbers
from halfop.landing.files.typed import (
    BAD_TIME,
    OUT_OF_RANGE,
    WRONG_TYPE,
    Cells,
    Places,
    Problem,
    Typed,
    batch_of,
    first_problems,
    null_value,
    unfit,
)

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_FITTING = {
    "STRING": ("string",),
    "INT": _WHOLE,
    "BIGINT": _WHOLE,
    "TIMESTAMP": ("timestamp", "timestamp_ntz", "bigint"),
    "BINARY": ("binary",),
    "BOOLEAN": ("boolean",),
    STRINGS: ("map<string,string>",),
}
_ALL_NULL = "void"
# As Spark reads them.
_UNSIGNED = {pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)"}
_TEXTS = pa.dictionary(pa.int32(), pa.string())
_REPEATING = {"broker_name", "producer_group", "real_topic", "tags", "born_host", "store_host", "tag", "outcome"}


def check_schema(kind: str, shown: str, schema: pa.Schema) -> None:
    """Raises InputRefused for a file whose columns cannot be those of half or op rows."""
    wrong = [text for field in fields(kind) if (text := _schema_problem(field, schema))]
    if wrong:
        raise InputRefused(shown, None, "; ".join(wrong), "columns are as in the table; nothing has landed")


def _schema_problem(field: Field, schema: pa.Schema) -> str | None:
    if field.name not in schema.names:
        return f"no column {field.name}" + _instead(field, schema) if field.required else None
    if schema.names.count(field.name) > 1:
        return f"column {field.name} is there twice"
    found, fitting = _type_name(schema.field(field.name).type), _fitting(field)
    if found in fitting or (found == _ALL_NULL and not field.required):
        return None
    return f"column {field.name} is {found.upper()}, expected {' or '.join(each.upper() for each in fitting)}"


def _instead(field: Field, schema: pa.Schema) -> str:
    close = nearest(field.name, unknown_names("half", schema) | unknown_names("op", schema), NEAR)
    return f" (is it {close}?)" if close else ""


def _fitting(field: Field) -> tuple[str, ...]:
    more = ("map<bigint,string>", "map<int,string>") if field.name == "outcomes" else ()
    return _FITTING[field.type] + more


def _type_name(kind: pa.DataType) -> str:
    """The type's name in SQL."""
    if pa.types.is_dictionary(kind):
        return _type_name(kind.value_type)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return "timestamp of nanoseconds"
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    try:
        return str(from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString())
    except PySparkException:
        return str(kind)


def columns_read(kind: str, schema: pa.Schema) -> pa.Schema:
    """The columns of a file that are read, with their types; texts that repeat as dictionaries."""
    names = [field.name for field in fields(kind) if field.name in schema.names]
    return pa.schema([pa.field(name, _read_as(name, schema.field(name).type)) for name in names])


def _read_as(name: str, kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return _TEXTS if name in _REPEATING and _type_name(kind) == "string" else kind


def unknown_names(kind: str, schema: pa.Schema) -> set[str]:
    return set(schema.names) - set(known_names(kind))


def typed(kind: str, batch: pa.RecordBatch, places: Places) -> Typed:
    """The rows of a batch, whose schema has been checked."""
    columns = {field.name: _cells(field, batch) for field in fields(kind)}
    found = first_problems(kind, columns, lambda field, row: _problem(field, columns[field.name], batch, row))
    return Typed(kind, batch_of(kind, columns), places, found, set())


def _cells(field: Field, batch: pa.RecordBatch) -> Cells:
    if field.name not in batch.schema.names or pa.types.is_null(batch[field.name].type):
        kind = _TEXTS if field.name in _REPEATING else field.arrow
        nothing = pa.nulls(len(batch), kind)
        return Cells.of(nothing, nothing)
    given = batch[field.name]
    return Cells.of(_values(field, given), given)


def _values(field: Field, given: pa.Array) -> pa.Array:
    if field.type in ("INT", "BIGINT"):
        return numbers(given, field)
    if field.type == "TIMESTAMP":
        return instants(given)
    if field.type == STRINGS:
        return _without_nulls(given.cast(field.arrow))
    if pa.types.is_dictionary(given.type):
        return given
    return given if given.type == field.arrow else given.cast(field.arrow)


def _without_nulls(maps: pa.MapArray) -> pa.MapArray:
    """Null for a map that has a null."""
    ends = maps.offsets.to_numpy()
    absent = np.flatnonzero(pc.is_null(maps.items.slice(ends[0], ends[-1] - ends[0])).to_numpy(zero_copy_only=False))
    if not len(absent):
        return maps
    kept = np.ones(len(maps), np.bool_)
    kept[np.searchsorted(ends - ends[0], absent, side="right") - 1] = False
    return pc.if_else(pa.array(kept), maps, pa.scalar(None, maps.type))


def _problem(field: Field, cells: Cells, batch: pa.RecordBatch, row: int) -> Problem:
    if not cells.given[row]:
        return null_value(field)
    reasons = {"TIMESTAMP": BAD_TIME, STRINGS: WRONG_TYPE}
    reason = reasons.get(field.type, OUT_OF_RANGE)
    return unfit(reason, field, {field.name: _plain(batch[field.name][row])})


def _plain(cell: pa.Scalar) -> Any:
    if isinstance(cell.type, pa.MapType):
        return dict(cell.as_py())
    if pa.types.is_timestamp(cell.type):  # no datetime of Python's is that far away
        text = str(np.datetime64(cell.value, cell.type.unit).astype("datetime64[ms]"))
        if text == "NaT":  # as NumPy reads the lowest number
            return cell.value
        return f"{'+' if text.index('-', 1) > 4 else ''}{text}{'Z' if cell.type.tz else ''}"
    return cell.as_py()
