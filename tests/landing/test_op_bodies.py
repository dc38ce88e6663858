"""The table of cases for an op message's body."""

from __future__ import annotations

import pyarrow as pa
from halfop.landing.fields import fields, half_offsets, items
from support.brokers.op_bodies import BODIES, NUMBERS

TYPES = {field.name: field.arrow for field in fields("op")}
NAMES = ("queue_offset", "item", "tag", "body", "half_offset", "outcome", "outcomes")
RAW = pa.schema([(name, TYPES[name]) for name in NAMES])
SPLIT = ("queue_offset", "item", "body", "half_offset", "outcome")


def test_half_offsets_of_items_texts() -> None:
    assert half_offsets(pa.array(NUMBERS)).to_pylist() == list(NUMBERS.values())


def test_null_names_no_offset() -> None:
    assert half_offsets(pa.array([None], pa.string())).to_pylist() == [None]


def test_items() -> None:
    raw = [
        dict(zip(RAW.names, (at, item, tag, body, offset, outcome, outcomes), strict=True))
        for at, ((body, tag, item, offset, outcome, outcomes), _) in enumerate(BODIES)
    ]
    made = items(pa.RecordBatch.from_pylist(raw, schema=RAW)).select(SPLIT).to_pylist()
    assert made == [dict(zip(SPLIT, (at, *row), strict=True)) for at, (_, rows) in enumerate(BODIES) for row in rows]
