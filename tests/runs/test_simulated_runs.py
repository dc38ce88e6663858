"""Runs and landings under every fault at once, over tables in memory: histories that follow from a seed.

`bench/run simulated --runs` plays more of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from halfop.frame.errors import TransientError
from model import reference as m
from pyspark.sql import SparkSession
from support import rows as r
from support.rules.rule_words import HOUR, NOW, half
from support.seeds import SEED
from support.simulated_runs.memory import Calls, MemoryWarehouse
from support.simulated_runs.planted import PLANTED
from support.simulated_runs.world import Sessions, fails, history, play

# Planted mistakes, and seeds that find them.
QUICK = {"decisions are committed without a marker": 0, "a run opens while another driver's is open": 0}


@pytest.fixture(scope="module")
def sessions(spark: SparkSession) -> Sessions:
    return Sessions(spark)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    """What a run warns of is what a simulation does."""
    logging.getLogger("halfop").setLevel(logging.CRITICAL)


@pytest.mark.parametrize(
    "seeds", [1, pytest.param(10, marks=pytest.mark.thorough), pytest.param(100, marks=pytest.mark.slow)]
)
def test_whatever_fails(sessions: Sessions, seeds: int) -> None:
    first = Random(SEED).randrange(1 << 32)
    for seed in range(first, first + seeds):
        play(sessions, seed, history(seed))


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_mistake_is_found(sessions: Sessions, name: str) -> None:
    with PLANTED[name]():
        assert fails(sessions, QUICK[name], history(QUICK[name]))


@pytest.mark.parametrize("name", PLANTED)
def test_each_mistake_can_be_planted(name: str) -> None:
    """Its text is still in the code; `bench/run simulated --runs --planted` looks for a seed that finds it."""
    with PLANTED[name]():
        pass


class _LateOnce(Calls):
    """The next look for a table's version finds the one before."""

    def __init__(self) -> None:
        self._looks, self.at = "", ""

    def enter(self, verb: str, name: str) -> None:
        self._looks = name if verb == "version" else ""

    def is_late(self, name: str) -> bool:
        if name != self._looks or name != self.at:
            return False
        self.at = ""
        return True


@pytest.mark.parametrize("name", ["decisions", "landing_progress"])
def test_a_table_that_is_before_what_a_run_has_seen_is_refused(spark: SparkSession, name: str) -> None:
    """Else the run would forget what the last one left open, and a later one read twice what has landed."""
    calls = _LateOnce()
    warehouse = MemoryWarehouse(spark, "memory:/warehouse", calls=calls)
    for offset in (1, 2):
        r.land(warehouse, [half(offset=offset)], [], NOW, {("b", 0): NOW})
    r.run(warehouse, m.Settings(), NOW + 1)
    calls.at = name
    with pytest.raises(TransientError, match=f"{name} ends at version .*, but run 1 has seen version"):
        r.run(warehouse, m.Settings(), NOW + 2)
    assert r.run(warehouse, m.Settings(), NOW + 2).extra["open_messages"] == 2


def test_so_it_is_between_two_slices(spark: SparkSession) -> None:
    """The table is there when the first slice looks, without a row; the second one looks next."""
    calls = _LateOnce()
    warehouse = MemoryWarehouse(spark, "memory:/warehouse", calls=calls)
    r.land(warehouse, [half(offset=n) for n in range(1, 5)], [], NOW, {("b", 0): NOW})
    calls.at = "decisions"
    with pytest.raises(TransientError, match="decisions ends at version 0, but run 1 has seen version 1"):
        r.run(warehouse, m.Settings(), NOW + 1, max_rows=2)
    assert r.run(warehouse, m.Settings(), NOW + 1, max_rows=2).extra["open_messages"] == 4


class _LandsMeanwhile(Calls):
    """Somebody lands after a run has pinned the progress, and before it pins the half messages."""

    def __init__(self) -> None:
        self.lands: Callable[[], None] | None = None
        self._has_pinned = False

    def enter(self, verb: str, name: str) -> None:
        self._has_pinned |= (verb, name) == ("version", "landing_progress")
        if self.lands and self._has_pinned and (verb, name) == ("version", "half_messages"):
            lands, self.lands = self.lands, None
            lands()


def test_a_queue_that_begins_to_land_while_a_run_pins_has_progress(spark: SparkSession) -> None:
    """Its op log is not known to have landed, so that the run neither asks nor discards."""
    calls = _LandsMeanwhile()
    warehouse = MemoryWarehouse(spark, "memory:/warehouse", calls=calls)
    r.land(warehouse, [half(offset=1)], [], NOW, {("b", 1): NOW})
    of_log = {"broker_name": "b", "topic": "commitlog", "queue_id": 0, "next_offset": 0, "source": "FILES"}
    r.append(warehouse, "landing_progress", [of_log])
    other = replace(warehouse, calls=Calls())

    def lands() -> None:
        r.append(other, "landing_progress", r.progress_cells([], NOW, {("b", 0): None}, {}, {}))
        late = replace(half(offset=7, age=100 * HOUR), broker="b")
        r.append(other, "half_messages", [r.half_cells(late, NOW)])

    calls.lands = lands
    assert r.run(warehouse, m.Settings(), NOW + 1).run_id == 1
    found = {row.key: (row.decision, row.reason) for row in r.decisions(warehouse, 1)}
    assert found["b", 0, 7] == ("WAIT", "FRESH")
    assert calls.lands is None
