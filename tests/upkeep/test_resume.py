"""resume: a discarded message is open again; one that is open, ended or unknown is listed, and left alone."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest
from halfop.columns.keys import Key
from halfop.ending.apply import Resume, resume_at_brokers
from halfop.ending.owner import Masters
from halfop.ending.selection import Selection, plan
from halfop.explain.explain import explain
from halfop.frame.cli import main
from halfop.frame.errors import InputRefused, UsageError
from halfop.frame.summary import Summary
from halfop.report.figures import read_figures
from halfop.report.report import render
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.runs.reconcile import Request as Run
from halfop.runs.reconcile import reconcile
from halfop.settings.model import Settings
from halfop.upkeep.resume import ResumeSelection, resume
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from model import reference as m
from support import rows as r
from support.entry_points import job_of
from support.messages import KNOWN, NOW, QUEUE, RULES, half, one_of_each, ops

THREE, FOUR = Key("b", 0, 3), Key("b", 0, 30)
LATER = NOW + 100_000


def resumed(warehouse: Warehouse, *keys: Key, **options: Any) -> Summary:
    return resume(warehouse, ResumeSelection(keys, **options))[0]


def run(warehouse: Warehouse, now: int) -> Summary:
    """The instant of a resume is the wall clock's, long after these runs'."""
    summary = reconcile(warehouse, Run(r.settings(RULES), r.instant(now), allow_future=True))
    assert summary.status == 0, summary
    return summary


@pytest.mark.thorough
def test_resumed_twice_and_ended_meanwhile(warehouse: Warehouse) -> None:
    one_of_each(warehouse)
    r.land(warehouse, [half(30, check_times="1", store=NOW - 3_600_000)], [], NOW, KNOWN)
    run(warehouse, NOW)
    assert resumed(warehouse, THREE, dry_run=True).extra["would_resume"] == 1
    assert warehouse.version("resumes") < 1, "nothing written"
    assert resumed(warehouse, THREE, FOUR).extra == {"resumed": 2, "left_alone": {}}
    assert resumed(warehouse, THREE).extra == {"resumed": 0, "left_alone": {"RESUMED": 1}}, "the next run takes it in"
    r.land(warehouse, [], ops("COMMIT", 30), LATER, {QUEUE: LATER})
    summary = run(warehouse, LATER)
    assert summary.decisions["COMMIT"] == {"AFTER_DISCARD": 1}
    assert summary.decisions["CHECK"]["TIMEOUT"] == 1, "asked anew, with check times 0"
    assert summary.extra["rejected"] == {"RESUME.ENDED": 1}
    assert resumed(warehouse, THREE, FOUR).extra == {"resumed": 0, "left_alone": {"CHECK": 1, "COMMIT": 1}}
    with pytest.raises(InputRefused, match="no discarded message b/0/0, b/0/77"):
        resumed(warehouse, THREE, Key("b", 0, 0), Key("b", 0, 77))


@pytest.mark.parametrize("ended", [True, False])
def test_what_its_broker_has_resumed_is_left_alone(warehouse: KernelWarehouse, ended: bool) -> None:
    """The broker's own copy goes on in its place, so a row of `resumes` would only be rejected."""
    given_up = half(3)
    record = m.BrokerDiscard("b", 0, 0, given_up.uniq_key, given_up.group, given_up.born, 15, NOW - 5_000)
    r.land(warehouse, [given_up], [], NOW, KNOWN, discards=[record])
    assert run(warehouse, NOW).decisions == {"DISCARD": {"BROKER_DISCARDED": 1}}
    copy = half(40, uniq_key=given_up.uniq_key, check_times="0", store=NOW - 1_000)
    r.land(warehouse, [copy], ops("COMMIT", 40) if ended else [], LATER, {QUEUE: LATER})
    assert run(warehouse, LATER).decisions.keys() == {"COMMIT" if ended else "CHECK"}
    assert resumed(warehouse, THREE).extra == {"resumed": 0, "left_alone": {"SUPERSEDED": 1}}
    assert read_figures(warehouse, 10)["discards"] == []


