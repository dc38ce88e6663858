"""The rules read a second time: each of their lines as cases, in their order, tried on frames in memory.

A run costs the same whatever it decides, so the cases of a section share one, each with a broker of its own.
`test_rules_written` takes them the whole way through landing and Delta.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from model import reference as m
from pyspark.sql import SparkSession
from support.rules.against_model import played_cases
from support.rules.cases_of_lines import LOST, LOST_RUNS, OBSERVED, RULES, TIMES
from support.rules.one_look import ONE_LOOK
from support.rules.rule_case import Case, Outcome, by_the_model, check, in_memory, named
from support.rules.rule_words import NOW
from support.rules.stories import STORIES
from support.rules.unlike_the_broker import RUNS, STORY_RULES, UNLIKE_THE_BROKER

WATCHING = replace(RULES, ask=False)
# By case, what a reject says to people.
DETAILS = {
    "garbage 'x'": "item 0, text x, outcome COMMIT, stored 2025-06-15 15:06:39",
    "a long text": f"item 0, text {'x' * 200}, outcome COMMIT, stored 2025-06-15 15:06:39",
    "no body": "item 0, text none, outcome COMMIT, stored 2025-06-15 15:06:39",
    "lowest offset": "item 0 names half offset 0, outcome COMMIT",
    "reused ['uniq_key']": "another message has this key: "
    '{"commit_log_offset":0,"store_timestamp":"2025-06-15T15:06:30.000Z","uniq_key":"other"}',
}
STORY_DETAILS = {"resumed while open": "resumed by tests at 2025-06-15 15:06:40"}


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


@pytest.fixture(scope="module")
def lost(frames: SparkSession) -> Outcome:
    return what_was_lost(frames)


def what_was_lost(frames: SparkSession) -> Outcome:
    cases, ranges = zip(*LOST, strict=True)
    return in_memory(frames, cases, RULES, LOST_RUNS, ranges)


@pytest.mark.parametrize("case", [case for case, _ in LOST], ids=named)
def test_what_a_broker_lost(lost: Outcome, case: Case) -> None:
    """The model knows nothing of lives."""
    check(lost, case)


@pytest.mark.parametrize("name", [*DETAILS, *STORY_DETAILS])
def test_what_a_reject_says(looked: Outcome, told: Outcome, name: str) -> None:
    assert (name, (DETAILS | STORY_DETAILS)[name]) in [*looked.details, *told.details]


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


SECTIONS: dict[str, tuple[Sequence[Case], m.Settings, Sequence[int]]] = {
    "looked": (ONE_LOOK, RULES, [NOW]),
    "told": ([*UNLIKE_THE_BROKER, *STORIES], STORY_RULES, RUNS),
    "watched": (OBSERVED, WATCHING, [NOW]),
}


@pytest.mark.process
@pytest.mark.parametrize("section", SECTIONS)
def test_the_reference_model_agrees_in_every_cell(section: str, request: pytest.FixtureRequest) -> None:
    """Check times, the last check, which op and which copy, and where a reject's row stands."""
    found, played = request.getfixturevalue(section), played_cases(*SECTIONS[section])
    assert [Counter(rows) for rows in found.rows] == played.decided
    assert found.rejects == played.rejected[-1]


@pytest.mark.parametrize(("cases", "rules", "runs"), SECTIONS.values(), ids=SECTIONS)
def test_the_reference_model_says_the_same(cases: Sequence[Case], rules: m.Settings, runs: Sequence[int]) -> None:
    wanted = {
        case.name: ([case.wanted] if isinstance(case.wanted, str) else list(case.wanted), sorted(case.rejects))
        for case in cases
    }
    assert {case.name: by_the_model(case, rules, runs) for case in cases} == wanted
