"""Bodies of Avro: one datum each, written by the schema of the setting, without a header."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
from pyspark.sql import types as t

from halfop.settings.ddl import MOST_DIGITS
from halfop.values.misfit import Misfit

_PRIMITIVE = {
    "boolean": t.BooleanType,
    "int": t.IntegerType,
    "long": t.LongType,
    "float": t.FloatType,
    "double": t.DoubleType,
    "bytes": t.BinaryType,
    "string": t.StringType,
    "enum": t.StringType,
    "fixed": t.BinaryType,
}
_LOGICAL = {
    ("int", "date"): t.DateType,
    ("long", "timestamp-millis"): t.TimestampType,
    ("long", "timestamp-micros"): t.TimestampType,
}


class _Places(list[Any]):
    """An enum's symbols, or a union's branches: Fastavro would count a negative place from the end, as Python does."""

    def __len__(self) -> int:
        return 0  # its C code adds this to a negative place

    def __getitem__(self, place: Any) -> Any:
        if place < 0:
            raise IndexError(place)
        return super().__getitem__(place)


def reader(schema: str, _message: str) -> Callable[[bytes], object]:
    """Returns what reads a body as a dict; it raises Misfit."""
    body = {"type": "record", "name": "_", "fields": [{"name": "_", "type": _plain(json.loads(schema))}]}
    known = _with_places(fastavro.parse_schema(body))

    def read(body: bytes) -> object:
        datum = io.BytesIO(body)
        try:
            found: Any = fastavro.schemaless_reader(datum, known, None)
        except (ArithmeticError, EOFError, LookupError, TypeError, ValueError, MemoryError) as error:
            raise Misfit(f"no datum of the Avro schema ({type(error).__name__})") from None
        if left := len(body) - datum.tell():
            raise Misfit(f"no datum of the Avro schema: {left} bytes follow it")
        return found["_"]

    return read


def _with_places(schema: Any) -> Any:
    """The parsed schema, changed where it stands, because a record's name leads to the same fields."""
    if isinstance(schema, list):
        return _Places(map(_with_places, schema))
    if isinstance(schema, dict):
        for name in schema.keys() & {"type", "items", "values", "symbols"}:
            schema[name] = _with_places(schema[name])
        for field in schema.get("fields", ()):
            _with_places(field)
    return schema


def _plain(schema: Any) -> Any:
    """The schema without logical types that are no type of a table: what they are made of counts."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kind, logical = str(schema.get("type")), schema.get("logicalType")
    is_known = (kind, logical) in _LOGICAL or (logical == "decimal" and kind in ("bytes", "fixed"))
    return {
        name: _plain(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if name != "logicalType" or is_known
    }


# ---- the column's type ----


def column_type(schema: str, _message: str) -> t.DataType:
    """The type of the values; a ValueError says what a table cannot have."""
    try:
        found = _type(_parsed(schema), {}, ())
    except KeyError as error:
        raise ValueError(f"no schema of Avro: {error} is missing") from None
    except (AssertionError, TypeError) as error:
        raise ValueError(f"no schema of Avro: {error}") from None
    if not isinstance(found, t.StructType):
        raise ValueError("expected a record")
    return found


def _parsed(schema: str) -> Any:
    """The schema with every type under its full name, wherever it is named."""
    try:
        return fastavro.parse_schema(_plain(json.loads(schema)))
    except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise ValueError(f"no schema of Avro: {error}") from None


def _type(schema: Any, known: dict[str, Any], above: tuple[str, ...]) -> t.DataType:
    if isinstance(schema, list):
        return _union([each for each in schema if each != "null"], known, above)
    if schema == "null":
        raise ValueError("null alone is no type of a column")
    if isinstance(schema, str):
        return _PRIMITIVE[schema]() if schema in _PRIMITIVE else _named(schema, known, above)
    kind = schema["type"]
    if not isinstance(kind, str):
        return _type(kind, known, above)
    return _declared(kind, schema, known, above)


def _declared(kind: str, schema: Mapping[str, Any], known: dict[str, Any], above: tuple[str, ...]) -> t.DataType:
    if "name" in schema:
        known[schema["name"]] = schema
    if kind in ("record", "error"):
        return _record(schema, known, above)
    if kind == "array":
        return t.ArrayType(_type(schema["items"], known, above))
    if kind == "map":
        return t.MapType(t.StringType(), _type(schema["values"], known, above))
    if kind == "fixed" and not schema["size"]:  # a few bytes of a body could say that it has a billion of them
        raise ValueError(f"{schema['name']} has no byte, so no column has its type")
    logical = schema.get("logicalType")
    if logical == "decimal" and schema["precision"] > MOST_DIGITS:
        raise ValueError(f"a column's decimal has at most {MOST_DIGITS} digits, not {schema['precision']}")
    if logical == "decimal":
        return t.DecimalType(schema["precision"], schema.get("scale", 0))
    return _LOGICAL[kind, logical]() if logical else _type(kind, known, above)


def _union(of: list[Any], known: dict[str, Any], above: tuple[str, ...]) -> t.DataType:
    if len(of) != 1:
        raise ValueError("a column has one type: expected unions of null and one other")
    return _type(of[0], known, above)


def _named(name: str, known: dict[str, Any], above: tuple[str, ...]) -> t.DataType:
    if name in above:
        raise ValueError(f"{name} holds itself, so no column has its type")
    return _type(known[name], known, above)


def _record(schema: Mapping[str, Any], known: dict[str, Any], above: tuple[str, ...]) -> t.DataType:
    if not schema["fields"]:
        raise ValueError(f"{schema['name']} has no field, so no column has its type")
    inner = (*above, schema["name"])
    return t.StructType([t.StructField(f["name"], _type(f["type"], known, inner)) for f in schema["fields"]])
