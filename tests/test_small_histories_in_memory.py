"""A tenth of all small histories on frames in memory: the rules decide what the model decides.

Without Delta, and the search for what earlier runs knew: `test_small_histories.py` plays whole runs of fewer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import fleet as f
import pytest
import small_histories as s
from build import against_model as model
from pyspark.sql import SparkSession
from seeds import SEED


@pytest.fixture
def compiling(spark: SparkSession) -> Iterator[SparkSession]:
    """Here expressions have enough rows that compiling them pays."""
    name = "spark.sql.codegen.factoryMode"
    before = spark.conf.get(name)
    spark.conf.set(name, "FALLBACK")
    yield spark
    spark.conf.set(name, before)  # type: ignore[arg-type]


def test_a_tenth(compiling: SparkSession) -> None:
    ships = f.fleet(s.history(*each) for each in islice(s.up_to(5), SEED % 10, None, 10))
    assert len(ships) > 23_000
    model.assert_agrees(compiling, model.played_ships(s.SETTINGS, ships))
