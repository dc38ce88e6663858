"""Power cuts over a disk that lies: whatever it kept, the next start is right, or refuses and can be repaired."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from lying_disk.checks import GOOD, Checker, Recorded, recorded
from lying_disk.crashes import cuts
from lying_disk.recorder import ALL
from lying_disk.shim import NoCompiler
from pyspark.sql import SparkSession
from seeds import SEED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_CUTS = 10  # of each history


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    try:
        found = recorded(tmp_path_factory.mktemp("lying disk"), *ALL)
    except NoCompiler as error:
        pytest.skip(str(error))
    return {each.history.name: each for each in found}


@pytest.mark.parametrize("name", ALL)
def test_a_cut_loses_nothing_that_was_promised(
    spark: SparkSession, histories: dict[str, Recorded], tmp_path: Path, name: str, logging_as_before: None
) -> None:
    of = histories[name]
    checker = Checker(spark, of, tmp_path)
    wrong = {
        str(cut): found
        for cut in cuts(of.recording, _CUTS, Random(SEED))
        if (found := checker.check(cut)).kind not in GOOD
    }
    assert not wrong
