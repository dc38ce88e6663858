"""The table of cases for an op message's body."""

from __future__ import annotations

import pyarrow as pa
import pytest
from build.op_bodies import BODIES, NUMBERS
from chispa import assert_df_equality
from halfop.landing.columns.op_items import half_offsets, items_of
from halfop.warehouse.in_memory import frame_of
from pyspark.sql import SparkSession

RAW = (
    "queue_offset BIGINT, item INT, tag STRING, body STRING, half_offset BIGINT, outcome STRING, "
    "outcomes MAP<STRING,STRING>"
)
SPLIT = "queue_offset BIGINT, item INT, body STRING, half_offset BIGINT, outcome STRING"


def test_half_offsets_of_items_texts() -> None:
    assert half_offsets(pa.array(NUMBERS)).to_pylist() == list(NUMBERS.values())


def test_null_names_no_offset() -> None:
    assert half_offsets(pa.array([None], pa.string())).to_pylist() == [None]


@pytest.mark.parametrize("here", [True, False])
def test_items(spark: SparkSession, here: bool) -> None:
    """Items of rows in memory, and of others, in two tasks."""
    raw = [
        (at, item, tag, body, offset, outcome, outcomes)
        for at, ((body, tag, item, offset, outcome, outcomes), _) in enumerate(BODIES)
    ]
    expected = [(at, *row) for at, (_, rows) in enumerate(BODIES) for row in rows]
    rows = spark.createDataFrame(raw, RAW)
    in_memory = frame_of(spark, rows.toArrow())
    made = items_of(in_memory if here else rows.repartitionByRange(2, "queue_offset"))
    wanted = spark.createDataFrame([(at, *row) for at, *row in expected], SPLIT)
    assert_df_equality(made.select(*wanted.columns), wanted, ignore_nullable=True, ignore_row_order=True)