def test_what_a_parked_sink_owes_is_resumed_and_ended_once_it_is_written(warehouse: KernelWarehouse) -> None:
    """Each reader names the way, and none shows a command that would be refused."""
    r.land(warehouse, [half(3, check_times="1", store=NOW - 3_600_000)], [], NOW, KNOWN)
    parked = frozenset({"trans_check_max_time"})
    reconcile(warehouse, Run(r.settings(RULES), r.instant(NOW), allow_future=True, parked=parked))
    way = "reconcile without --park-sink writes it"
    with pytest.raises(InputRefused, match=f"no discarded message b/0/3\n.*{way}"):
        resumed(warehouse, THREE)
    with pytest.raises(InputRefused, match=f"no open or discarded message b/0/3\n.*{way}"):
        plan(warehouse, Selection("COMMIT", [THREE]))
    by_condition = (
        resume(warehouse, ResumeSelection(where="true"))[0],
        plan(warehouse, Selection("COMMIT", where="true"))[0],
    )
    assert [way in "".join(summary.notes) for summary in by_condition] == [True, True]
    told = explain(warehouse, Settings(), str(THREE)).text
    assert (way in told, "resume --key" in told) == (True, False)
    found = read_figures(warehouse, 10)
    assert ([row["written"] for row in found["discards"]], found["hanging"]) == ([False], [])
    assert way.removesuffix(" it") in render(found, Settings(), r.instant(NOW))
    run(warehouse, NOW)
    assert "resume --key" in explain(warehouse, Settings(), str(THREE)).text
    assert len(read_figures(warehouse, 10)["hanging"]) == 1
    assert resumed(warehouse, THREE).extra == {"resumed": 1, "left_alone": {}}


def test_what_nobody_can_be_asked_about_is_discarded_again(warehouse: KernelWarehouse) -> None:
    r.land(warehouse, [half(0, group=None), half(1, check_times="1", store=NOW - 3_600_000)], [], NOW, KNOWN)
    assert run(warehouse, NOW).decisions == {"DISCARD": {"NO_PRODUCER_GROUP": 1, "CHECKED_TOO_OFTEN": 1}}
    without, often = Key("b", 0, 0), Key("b", 0, 1)
    request = Resume(Masters(RemotingSettings()), [], where="true", dry_run=True)
    at_broker = resume_at_brokers(warehouse, request)[0]
    assert at_broker.notes[0].startswith("no message that fits was given up by its broker; `resume` without --broker")
    assert resumed(warehouse, often, dry_run=True).notes == ["dry run: nothing was written"]
    summary = resumed(warehouse, without, often)
    assert summary.extra["resumed"] == 2
    assert [note.split(" (")[0] for note in summary.notes] == ["1 of them name no producer group"]
    later = int(datetime.now(timezone.utc).timestamp() * 1000) + 100_000
    r.land(warehouse, [], [], later, {QUEUE: later})
    assert run(warehouse, later).decisions["DISCARD"] == {"NO_PRODUCER_GROUP": 1}


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.slow
def test_by_a_condition_on_the_command_line(warehouse: Warehouse, capsys: pytest.CaptureFixture[str]) -> None:
    def called(*options: str) -> tuple[int, dict[str, Any], str]:
        status = main(job_of("resume"), ["--warehouse", warehouse.root, *options])
        told = capsys.readouterr().out
        return status, json.loads(told.splitlines()[-1]), told

    assert called("--where", "true")[0] == 3, "nothing has been discarded yet"
    one_of_each(warehouse)
    run(warehouse, NOW)
    assert called("--where", "producer_group = 'other'")[1]["resumed"] == 0
    status, told, _ = called("--where", "no_such_column = 1")
    assert (status, "no_such_column" in told["error"]) == (2, True)
    assert called("--where", "int(uniq_key) > 5")[0] == 2, "uniq_key is no number, which only its rows tell"
    status, told, text = called("--where", "producer_group = 'g'")
    assert (status, told["resumed"], "b            0         3" in text.replace("\n", " ")) == (0, 1, True), text
    for wrong in ("b/0", "b/x/3", "/0/3", f"b/0/{2**63}"):
        assert called("--key", wrong)[0] == 2
    assert called("--key", f"b/0/{2**63 - 1}")[0] == 3, "legal, but not there"
    assert called("--key", "b/0/3", "--where", "true")[0] == 2
    with pytest.raises(UsageError):
        resume(warehouse, ResumeSelection(where="("))
