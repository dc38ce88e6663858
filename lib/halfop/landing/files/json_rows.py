"""Typed rows from JSON lines. A value keeps its JSON type until it is checked: no number goes through a double."""

from __future__ import annotations

import codecs
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from halfop.columns.values import is_whole_number_sql, whole_number_sql
from halfop.landing.columns.fields import STRINGS, Field, fields, known_names
from halfop.landing.columns.values import at_least_zero, epoch_millis, iso_instant
from halfop.landing.files import problems
from halfop.warehouse.sql import literal

# A line is parsed inside a frame, because the parser itself ignores what follows the first object of a text.
_FRAMED = """'{"row":' || value || ',"end":0}'"""
_PARSED = f"""from_json({_FRAMED}, 'row MAP<STRING,VARIANT>, end INT, _unreadable STRING', map(
    'mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '_unreadable',
    'allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false'))"""
_WHOLE = "is_valid_utf8(value) AND parsed._unreadable IS NULL AND parsed.end IS NOT NULL"
_EACH_NAME_ONCE = "size(parsed.row) = size(array_distinct(map_keys(parsed.row)))"
_BASE64 = r"r'\A[A-Za-z0-9+/]*={0,2}\z'"
_PLACE = ("file", "block", "place")


def lines_of(spark: SparkSession, contents: Mapping[str, bytes]) -> DataFrame:
    """Returns what `read_lines` returns, from bytes that are here, by the URIs of their files."""
    parts = [(uri, _split(content)) for uri, content in contents.items()]
    values = pa.array([line for _, lines in parts for line in lines], pa.binary())
    # Arrow must not look into them: a line that is not UTF-8 is a bad row, not an error
    values = pa.Array.from_buffers(pa.string(), len(values), values.buffers())
    files = pa.array([uri for uri, lines in parts for _ in lines], pa.string())
    places = pa.array([place for _, lines in parts for place in range(len(lines))], pa.int64())
    blocks = pa.array([0] * len(values), pa.int64())
    return spark.createDataFrame(pa.table({"value": values, "file": files, "block": blocks, "place": places}))


def _split(content: bytes) -> list[bytes]:
    """Lines as Spark's text reader cuts them."""
    lines = content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    return lines if lines[-1] else lines[:-1]


def read_lines(spark: SparkSession, paths: list[str]) -> DataFrame:
    """All lines, blank ones too, each with its place: rising within a block of a file."""
    text = spark.read.option("ignoreCorruptFiles", "false").option("recursiveFileLookup", "true").text(paths)
    return text.select(
        "value",
        F.col("_metadata.file_path").alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("place"),
    )


def typed_rows(lines: DataFrame, kind: str) -> DataFrame:
    """The columns of `kind`, `problem` if the line is not good, `unknown` names, and the place."""
    of_kind = fields(kind)
    scalars = [f for f in of_kind if f.type != STRINGS]
    names = [f.name for f in of_kind]
    parsed = lines.where("trim(value) != ''").selectExpr("*", f"{_PARSED} AS parsed")
    rows = parsed.selectExpr("value", *_PLACE, f"CASE WHEN {_WHOLE} AND {_EACH_NAME_ONCE} THEN parsed.row END AS row")
    raw = rows.selectExpr("*", *(f"try_element_at(row, '{f.name}') AS {_raw(f)}" for f in of_kind))
    types = raw.selectExpr("*", *(f"schema_of_variant({_raw(f)}) AS {_type(f)}" for f in scalars))
    texts = types.selectExpr("*", *(f"{_string_or_whole_number(f)} AS {_text(f)}" for f in scalars))
    values = texts.selectExpr("*", *(f"{_value(f)} AS {f.name}" for f in of_kind))
    return values.selectExpr(*names, f"{_first_problem(kind)} AS problem", f"{_unknown(kind)} AS unknown", *_PLACE)


def _first_problem(kind: str) -> str:
    expected = ", expected one whole JSON object in UTF-8, each name once"
    unreadable = problems.found(literal(problems.UNREADABLE_LINE), "value", "found ", expected)
    return problems.first([f"CASE WHEN row IS NULL THEN {unreadable} END", *map(_problem, fields(kind))])


def _unknown(kind: str) -> str:
    others = f"array_except(map_keys(row), array({', '.join(map(literal, known_names(kind)))}))"
    return f"CASE WHEN size({others}) > 0 THEN {others} END"


def _raw(field: Field) -> str:
    return f"raw_{field.name}"


def _type(field: Field) -> str:
    return f"type_{field.name}"


def _text(field: Field) -> str:
    return f"text_{field.name}"


def _string_or_whole_number(field: Field) -> str:
    return f"CASE WHEN {_type(field)} IN ('STRING', 'BIGINT') THEN try_variant_get({_raw(field)}, '$', 'string') END"


def _value(field: Field) -> str:
    """The typed value; null if there is none or it does not fit."""
    text, is_string = _text(field), f"{_type(field)} = 'STRING'"
    if field.type == "STRING":
        return f"CASE WHEN {is_string} THEN {text} END"
    if field.type == "BOOLEAN":
        return f"CASE WHEN {_type(field)} = 'BOOLEAN' THEN try_variant_get({_raw(field)}, '$', 'boolean') END"
    if field.type == "BINARY":
        return f"CASE WHEN {is_string} AND length({text}) % 4 = 0 AND {text} RLIKE {_BASE64} THEN unbase64({text}) END"
    if field.type == "TIMESTAMP":
        return f"coalesce({epoch_millis(whole_number_sql(text, 'BIGINT'))}, {iso_instant(text)})"
    if field.type == STRINGS:
        return _strings(field)
    number = whole_number_sql(text, field.type)
    return at_least_zero(number) if field.not_negative else number


def _strings(field: Field) -> str:
    values = f"map_values(try_variant_get({_raw(field)}, '$', 'map<string,variant>'))"
    all_strings = f"forall({values}, each -> schema_of_variant(each) = 'STRING')"
    return f"CASE WHEN {all_strings} THEN try_variant_get({_raw(field)}, '$', 'map<string,string>') END"


def _problem(field: Field) -> str:
    raw, null = _raw(field), f"is_variant_null({_raw(field)})"
    unfit = problems.unfit(_reason(field), field, f"to_json({raw})")
    no_fit = f"WHEN {field.name} IS NULL AND {raw} IS NOT NULL AND NOT {null} THEN {unfit}"
    if not field.required:
        return f"CASE {no_fit} END"
    absent = f"WHEN {raw} IS NULL THEN {problems.missing(field)} WHEN {null} THEN {problems.null_value(field)}"
    return f"CASE {absent} {no_fit} END"


def _reason(field: Field) -> str:
    wrong_type = literal(problems.WRONG_TYPE)
    if field.type in ("INT", "BIGINT"):
        return f"if({is_whole_number_sql(_text(field))}, {literal(problems.OUT_OF_RANGE)}, {wrong_type})"
    if field.type == "TIMESTAMP":
        return f"if({_text(field)} IS NOT NULL, {literal(problems.BAD_TIME)}, {wrong_type})"
    if field.type == "BINARY":
        return f"if({_type(field)} = 'STRING', {literal(problems.BAD_BASE64)}, {wrong_type})"
    return wrong_type
