"""The rules read a second time: each of their lines as cases, in their order, tried on frames in memory.

A run costs the same whatever it decides, so the cases of a section share one, each with a broker of its own.
`test_rules_written` takes them the whole way through landing and Delta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import model as m
import pytest
from build.cases_of_lines import OBSERVED, RULES, TIMES
from build.one_look import ONE_LOOK
from build.rule_case import Case, Outcome, by_the_model, check, in_memory, named
from build.rule_words import NOW
from build.stories import STORIES
from build.unlike_the_broker import RUNS, STORY_RULES, UNLIKE_THE_BROKER
from pyspark.sql import SparkSession

WATCHING = replace(RULES, ask=False)


@pytest.fixture(scope="module")
def looked(frames: SparkSession) -> Outcome:
    return in_memory(frames, ONE_LOOK, RULES, [NOW])


@pytest.fixture(scope="module")
def told(frames: SparkSession) -> Outcome:
    return in_memory(frames, [*UNLIKE_THE_BROKER, *STORIES], STORY_RULES, RUNS)


@pytest.fixture(scope="module")
def watched(frames: SparkSession) -> Outcome:
    return in_memory(frames, OBSERVED, WATCHING, [NOW])


@pytest.mark.parametrize("case", ONE_LOOK, ids=named)
def test_one_look(looked: Outcome, case: Case) -> None:
    check(looked, case)


@pytest.mark.parametrize(("case", "times"), TIMES, ids=str)
def test_check_times_that_landed(looked: Outcome, case: Case, times: int) -> None:
    assert looked.times[case.name] == [times]


@pytest.mark.parametrize("case", UNLIKE_THE_BROKER, ids=named)
def test_unlike_the_broker(told: Outcome, case: Case) -> None:
    check(told, case)


@pytest.mark.parametrize("case", STORIES, ids=named)
def test_runs_one_after_the_other(told: Outcome, case: Case) -> None:
    check(told, case)


@pytest.mark.parametrize("case", OBSERVED, ids=named)
def test_watching_asks_nobody_and_discards_only_at_its_end(watched: Outcome, case: Case) -> None:
    check(watched, case)


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("a wait never counts as a check", [0, 0, 0, 0, 0, -1]),
        ("raised within its own immunity without asking: never checked", [1, 1, 2, 3, 3, -1]),
        ("nothing is put back", [1, 1, 2, 3, 3, -1]),
        ("resumed", [1, 1, 1, 1, 1, -1]),
        ("asked as often as it may be", [1, 1, 2, 2, -1, -1]),
    ],
)
def test_check_times_run_by_run(told: Outcome, name: str, times: list[int]) -> None:
    assert told.times[name] == times


@pytest.mark.parametrize(
    ("cases", "rules", "runs"),
    [
        (ONE_LOOK, RULES, [NOW]),
        ([*UNLIKE_THE_BROKER, *STORIES], STORY_RULES, RUNS),
        (OBSERVED, WATCHING, [NOW]),
    ],
    ids=["one look", "stories", "watching"],
)
def test_the_reference_model_says_the_same(cases: Sequence[Case], rules: m.Settings, runs: Sequence[int]) -> None:
    wanted = {
        case.name: ([case.wanted] if isinstance(case.wanted, str) else list(case.wanted), sorted(case.rejects))
        for case in cases
    }
    assert {case.name: by_the_model(case, rules, runs) for case in cases} == wanted
