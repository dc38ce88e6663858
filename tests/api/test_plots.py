"""The plots of the Python API: what they show is what the tables hold, and altair is needed by them alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import halfop
import pytest
from altair.utils.schemapi import SchemaBase
from halfop.api.plots import Plots
from halfop.frame.summary import Summary
from halfop.settings.model import RuleSettings
from halfop.simulation.play import Outcome, Point
from halfop.simulation.simulate import Simulated
from pyspark.sql import SparkSession
from support.json_lines import T0, half, lines, op
from support.sessions import as_before

NOW = datetime.fromtimestamp(T0 / 1000, timezone.utc) + timedelta(minutes=5)


@pytest.fixture(scope="module")
def opened(theirs: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[halfop.Halfop, SchemaBase]:
    """A run that commits, asks and waits; and the ages of what it left open."""
    tmp_path = tmp_path_factory.mktemp("plots")
    wh = halfop.open(theirs, tmp_path / "warehouse")
    late = T0 + 299_000
    halves = [half(1), half(2), half(3, born_timestamp=late, store_timestamp=late)]
    ops = lines(tmp_path / "o.jsonl", op(1, "1", store_timestamp=T0 + 2_000))
    wh.land_files(half=[lines(tmp_path / "h.jsonl", *halves)], op=[ops], known_until=NOW)
    wh.reconcile(now=NOW)
    with as_before(theirs):
        return wh, wh.plot.open_by_age()


@pytest.fixture(scope="module")
def wh(opened: tuple[halfop.Halfop, SchemaBase], tmp_path_factory: pytest.TempPathFactory) -> halfop.Halfop:
    """The same after a second run, which lets all three end."""
    wh, tmp_path = opened[0], tmp_path_factory.mktemp("later")
    later = lines(tmp_path / "p.jsonl", op(2, "2,3", store_timestamp=T0 + 310_000))
    wh.land_files(op=[later], known_until=NOW + timedelta(minutes=1))
    wh.reconcile(now=NOW + timedelta(minutes=1))
    return wh


def drawn(chart: SchemaBase) -> Mapping[str, Any]:
    """A chart as Vega-Lite has it; making it checks it against the schema."""
    return chart.to_dict()


def rows(chart: SchemaBase) -> list[Mapping[str, Any]]:
    found = drawn(chart)
    data = found.get("data") or found["layer"][0]["data"]
    return sorted(found["datasets"][data["name"]], key=str)


def finding(chart: SchemaBase) -> str:
    return str(drawn(chart)["title"]["text"])


def test_what_runs_decided(wh: halfop.Halfop) -> None:
    with as_before(wh.spark):
        both, last = wh.plot.decided_by_run(), wh.plot.decided_by_run(runs=1)
    assert [(row["run_id"], row["decision"], row["messages"]) for row in rows(both)] == [
        (1, "CHECK", 1),
        (1, "COMMIT", 1),
        (1, "WAIT", 1),
        (2, "COMMIT", 2),
    ]
    assert finding(both) == "3 messages have ended, 0 are open"
    assert finding(last) == "2 messages have ended, 0 are open"


def test_what_is_open_is_counted_by_age_in_spark(opened: tuple[halfop.Halfop, SchemaBase]) -> None:
    chart = opened[1]
    found = {row["decision"]: (row["age"], row["below"], row["messages"]) for row in rows(chart)}
    assert found == {"CHECK": (300, 320, 1), "WAIT": (0, 20, 1)}
    assert finding(chart) == "Of 2 open messages 1 are due for a question, the oldest 300 s old"
    assert "after run 1" in drawn(chart)["title"]["subtitle"]


def test_what_an_earlier_run_left_open_is_open_no_more(wh: halfop.Halfop) -> None:
    with as_before(wh.spark):
        title = drawn(wh.plot.open_by_age())["title"]
    assert (title["text"], title["subtitle"]) == ("Nothing is open", "after run 2")


def test_the_time_that_ends_took(wh: halfop.Halfop) -> None:
    with as_before(wh.spark):
        chart = wh.plot.time_to_end()
    assert sorted(row["seconds"] for row in rows(chart)) == [2, 11, 310]
    assert finding(chart) == "Half of the messages ended within 11.00 s, one in a hundred took more than 310.0 s"


def test_a_life_has_the_events_of_explain(wh: halfop.Halfop) -> None:
    with as_before(wh.spark):
        chart, told = wh.plot.life("b/0/2"), wh.explain("b/0/2").text
    events = sorted(rows(chart), key=lambda row: row["place"])
    assert all(row["text"] in told for row in events)
    assert [row["after"] for row in events] == pytest.approx([0, 300, 310, 360], abs=0.001)
    assert finding(chart) == "COMMIT PRODUCER after 360.0 s"


def test_a_warehouse_where_nothing_is_open_or_has_ended(theirs: SparkSession, tmp_path: Path) -> None:
    wh = halfop.open(theirs, tmp_path / "warehouse")
    with pytest.raises(halfop.InputRefused, match="no table of halfop"):
        wh.plot.open_by_age()
    wh.land_files(half=[lines(tmp_path / "h.jsonl", half(1))])
    charts = wh.plot.decided_by_run(), wh.plot.open_by_age(), wh.plot.time_to_end(), wh.plot.life("b/0/1")
    assert [finding(chart) for chart in charts] == [
        "0 messages have ended, 0 are open",
        "Nothing is open",
        "No op has ended anything yet",
        "No run has decided yet",
    ]


# ---- simulations ----


def played(*names: str) -> Simulated:
    """Variants that ask ever less, of two runs each, 10 s apart."""
    outcomes = []
    for n, name in enumerate(names):
        points = [Point(NOW + timedelta(seconds=10 * run), 9 - n, 1, 2, 0, 5 + n - run, 5) for run in range(2)]
        seconds = (1.0, 2.0 + n, 3.0 + n)
        outcomes.append(Outcome(name, RuleSettings(), 9 - n, 4 - n, 3, n, 2, 0, n, *seconds, points))
    return Simulated(Summary("simulate"), outcomes)


ONE = played("now", "transaction_timeout=1s", "transaction_timeout=3s", "transaction_timeout=6s")


@pytest.fixture
def plots() -> Plots:
    return Plots(nullcontext)


def test_what_variants_ask(plots: Plots) -> None:
    assert [tuple(row.values()) for row in rows(plots.checks(ONE))] == [
        ("1s", "needed", 5),
        ("1s", "needless", 3),
        ("3s", "needed", 5),
        ("3s", "needless", 2),
        ("6s", "needed", 5),
        ("6s", "needless", 1),
    ]
    assert finding(plots.checks(ONE)) == "6s instead of 1s: 2 questions fewer, 2 of them needless"


def test_how_long_variants_take(plots: Plots) -> None:
    found = rows(plots.latency(ONE))
    assert {row["seconds"] for row in found if row["variant"] == "3s"} == {1, 4, 5}
    assert finding(plots.latency(ONE)) == "The slowest hundredth takes 4.0 s with 1s, 6.0 s with 6s"


def test_what_variants_give_up(plots: Plots) -> None:
    found = [row["messages"] for row in rows(plots.discards(ONE)) if row["variant"] == "3s"]
    assert found == [1, 2, 2]
    assert finding(plots.discards(ONE)) == "With transaction_timeout 1s, 1 of 3 discards are wrong"


def test_what_variants_leave_open(plots: Plots) -> None:
    found = [tuple(row.values()) for row in rows(plots.open_after_runs(ONE))]
    assert found == [("1s", 0, 6), ("1s", 10, 5), ("6s", 0, 8), ("6s", 10, 7)]
    assert finding(plots.open_after_runs(ONE)) == "At most 8 messages are open at a time"


def test_variants_of_several_settings_have_their_whole_names(plots: Plots) -> None:
    both = played("now", "transaction_timeout=1s, transaction_check_max=1")
    for chart in (plots.checks(both), plots.latency(both), plots.discards(both), plots.open_after_runs(both)):
        assert {row["variant"] for row in rows(chart)} == {"transaction_timeout=1s, transaction_check_max=1"}
    assert {row["variant"] for row in rows(plots.checks(played("now")))} == {"now"}
    assert finding(plots.checks(played("now"))) == "now: 9 questions, 4 of them needless"


def test_a_simulation_of_nothing_is_refused(plots: Plots) -> None:
    summary = Summary("simulate", notes=["nothing has landed in /data yet"])
    for plot in (plots.checks, plots.latency, plots.discards, plots.open_after_runs):
        with pytest.raises(halfop.UsageError, match="nothing was played: nothing has landed in /data yet"):
            plot(Simulated(summary, []))


# ---- altair ----


def test_only_plots_need_altair(theirs: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("halfop.charts.", "halfop.api.plots"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "altair", None)
    wh = halfop.open(theirs, tmp_path / "warehouse")
    with pytest.raises(ModuleNotFoundError, match=r"plots need altair: pip install 'halfop\[plots\]'"):
        _ = wh.plot
    assert not list(tmp_path.glob("warehouse/*"))
