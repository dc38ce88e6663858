"""A tenth of all small histories on frames in memory: the rules decide what the model decides.

Without Delta, and the search for what earlier runs knew: `test_small_histories.py` plays whole runs of fewer.
"""

from __future__ import annotations

from itertools import islice

import fleet as f
import small_histories as s
from build import against_model as model
from pyspark.sql import SparkSession
from seeds import SEED


def test_a_tenth(spark: SparkSession) -> None:
    ships = f.fleet(s.histories(islice(s.up_to(5), SEED % 10, None, 10)))
    assert len(ships) > 23_000
    model.assert_agrees(spark, model.played_ships(s.SETTINGS, ships))
