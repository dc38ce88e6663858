"""A twentieth of all small histories on frames in memory: the rules decide what the model decides.

Without Delta, and the search for what earlier runs knew: `test_small_histories.py` plays whole runs of fewer.
"""

from __future__ import annotations

from itertools import islice

from halfop.warehouse.session import session_settings
from model import fleet as f
from model import small_histories as s
from pyspark.sql import SparkSession
from support.rules import against_model as model
from support.seeds import SEED


def test_a_twentieth(spark: SparkSession) -> None:
    """There are enough rows here that compiling expressions pays."""
    ships = f.fleet(s.history(*each) for each in islice(s.up_to(5), SEED % 20, None, 20))
    assert len(ships) > 11_500
    with session_settings(spark, {"spark.sql.codegen.factoryMode": "FALLBACK"}):
        model.assert_agrees(spark, model.played_ships(s.SETTINGS, ships))
