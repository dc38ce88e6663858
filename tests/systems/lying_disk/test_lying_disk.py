"""A disk that lies or fails: the next start is right, whatever a power cut kept, and whichever call failed once."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from support.seeds import SEED

from systems.lying_disk.checks import GOOD, Checker, Recorded, recorded
from systems.lying_disk.crashes import cuts
from systems.lying_disk.failed import GOOD as NOT_BAD
from systems.lying_disk.failed import trials
from systems.lying_disk.faults import FAILED, PLAYED
from systems.lying_disk.recorder import ALL
from systems.lying_disk.shim import NoCompiler

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


_TRIALS = 20  # of each


@pytest.mark.parametrize("name", ["gateway", *PLAYED])
def test_a_call_that_fails_once_is_said_and_harms_nothing(tmp_path: Path, name: str) -> None:
    try:
        with closing(trials(tmp_path / name, name, 1, SEED, FAILED)) as all_of_them:
            found = list(islice(all_of_them, _TRIALS))
    except NoCompiler as error:
        pytest.skip(str(error))
    assert any(trial["kind"] == "said" for trial in found)
    assert [trial for trial in found if trial["kind"] not in NOT_BAD] == []
