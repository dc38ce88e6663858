"""How the type of values may grow, and what is refused."""

from __future__ import annotations

import pytest
from halfop.frame.errors import UsageError
from halfop.settings.ddl import parsed
from halfop.values.columns import UnfitTable, column_type, form_of
from halfop.warehouse.growth import TypeChanged, ddl, grown, lacking
from halfop.warehouse.schema import table, valued
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from values.readings import values_setting


def kind(text: str) -> DataType:
    return column_type("orders", values_setting("json", text))


@pytest.mark.parametrize(
    ("known", "wanted", "found"),
    [
        ("a INT", "a INT", "a INT"),
        ("a INT", "b STRING", "a INT, b STRING"),
        ("a INT, b INT", "b INT", "a INT, b INT"),
        ("s STRUCT<a: INT>", "s STRUCT<b: INT, a: INT>", "s STRUCT<a: INT, b: INT>"),
        ("l ARRAY<STRUCT<a: INT>>", "l ARRAY<STRUCT<b: INT>>", "l ARRAY<STRUCT<a: INT, b: INT>>"),
        ("m MAP<STRING, STRUCT<a: INT>>", "m MAP<STRING, STRUCT<b: INT>>", "m MAP<STRING, STRUCT<a: INT, b: INT>>"),
    ],
)
def test_fields_may_come(known: str, wanted: str, found: str) -> None:
    assert grown(kind(known), kind(wanted)) == kind(found)


@pytest.mark.parametrize(
    ("known", "wanted", "said"),
    [
        ("a INT", "a BIGINT", "value.a is INT there, and BIGINT by the setting"),
        ("a DECIMAL(9,2)", "a DECIMAL(9,3)", "value.a is DECIMAL(9,2) there, and DECIMAL(9,3) by the setting"),
        ("s STRUCT<a: INT>", "s STRUCT<a: STRING>", "value.s.a is INT there, and STRING by the setting"),
        ("l ARRAY<INT>", "l ARRAY<STRING>", "value.l[...] is INT there, and STRING by the setting"),
        ("l ARRAY<INT>", "l STRUCT<a: INT>", "value.l is ARRAY there, and STRUCT by the setting"),
        ("id INT", "Id INT", "value.id is value.Id by the setting, and a table's names have no case"),
    ],
)
def test_a_type_may_not_change(known: str, wanted: str, said: str) -> None:
    with pytest.raises(TypeChanged) as refused:
        grown(kind(known), kind(wanted))
    assert str(refused.value) == said


def test_the_way_out_is_said(frames: SparkSession) -> None:
    with pytest.raises(UnfitTable, match="maintain --values orders"):
        form_of("orders", values_setting("text"), valued(table("real_topic"), "STRUCT<a: INT>"))


def test_what_a_table_lacks(frames: SparkSession) -> None:
    has = valued(table("real_topic"), "STRUCT<a: INT, l: ARRAY<STRUCT<b: INT>>, m: MAP<STRING, STRUCT<c: INT>>>")
    more = "a INT, n STRING, l ARRAY<STRUCT<b: INT, d: DATE>>, m MAP<STRING, STRUCT<c: INT, e: INT>>"
    spec = valued(table("real_topic"), ddl(grown(has.struct["value"].dataType, kind(more))))
    assert lacking(has.struct, spec) == [
        "value.`l`.element.`d` DATE",
        "value.`m`.value.`e` INT",
        "value.`n` STRING",
    ]
    assert lacking(spec.struct, spec) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a field"),
        ("a", "a: expected a type"),
        ("a INTT", "a: expected a type"),
        ("a VARIANT", "a: expected a type"),
        ("a INT b INT", "expected `,` or the end, not 'b'"),
        ("a ARRAY<INT", "expected `>`, not 'the end'"),
        ("a MAP<INT, INT>", "expected MAP<STRING"),
        ("a DECIMAL(39,0)", "expected DECIMAL"),
        ("a DECIMAL(0,0)", "expected DECIMAL"),
        ("a DECIMAL(5,6)", "expected DECIMAL"),
        ("a INT, A INT", "the fields a and A are one"),
        ("`a b` INT", "no field of the name 'a b'"),
        ("s STRUCT<>", "expected a field"),
    ],
)
def test_what_is_no_schema(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        parsed(text)


def test_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfop.values.columns.find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"needs a library: pip install 'halfop\[avro\]'"):
        column_type("orders", values_setting("avro", '{"type": "record", "name": "R", "fields": []}'))
