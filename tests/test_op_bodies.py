"""The table of cases for an op message's body."""

from __future__ import annotations

import pytest
from build.op_bodies import BODIES, NUMBERS
from chispa import assert_df_equality
from halfop.landing.columns.op_items import half_offset, items
from pyspark.sql import Row, SparkSession

RAW = (
    "queue_offset BIGINT, item INT, tag STRING, body STRING, half_offset BIGINT, outcome STRING, "
    "outcomes MAP<STRING,STRING>"
)
SPLIT = "queue_offset BIGINT, item INT, body STRING, half_offset BIGINT, outcome STRING"


def test_half_offset_of_an_items_text(spark: SparkSession) -> None:
    texts = spark.createDataFrame(list(NUMBERS.items()), "text STRING, offset BIGINT")
    assert_df_equality(texts.withColumn("offset", half_offset("text")), texts)


def test_null_names_no_offset(spark: SparkSession) -> None:
    assert spark.sql("SELECT CAST(NULL AS STRING) AS text").select(half_offset("text").alias("offset")).collect() == [
        Row(offset=None)
    ]


@pytest.mark.parametrize("partitions", [1, 2])
def test_items(spark: SparkSession, partitions: int) -> None:
    raw = [
        (at, item, tag, body, offset, outcome, outcomes)
        for at, ((body, tag, item, offset, outcome, outcomes), _) in enumerate(BODIES)
    ]
    expected = [(at, *row) for at, (_, rows) in enumerate(BODIES) for row in rows]
    made = items(spark.createDataFrame(raw, RAW).repartitionByRange(partitions, "queue_offset"))
    wanted = spark.createDataFrame([(at, *row) for at, *row in expected], SPLIT)
    assert_df_equality(made.select(*wanted.columns), wanted, ignore_nullable=True, ignore_row_order=True)
