"""Typed rows from Parquet files. A file's schema is checked as a whole, nulls and ranges row by row."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType

from halfop.frame.errors import InputRefused
from halfop.frame.nearest import nearest
from halfop.landing.columns.fields import NEAR, STRINGS, Field, fields, known_names
from halfop.landing.columns.values import at_least_zero, epoch_millis, known_years
from halfop.landing.files import problems
from halfop.landing.files.sources import InputFile
from halfop.warehouse.sql import literal

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
    """Raises InputRefused for a file whose columns cannot be those of half or op rows."""
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
    return f"column {field.name} is {found.upper()}, expected {' or '.join(each.upper() for each in fitting)}"


def _instead(field: Field, schema: StructType) -> str:
    close = nearest(field.name, unknown_names(schema, "half") | unknown_names(schema, "op"), NEAR)
    return f" (is it {close}?)" if close else ""


def _fitting(field: Field) -> tuple[str, ...]:
    more = ("map<bigint,string>", "map<int,string>") if field.name == "outcomes" else ()
    return _FITTING[field.type] + more


def read_rows(spark: SparkSession, paths: Sequence[str], schema: StructType, kind: str) -> DataFrame:
    """Rows of files of one schema: the columns of `kind`, `problem` if the row is not good, and the place."""
    rows = _reader(spark).schema(schema).parquet(*paths)
    found = problems.first([_problem(f, schema) for f in fields(kind) if f.name in schema.names])
    return rows.selectExpr(
        *(f"{_value(f, schema)} AS {f.name}" for f in fields(kind)),
        f"{found} AS problem",
        "CAST(NULL AS ARRAY<STRING>) AS unknown",
        "_metadata.file_path AS file",
        "CAST(NULL AS BIGINT) AS block",
        "_metadata.row_index AS place",
    )


def _reader(spark: SparkSession) -> DataFrameReader:
    return spark.read.option("recursiveFileLookup", "true").option("ignoreCorruptFiles", "false")


def _found(field: Field, schema: StructType) -> str:
    return schema[field.name].dataType.simpleString() if field.name in schema.names else _ALL_NULL


def _value(field: Field, schema: StructType) -> str:
    name, found = field.name, _found(field, schema)
    if found == _ALL_NULL:
        return f"CAST(NULL AS {field.type})"
    if field.type == "TIMESTAMP":
        return epoch_millis(name) if found == "bigint" else known_years(f"CAST({name} AS TIMESTAMP)")
    if field.type == STRINGS:
        strings = f"CAST({name} AS {STRINGS})"
        return f"CASE WHEN NOT exists(map_values({strings}), each -> each IS NULL) THEN {strings} END"
    if field.type not in ("INT", "BIGINT"):
        return name
    number = f"try_cast({name} AS {field.type})"
    return at_least_zero(number) if field.not_negative else number


def _problem(field: Field, schema: StructType) -> str:
    name = field.name
    null = f"WHEN {name} IS NULL THEN {problems.null_value(field)}" if field.required else ""
    unfit = problems.unfit(_reason(field), field, f"to_json(struct({name}))")
    return f"CASE {null} WHEN {name} IS NOT NULL AND {_value(field, schema)} IS NULL THEN {unfit} END"


def _reason(field: Field) -> str:
    reasons = {"TIMESTAMP": problems.BAD_TIME, STRINGS: problems.WRONG_TYPE}
    return literal(reasons.get(field.type, problems.OUT_OF_RANGE))
