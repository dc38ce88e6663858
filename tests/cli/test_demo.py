"""The demo: each pass lands a store as a broker leaves it, so nothing warns of it; and what it says while it works."""

from __future__ import annotations

import json
import shlex
from datetime import datetime, timezone
from pathlib import Path

import pytest
from halfop.columns.keys import as_key
from halfop.demo import EXAMPLE, OVERRIDES, Pass, next_commands, passes, store_upto
from halfop.frame.cli import main
from halfop.jobs import demo
from halfop.planning.run import Clock, late_clocks
from halfop.rocketmq.store.layout import layout
from halfop.settings.load import load_settings
from halfop.settings.model import Settings
from support.brokers.store_reader import read_all
from support.entry_points import job_of
from support.places import ROOT

SAMPLE = ROOT / "demo"


@pytest.mark.parametrize("each", passes(SAMPLE), ids=lambda each: f"{each.now:%H:%M:%S}")
def test_a_passs_store_is_whole(each: Pass, tmp_path: Path) -> None:
    found = layout(store_upto(SAMPLE, tmp_path, each.log_to))
    assert each.log_to in (None, found.end)
    assert (found.queue_ahead, found.torn, found.cross_checked) == (0, 0, True)


def test_without_its_sample_it_names_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "sample", lambda environ: None)
    assert main(demo.JOB, []) == 2
    assert "the demo needs its sample" in capsys.readouterr().err


@pytest.mark.parametrize("each", passes(SAMPLE), ids=lambda each: f"{each.now:%H:%M:%S}")
def test_a_passs_clock_is_not_late(each: Pass, tmp_path: Path) -> None:
    """The clock is as for a broker that lands every few seconds: a report of the demo has no late queue to warn of."""
    settings = load_settings(None, OVERRIDES, {})
    newest = read_all(store_upto(SAMPLE, tmp_path, each.log_to), size=1 << 30).newest
    assert newest is not None
    newest_at = datetime.fromtimestamp(newest / 1000, timezone.utc)
    assert newest_at <= each.now
    clock = Clock("broker-a", 0, newest_at - settings.landing.op_lag, None, None)
    assert late_clocks([clock], each.now, settings.rules.transaction_check_interval) == []


# ---- what it says ----


def test_the_next_commands_are_ready_to_copy(tmp_path: Path) -> None:
    at = f"{tmp_path}/it's a demo"
    explain, query, report = (shlex.split(command) for _, command in next_commands(Settings(warehouse=at)))
    assert explain == ["./spark-submit.sh", "explain", EXAMPLE, "--warehouse", at]
    assert report == ["./spark-submit.sh", "report", "--warehouse", at]
    assert query[:2] == ["./spark-submit.sh", "sql"]
    assert query[2].startswith("SELECT decision, reason, count(*) FROM decisions")
    assert query[3:] == ["--warehouse", at]


def test_the_message_to_explain_is_in_the_sample(tmp_path: Path) -> None:
    key = as_key(EXAMPLE)
    assert key is not None
    halves = read_all(store_upto(SAMPLE, tmp_path, None), size=1 << 30).rows["half"]
    assert (key.queue_id, key.queue_offset) in {(row["queue_id"], row["queue_offset"]) for row in halves}


@pytest.mark.slow
@pytest.mark.usefixtures("spark", "logging_as_before")
def test_it_says_what_it_is_at_and_what_to_look_at_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(job_of("demo"), ["--warehouse", "w"]) == 0
    out, err = capsys.readouterr()
    steps = [line.partition("  ")[2] for line in err.splitlines()]
    for number in (1, 2, 3):
        landing, reconciling = f"pass {number} of 3: landing", f"pass {number} of 3: reconciling"
        assert [step.startswith(landing) for step in steps].count(True) == 1
        assert [step.startswith(reconciling) for step in steps].count(True) == 1
    assert steps[-1] == "writing the report"
    assert not any("WARNING" in line for line in err.splitlines())
    *lines, summary = out.splitlines()
    assert f"    ./spark-submit.sh explain {EXAMPLE} --warehouse {tmp_path}/w/demo" in lines
    assert json.loads(summary)["status"] == 0
    assert "their clocks stand still" not in (tmp_path / "report.html").read_text()
