"""JSON lines to typed rows. A value keeps its JSON type until checked: no number goes through a double."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from halfop.landing import problems
from halfop.landing.fields import STRINGS, Field, fields, known_names
from halfop.landing.values import epoch_millis, in_range, is_whole_number, iso_instant, whole_number

# A line is parsed inside a frame, because the parser itself ignores what follows the first object of a text.
_FRAME = "row MAP<STRING,VARIANT>, end INT, _unreadable STRING"
_STRICT = {
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "columnNameOfCorruptRecord": "_unreadable",
    "mode": "PERMISSIVE",
}


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
    """The columns of `kind`, `problem` where the line is not good, `unknown` names, and the place."""
    rows = lines.where(F.trim("value") != "").withColumn("row", _object())
    raw = {_raw(f): F.try_element_at("row", F.lit(f.name)) for f in fields(kind)}
    rows = rows.withColumns(raw)
    rows = rows.withColumns({_type(f): F.schema_of_variant(_raw(f)) for f in fields(kind) if f.type != STRINGS})
    typed = {f.name: _value(f) for f in fields(kind)}
    unread = F.when(F.col("row").isNull(), problems.problem(problems.UNREADABLE_LINE, *_unreadable()))
    found = problems.first([unread, *(_problem(f) for f in fields(kind))])
    rows = rows.withColumns(typed).withColumns({"problem": found, "unknown": _unknown(kind)})
    return rows.select(*typed, "problem", "unknown", "file", "block", "place")


def _object() -> Column:
    framed = F.concat(F.lit('{"row":'), F.col("value"), F.lit(',"end":0}'))
    parsed = F.from_json(framed, _FRAME, _STRICT)
    names = F.map_keys(parsed["row"])
    whole = parsed["_unreadable"].isNull() & parsed["end"].isNotNull()
    once = F.size(names) == F.size(F.array_distinct(names))
    return F.when(F.is_valid_utf8("value") & whole & once, parsed["row"])


def _unreadable() -> tuple[str | Column, ...]:
    return "found ", problems.shown(F.col("value")), ", expected one whole JSON object in UTF-8, each name once"


def _unknown(kind: str) -> Column:
    names = F.array_except(F.map_keys("row"), F.array(*[F.lit(name) for name in known_names(kind)]))
    return F.when(F.size(names) > 0, names)


def _raw(field: Field) -> str:
    return f"raw_{field.name}"


def _type(field: Field) -> str:
    return f"type_{field.name}"


def _text(field: Field) -> Column:
    """The value's text where it is a string or a whole number."""
    text = F.try_variant_get(_raw(field), "$", "string")
    return F.when(F.col(_type(field)).isin("STRING", "BIGINT"), text)


def _value(field: Field) -> Column:
    """The typed value; null where there is none or it does not fit."""
    if field.type == "STRING":
        return F.when(F.col(_type(field)) == "STRING", _text(field))
    if field.type == "BOOLEAN":
        return F.when(F.col(_type(field)) == "BOOLEAN", F.try_variant_get(_raw(field), "$", "boolean"))
    if field.type == "BINARY":
        return F.when(_is_base64(field), F.unbase64(_text(field)))
    if field.type == "TIMESTAMP":
        return F.coalesce(epoch_millis(whole_number(_text(field), "BIGINT")), iso_instant(_text(field)))
    if field.type == STRINGS:
        return _strings(field)
    return in_range(field, whole_number(_text(field), field.type))


def _is_base64(field: Field) -> Column:
    text = _text(field)
    return (F.col(_type(field)) == "STRING") & text.rlike(r"\A[A-Za-z0-9+/]*={0,2}\z") & (F.length(text) % 4 == 0)


def _strings(field: Field) -> Column:
    values = F.try_variant_get(_raw(field), "$", "map<string,variant>")
    all_strings = F.forall(F.map_values(values), lambda value: F.schema_of_variant(value) == "STRING")
    return F.when(all_strings, F.try_variant_get(_raw(field), "$", "map<string,string>"))


def _problem(field: Field) -> Column:
    raw, null = F.col(_raw(field)), F.is_variant_null(_raw(field))
    unfit = problems.unfit(_reason(field), field, F.to_json(raw))
    no_fit = F.when(F.col(field.name).isNull() & raw.isNotNull() & ~null, unfit)
    if not field.required:
        return no_fit
    return F.when(raw.isNull(), problems.missing(field)).when(null, problems.null_value(field)).otherwise(no_fit)


def _reason(field: Field) -> Column:
    wrong_type = F.lit(problems.WRONG_TYPE)
    if field.type in ("INT", "BIGINT"):
        return F.when(is_whole_number(_text(field)), F.lit(problems.OUT_OF_RANGE)).otherwise(wrong_type)
    if field.type == "TIMESTAMP":
        return F.when(_text(field).isNotNull(), F.lit(problems.BAD_TIME)).otherwise(wrong_type)
    if field.type == "BINARY":
        return F.when(F.col(_type(field)) == "STRING", F.lit(problems.BAD_BASE64)).otherwise(wrong_type)
    return wrong_type
