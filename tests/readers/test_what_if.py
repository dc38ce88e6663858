"""A simulation's variants, schedule and page, without Spark."""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from halfop.frame.arguments import interval
from halfop.frame.cli import main
from halfop.frame.errors import UsageError
from halfop.frame.output import TextOutput
from halfop.jobs.simulate import what_if
from halfop.settings.model import RuleSettings, Settings
from halfop.simulation.play import Outcome, compared, html
from halfop.simulation.replay import regular, widened
from halfop.simulation.simulate import variants
from support.entry_points import job_of

EVERY = timedelta(seconds=60)


def moment(minute: int, second: int = 0) -> datetime:
    return datetime(2025, 6, 15, 15, minute, second, tzinfo=timezone.utc)


# ---- variants ----


def test_names_of_rules_go_without_their_prefix() -> None:
    given = ["transaction_timeout=30s", "rules.transaction_check_max=3", "groups.g.transaction_timeout=1m"]
    found = variants(Settings(), what_if(given))
    name = "transaction_timeout=30s, rules.transaction_check_max=3, groups.g.transaction_timeout=1m"
    assert list(found) == ["now", name]
    assert found["now"] == RuleSettings()
    assert (found[name].transaction_timeout, found[name].transaction_check_max) == (timedelta(seconds=30), 3)
    assert found[name].groups["g"].transaction_timeout == timedelta(minutes=1)


def test_every_combination_of_several_values_is_tried() -> None:
    found = variants(Settings(), what_if(["transaction_timeout=6s,30s", "transaction_check_max=3, 15"]))
    assert [(r.transaction_timeout.seconds, r.transaction_check_max) for r in list(found.values())[1:]] == [
        (6, 3),
        (6, 15),
        (30, 3),
        (30, 15),
    ]


def test_a_duration_of_python_is_a_value() -> None:
    found = variants(Settings(), {"transaction_timeout": [timedelta(seconds=30), timedelta(0)]})
    assert list(found)[1:] == ["transaction_timeout=30s", "transaction_timeout=0s"]
    for wrong in (timedelta(microseconds=1500), timedelta(seconds=-1)):
        with pytest.raises(UsageError, match="a duration"):
            variants(Settings(), {"transaction_timeout": [wrong]})


@pytest.mark.parametrize("text", ["0s", "0ms"])
def test_runs_are_some_time_apart(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected a duration above 0, given '0"):
        interval(text)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["warehouse=/x"], "plays other settings of the rules"),
        (["topics.layout=single"], "rules.topics.layout"),
        (["run.max_rows=5"], "plays other settings of the rules"),
        (["ask=false"], "halfop always asks"),
        (["rules.ask=true"], "halfop always asks"),
        (["transaction_timeot=1s"], "nearest known one is rules.transaction_timeout"),
        (["transaction_timeout=soon"], "a duration"),
        (["transaction_timeout"], "expected KEY=VALUE"),
        (["transaction_timeout=1s", "transaction_timeout=2s"], "given twice"),
        (["transaction_check_max=1,2,3,4", "transaction_timeout=1s,2s,3s,4s"], "16 variants"),
    ],
)
def test_what_is_no_variant_is_refused(given: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        variants(Settings(), what_if(given))


def test_the_command_refuses_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    job = job_of("simulate")
    assert main(job, ["--set", "landing.op_lag=1s"]) == 2
    assert "settings of the rules" in capsys.readouterr().err


# ---- schedule ----


def test_runs_take_place_at_whole_multiples_and_at_the_end() -> None:
    found = regular(moment(0, 30), moment(3, 10), EVERY).instants
    assert found == [moment(1), moment(2), moment(3), moment(3, 10)]
    assert regular(moment(1), moment(3), EVERY).instants == [moment(2), moment(3)]
    assert regular(moment(0, 10), moment(0, 20), EVERY).instants == [moment(0, 20)]


@pytest.mark.parametrize("most", [1, 2, 3, 7, 50, 500])
def test_no_more_runs_than_wanted_and_no_fewer_than_needed(most: int) -> None:
    since, until = moment(0, 7), moment(59, 59)
    every = widened(since, until, EVERY, most)
    assert every % EVERY == timedelta(0)
    assert len(regular(since, until, every).instants) <= most
    assert every == EVERY or len(regular(since, until, every - EVERY).instants) > most


# ---- what is shown ----


def outcome(name: str, **figures: Any) -> Outcome:
    given: dict[str, Any] = dict.fromkeys(
        ("checks", "needless_checks", "discards", "wrong_discards", "commits", "rollbacks", "open_at_end"), 0
    )
    given |= {"commit_p50": None, "commit_p90": None, "commit_p99": None, "points": []}
    return Outcome(name, RuleSettings(), **(given | figures))


def test_the_table_has_a_line_a_variant(capsys: pytest.CaptureFixture[str]) -> None:
    now = outcome("now", checks=12, needless_checks=7, commit_p50=1.5, commit_p90=66.0, commit_p99=90_000.0)
    TextOutput().tables(compared([now, outcome("transaction_timeout=30s", checks=5)]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["variant", "checks", "needless"]
    assert lines[2].split()[:8] == ["now", "12", "7", "0", "0", "0", "0", "0"]
    assert lines[2].endswith("  1.5 s       1 min 6 s   1 d 1 h")
    assert lines[3].split() == ["transaction_timeout=30s", "5", *["0"] * 6]


def test_the_page_tells_what_changes_and_escapes_names() -> None:
    other = outcome("topics.<script>.transaction_timeout=30s", checks=5, wrong_discards=1)
    found = html([outcome("now", checks=12, needless_checks=7, commit_p50=1.0), other], [("warehouse", "<b>")])
    assert "12 questions as configured, 7 of them needless. With topics.&lt;script&gt;" in found
    assert "5 questions, 0 of them needless, and 1 wrong discard instead of 0." in found
    assert "<script" not in found
    assert "<b>" not in found
