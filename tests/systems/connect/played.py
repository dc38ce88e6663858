"""Histories in a session of Spark Connect. test_connect.py starts these in a process of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from halfop.warehouse.by_spark import SparkWarehouse
from model import fleet as f
from model import reference as m
from model.strategies import START, Charter, Phase, copied_histories
from pyspark.sql import SparkSession

pytestmark = pytest.mark.connect
MINUTE = 60_000
PHASES = (Phase(START + 7_000, (START + 2 * MINUTE,), (START + 2 * MINUTE,)),)
CHARTER = Charter(m.Settings(check_max=2, file_reserved_time=60 * MINUTE), PHASES, START + 10 * MINUTE)


@pytest.mark.parametrize("seed", [7, 8])
def test_runs_decide_what_the_model_decides(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    ships = f.fleet(f.generated(copied_histories(CHARTER), 12, seed))
    f.assert_agrees(SparkWarehouse(spark, str(tmp_path / "warehouse")), CHARTER, ships)
