"""Parquet files to typed rows. What a file's schema says is checked as a whole, nulls and ranges row by row."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from halfop.errors import InputRefused
from halfop.landing import problems
from halfop.landing.fields import STRINGS, Field, fields, known_names, nearest
from halfop.landing.sources import InputFile
from halfop.landing.values import epoch_millis, in_range, known_years

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


def file_schema(spark: SparkSession, file: InputFile) -> StructType:
    return _reader(spark).parquet(file.path).schema


def check_schema(file: InputFile, schema: StructType) -> None:
    """Refuses a file whose columns cannot be half or op rows, however its rows are."""
    wrong = [text for field in fields(file.kind) if (text := _schema_problem(field, schema))]
    if wrong:
        raise InputRefused(file.shown, None, "; ".join(wrong), "columns are as in the table; nothing has landed")


def unknown_names(schema: StructType, kind: str) -> set[str]:
    return set(schema.names) - set(known_names(kind))


def _schema_problem(field: Field, schema: StructType) -> str | None:
    if field.name not in schema.names:
        return f"no column {field.name}" + _instead(field, schema) if field.required else None
    found = schema[field.name].dataType.simpleString()
    fitting = _fitting(field)
    if found in fitting or (found == _ALL_NULL and not field.required):
        return None
    return f"column {field.name} is {found.upper()}, expected {' or '.join(fitting).upper()}"


def _instead(field: Field, schema: StructType) -> str:
    close = nearest(field.name, unknown_names(schema, "half") | unknown_names(schema, "op"))
    return f" (is it {close}?)" if close else ""


def _fitting(field: Field) -> tuple[str, ...]:
    more = ("map<bigint,string>", "map<int,string>") if field.name == "outcomes" else ()
    return _FITTING[field.type] + more


def read_rows(spark: SparkSession, paths: Sequence[str], schema: StructType, kind: str) -> DataFrame:
    """Rows of files of one schema: the columns of `kind`, `problem` where the row is not good, and the place."""
    rows = _reader(spark).schema(schema).parquet(*paths)
    place = {
        "file": F.col("_metadata.file_path"),
        "block": F.lit(None).cast("bigint"),
        "place": F.col("_metadata.row_index"),
        "unknown": F.lit(None).cast("array<string>"),
    }
    typed = {f.name: _value(f, schema) for f in fields(kind)}
    found = problems.first([_problem(f, schema) for f in fields(kind) if f.name in schema.names])
    columns = typed | {"problem": found} | place
    return rows.select(*[column.alias(name) for name, column in columns.items()])


def _reader(spark: SparkSession) -> DataFrameReader:
    return spark.read.option("recursiveFileLookup", "true").option("ignoreCorruptFiles", "false")


def _value(field: Field, schema: StructType) -> Column:
    if field.name not in schema.names:
        return F.lit(None).cast(field.type)
    raw, found = F.col(f"`{field.name}`"), schema[field.name].dataType.simpleString()
    if found == _ALL_NULL:
        return F.lit(None).cast(field.type)
    if field.type == "TIMESTAMP":
        return epoch_millis(raw) if found == "bigint" else known_years(raw.cast("timestamp"))
    if field.type == STRINGS:
        strings = raw.cast("map<string,string>")
        return F.when(~F.exists(F.map_values(strings), lambda value: value.isNull()), strings)
    return in_range(field, raw.try_cast(field.type)) if field.type in ("INT", "BIGINT") else raw


def _problem(field: Field, schema: StructType) -> Column:
    raw = F.col(f"`{field.name}`")
    unfit = problems.unfit(_reason(field), field, F.to_json(F.struct(raw)))
    if field.type in ("STRING", "BOOLEAN", "BINARY"):
        no_fit = F.lit(None).cast("struct<reason:string,detail:string>")
    else:
        no_fit = F.when(raw.isNotNull() & _value(field, schema).isNull(), unfit)
    return F.when(raw.isNull(), problems.null_value(field)).otherwise(no_fit) if field.required else no_fit


def _reason(field: Field) -> str:
    if field.type == "TIMESTAMP":
        return problems.BAD_TIME
    return problems.WRONG_TYPE if field.type == STRINGS else problems.OUT_OF_RANGE
