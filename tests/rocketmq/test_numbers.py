"""Whole numbers: every form of reading them takes and refuses what Java's parseInt and parseLong do."""

from __future__ import annotations

import pytest
from halfop.columns.keys import whole_number
from halfop.rocketmq.buffers import parse_int, parse_long
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

LONG_MAX, INT_MAX = 2**63 - 1, 2**31 - 1

# text → the long that it is
LONGS = {
    "3": 3,
    "+3": 3,
    "-3": -3,
    "03": 3,
    "-0": 0,
    "000": 0,
    str(INT_MAX): INT_MAX,
    str(INT_MAX + 1): INT_MAX + 1,
    str(-INT_MAX - 1): -INT_MAX - 1,
    str(-INT_MAX - 2): -INT_MAX - 2,
    str(LONG_MAX): LONG_MAX,
    str(-LONG_MAX - 1): -LONG_MAX - 1,
    "0" * 30 + "7": 7,
    "-" + "0" * 30 + "7": -7,
    str(LONG_MAX + 1): None,
    str(-LONG_MAX - 2): None,
    "9" * 5000: None,
    " 3": None,
    "3 ": None,
    "3\n": None,
    "\n3": None,
    "3.0": None,
    "3e0": None,
    "3L": None,
    "0x3": None,
    "1_000": None,
    "+": None,
    "+-3": None,
    "": None,
    "abc": None,
    "\u0663": None,  # a digit, but not of ASCII
    None: None,
}
INTS = {text: n if n is not None and -INT_MAX - 1 <= n <= INT_MAX else None for text, n in LONGS.items()}


@pytest.mark.parametrize("text", LONGS)
def test_python(text: str | None) -> None:
    assert (parse_long(text), parse_int(text)) == (LONGS[text], INTS[text])


def test_columns(spark: SparkSession) -> None:
    texts = spark.createDataFrame([(text,) for text in LONGS], "text STRING")
    found = texts.select("text", whole_number(F.col("text"))).collect()
    assert [tuple(row) for row in found] == list(LONGS.items())
