"""The type of a topic's values by its setting, and how its table takes them."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import cast

import pyarrow as pa
from pyspark.sql import types as t

from halfop.frame.errors import UsageError
from halfop.settings.ddl import Kind, parsed, refuse_names
from halfop.settings.topics import ValueSettings
from halfop.values.reading import Reading
from halfop.warehouse.growth import TypeChanged, ddl, grown
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.schema import OF_A_TOPIC, VALUE, TableSpec, valued
from halfop.warehouse.schema import table as table_of

_SIMPLE = {
    "BOOLEAN": t.BooleanType,
    "TINYINT": t.ByteType,
    "SMALLINT": t.ShortType,
    "INT": t.IntegerType,
    "BIGINT": t.LongType,
    "FLOAT": t.FloatType,
    "DOUBLE": t.DoubleType,
    "STRING": t.StringType,
    "BINARY": t.BinaryType,
    "DATE": t.DateType,
    "TIMESTAMP": t.TimestampType,
}
_NEEDED = {"json": ("msgspec", "spark"), "avro": ("fastavro", "avro"), "protobuf": ("google.protobuf", "protobuf")}
_WAY_OUT = (
    "Set it back, or let `maintain --values {}` make the table's values again by the setting; for both side by side, "
    "send messages of the new form to another topic"
)
_WAY_OUT_OF_A_RUN = (
    "The run keeps that: let `maintain --values {}` make the table's values by the run's setting, then reconcile; "
    "after that they can be made by another one"
)


class UnfitTable(TypeChanged):
    """A topic's table has values of another type than the setting says, which may be one that a run has recorded."""

    def __init__(self, topic: str, differs: str, run_id: int | None = None) -> None:
        whose, way_out = ("", _WAY_OUT) if run_id is None else (f" of run {run_id}", _WAY_OUT_OF_A_RUN)
        super().__init__(f"topics.{topic}.value: {differs}{whose}. {way_out.format(topic)}")


def column_type(topic: str, setting: ValueSettings) -> t.DataType:
    """The type of the values; UsageError if the setting cannot be used."""
    try:
        _refuse_missing(setting)
        found = _type(setting)
        _refuse_names(found)
    except ValueError as error:
        raise UsageError(f"topics.{topic}.value.schema: {error}") from error
    return found


def _refuse_missing(setting: ValueSettings) -> None:
    module, extra = _NEEDED.get(setting.format or "", ("", ""))
    try:
        is_there = not module or find_spec(module) is not None
    except ModuleNotFoundError:  # of a module's package
        is_there = False
    if not is_there:
        raise ValueError(f"format {setting.format} needs a library: pip install 'halfop[{extra}]', on executors, too")


def _type(setting: ValueSettings) -> t.DataType:
    schema, message = setting.schema_ or "", setting.message or ""
    if setting.format == "text":
        return t.StringType()
    if setting.format == "json":
        return _of_kind(parsed(schema))
    found: t.DataType = import_module(f"halfop.values.{setting.format}_bodies").column_type(schema, message)
    return found


def _of_kind(kind: Kind) -> t.DataType:
    if kind.name == "STRUCT":
        return t.StructType([t.StructField(name, _of_kind(of)) for name, of in kind.fields])
    if kind.name == "ARRAY":
        return t.ArrayType(_of_kind(kind.parts[0]))
    if kind.name == "MAP":
        return t.MapType(t.StringType(), _of_kind(kind.parts[0]))
    return t.DecimalType(kind.precision, kind.scale) if kind.name == "DECIMAL" else _SIMPLE[kind.name]()


def _refuse_names(kind: t.DataType) -> None:
    if isinstance(kind, t.StructType):
        refuse_names(kind.names)
        for field in kind:
            _refuse_names(field.dataType)
    elif isinstance(kind, t.ArrayType):
        _refuse_names(kind.elementType)
    elif isinstance(kind, t.MapType):
        _refuse_names(kind.valueType)


def form_of(
    topic: str, setting: ValueSettings, table: TableSpec, run_id: int | None = None
) -> tuple[TableSpec, Reading]:
    """The form that a topic's table gets by a setting, maybe a run's, and how bodies are read; UnfitTable if not."""
    wanted = column_type(topic, setting)
    try:
        kind = grown(table.struct[VALUE].dataType, wanted) if VALUE in table.names else wanted
    except TypeChanged as error:
        raise UnfitTable(topic, str(error), run_id) from None
    in_arrow = cast(pa.DataType, arrow_schema(t.StructType([t.StructField(VALUE, kind)])).field(VALUE).type)
    reading = Reading(setting.format or "", setting.schema_ or "", setting.message or "", in_arrow)
    return valued(table_of(OF_A_TOPIC), ddl(kind)), reading
