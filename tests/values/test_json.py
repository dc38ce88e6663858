"""Bodies of JSON are read as a slow and plain reading does, and no reason shows what they hold."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from halfop.settings.ddl import Kind, parsed
from halfop.values.columns import form_of
from halfop.values.reading import Reading
from halfop.warehouse.schema import table, valued
from pyspark.sql import SparkSession
from support.seeds import SEED

from values.json_bodies import SCHEMA, bodies
from values.json_reference import Unfit, value_of
from values.readings import reading_of, values_setting

KIND = parsed(SCHEMA)


def read(reading: Reading, given: list[bytes | None]) -> list[tuple[object, str | None]]:
    values, reasons = reading.values(pa.array(given, pa.binary()))
    return list(zip(values.to_pylist(maps_as_pydicts="lossy"), reasons.to_pylist(), strict=True))


def expected(body: bytes, kind: Kind) -> object:
    try:
        return value_of(body, kind)
    except Unfit:
        return None


def test_generated_bodies_are_read_as_a_plain_reading_does() -> None:
    given = list(bodies(random.Random(SEED), KIND, 10_000))
    found = read(reading_of("json", SCHEMA), [*given])
    unlike = [
        (body, value, reason)
        for body, (value, reason) in zip(given, found, strict=True)
        if value != expected(body, KIND) or (value is None) != (reason is not None)
    ]
    assert unlike == []
    fit = sum(reason is None for _, reason in found)
    assert 3_000 < fit < 8_000


HELD = "jane.doe@example.org"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f'{{"id":"{HELD}"}}', "Expected `int`, got `str` - at `$.id`"),
        (f'{{"id":1,"counts":{{"{HELD}":"x"}}}}', "Expected `int`, got `str` - at `$.counts[...]`"),
        (f'{{"items":[{{}},{{"n":"{HELD}"}}]}}', "Expected `int`, got `str` - at `$.items[1].n`"),
        (
            f'{{"at":"{HELD}"}}',
            "Expected `TIMESTAMP`: epoch milliseconds, or a time as 2026-01-31T09:30:00Z - at `$.at`",
        ),
        (f'{{"price":"{HELD}"}}', "Expected `DECIMAL(9,2)`, got `str` - at `$.price`"),
        ('{"price":1.234}', "Expected `DECIMAL(9,2)` - at `$.price`"),
        ('{"id":9223372036854775808}', "Expected `int` <= 9223372036854775807 - at `$.id`"),
        (f'{{"day":"{HELD}"}}', "Invalid RFC3339 encoded date - at `$.day`"),
        (f'{{"raw":"{HELD}"}}', "Invalid base64 encoded string - at `$.raw`"),
        (f'["{HELD}"]', "Expected `object`, got `array`"),
        (f'{{"name":"{HELD}"', "no JSON: Input data was truncated"),
        (HELD, "no JSON: invalid character (byte 0)"),
        ("[" * 9_999, "nested more than 200 deep"),
    ],
)
def test_a_reason_names_the_place_and_nothing_that_the_body_holds(body: str, reason: str) -> None:
    ((value, found),) = read(reading_of("json", SCHEMA), [body.encode()])
    assert (value, found) == (None, reason)


def test_a_message_without_a_body_has_no_value() -> None:
    assert read(reading_of("json", "id INT"), [None, b"{}"]) == [(None, "there is no body"), ({"id": None}, None)]


def test_a_table_may_have_more_fields_than_the_setting(frames: SparkSession) -> None:
    _, reading = form_of(
        "orders", values_setting("json", "b INT"), valued(table("real_topic"), "STRUCT<a: INT, b: INT>")
    )
    assert read(reading, [b'{"a": 1, "b": 2}']) == [({"a": None, "b": 2}, None)]
