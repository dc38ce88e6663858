"""A sixtieth of all small histories on frames in memory: the rules decide what the model decides.

Without Delta, and the search for what earlier runs knew: `test_small_histories.py` plays whole runs of fewer.
"""

from __future__ import annotations

from itertools import islice

import pytest
from halfop.warehouse.session import session_settings
from model import fleet as f
from model import small_histories as s
from pyspark.sql import SparkSession
from support.rules import against_model as model
from support.seeds import SEED


# No multiples of what the enumeration repeats in: three runs, two outcomes, and so on.
@pytest.mark.parametrize(
    "every", [pytest.param(61, marks=pytest.mark.thorough), pytest.param(19, marks=pytest.mark.slow)]
)
def test_every_so_many(spark: SparkSession, every: int) -> None:
    """There are enough rows here that compiling expressions pays."""
    ships = f.fleet(s.history(*each) for each in islice(s.up_to(5), SEED % every, None, every))
    assert len(ships) > 230_000 // every
    assert any(row.reason == "FORGOTTEN_BY_BROKER" for ship in ships for row in ship.played.model.discards)
    with session_settings(spark, {"spark.sql.codegen.factoryMode": "FALLBACK"}):
        model.assert_agrees(spark, model.played_ships(s.SETTINGS, ships))
