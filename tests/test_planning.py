"""A run's stages: the ways to a plan agree, the counts that choose between them are right, nothing stays at hand."""

from __future__ import annotations

import logging
from dataclasses import replace

import model as m
import pytest
import rows as r
from build import cases_of_copies as copies
from build import rule_words as words
from build.cases_of_copies import RUNS, SECOND, T0
from build.rule_words import commit
from build.unlike_the_broker import STORY_RULES, once
from build.ways import BY_SPARK
from halfop.frame.errors import HalfopError
from halfop.planning.arrivals import Arrivals
from halfop.planning.counts import KeyCount, KeyCounts, counted
from halfop.planning.ranges import OffsetRange
from halfop.planning.run import Debt, Slice
from halfop.planning.stages import arrived, plan_of
from halfop.runs.reconcile import Request, _open, preview, reconcile
from halfop.runs.record import write_closed, write_opened
from halfop.runs.verify import verify
from halfop.warehouse import few
from halfop.warehouse.listing import Limits
from halfop.warehouse.tables import Warehouse
from oracle import NOW, folders, settings

CASES = folders()[0]
NONE = KeyCount(0, 0, False, [])


def _persisted(warehouse: Warehouse) -> int:
    """How many frames Spark keeps, without the states of tables that Delta's connector keeps."""
    kept = warehouse.spark.sparkContext._jsc.getPersistentRDDs()
    return sum("Delta" not in str(rdd.name()) for rdd in kept.values())


def test_a_run_with_copies_keeps_nothing_and_can_be_printed(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few, "FEW", BY_SPARK)
    half = m.Half("b", 0, 4, 400, "K", "g", "T", "0", NOW - 60_000, NOW - 60_000)
    copy = replace(half, offset=5, commit_log_offset=500, check_times="1")
    r.land(warehouse, [half, copy], [], NOW, {("b", 0): NOW})
    before = _persisted(warehouse)
    with arrived(warehouse, _open(warehouse, Request(r.settings(settings(CASES)), r.instant(NOW)), None)) as arrivals:
        assert _kept(arrivals) > before
        assert str(plan_of(arrivals)).splitlines() == [
            "2 half messages and 0 op rows arrived; 0 half messages open, 0 ops waiting",
            "files looked back into: none; copies among them",
            "copies or final messages resolved",
            "grouped: 2 half messages joined with 0 ops",
        ]
    assert _persisted(warehouse) == before


@pytest.mark.parametrize("limits", [few.FEW, pytest.param(BY_SPARK, marks=pytest.mark.slow)], ids=["few", "by Spark"])
def test_a_discarded_message_that_landed_several_times_is_delivered_once(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    """Within one landing, and once more after it was discarded."""
    monkeypatch.setattr(few, "FEW", limits)
    for number, (halves, ops, decided) in enumerate(
        [([once(), once()], [], "CHECK"), ([], [], "DISCARD"), ([once()], [], None), ([], [commit()], "COMMIT")]
    ):
        at = words.NOW + number * words.MINUTE
        r.land(warehouse, halves, ops, at, {("", 0): at})
        run = r.run(warehouse, STORY_RULES, at).run_id
        assert [d.decision for d in r.decisions(warehouse, run or 0)] == [decided] * (decided is not None)
    assert r.delivered(warehouse).total() == 1


@pytest.mark.parametrize("first", [pytest.param(0, marks=pytest.mark.slow), 7], ids=["late", "in their order"])
def test_what_landed_before_its_half_message_decides_it(warehouse: Warehouse, first: int) -> None:
    """Files land in any order. No earlier run has given up anything."""
    records, finals = [copies.discard(T0 + SECOND)], [copies.final(first + 1, key="FINAL")]
    halves = [copies.half(first), copies.half(first + 1, uniq_key="FINAL")]
    r.land(warehouse, [copies.half(5, uniq_key="OTHER")], [], RUNS[0], {("b", 0): RUNS[0]}, sources={"b": "FILES"})
    r.run(warehouse, copies.RULES, RUNS[0])
    r.land(warehouse, [], [], RUNS[0], {("b", 0): RUNS[0]}, discards=records, finals=finals)
    r.run(warehouse, copies.RULES, RUNS[0])
    r.land(warehouse, halves, [], RUNS[1], {("b", 0): RUNS[1]})
    run = r.run(warehouse, copies.RULES, RUNS[1]).run_id
    decided = {d.key[2]: (d.decision, d.reason) for d in r.decisions(warehouse, run or 0)}
    assert decided[first] == ("DISCARD", "BROKER_DISCARDED")
    assert decided[first + 1] == ("COMMIT", "FINAL")


def _kept(arrivals: Arrivals) -> int:
    plan_of(arrivals)
    return _persisted(arrivals.warehouse)


def _count(rows: int, arrived: int, repeated: bool, low: int, high: int) -> KeyCount:
    return KeyCount(rows, arrived, repeated, [OffsetRange("b", 0, low, high)] if arrived else [])


@pytest.mark.parametrize(
    ("halves_there", "ops_there", "expected"),
    [
        ([], [], KeyCounts(NONE, NONE, True, True, False, 0)),
        (
            [(0, True), (63, True), (64, False)],
            [(63, True, False)],
            KeyCounts(_count(3, 2, False, 0, 63), _count(1, 1, False, 63, 63), True, True, False, 2),
        ),
        (
            [(5, True), (5, False)],
            [(5, True, True), (5, False, False)],
            KeyCounts(_count(2, 1, True, 5, 5), _count(2, 1, True, 5, 5), True, True, True, 1),
        ),
        (
            [(1, True)],
            [(65, False, False), (1, True, False)],  # the same place in another block
            KeyCounts(_count(1, 1, False, 1, 1), _count(2, 1, False, 1, 1), False, True, False, 1),
        ),
        (
            [(1, True)],
            [(m.LONG_MAX, True, False)],
            KeyCounts(_count(1, 1, False, 1, 1), _count(1, 1, False, m.LONG_MAX, m.LONG_MAX), False, False, False, 1),
        ),
    ],
    ids=["nothing", "met", "twice", "one that waited is unmet", "one that arrived is unmet"],
)
def test_counts_of_what_meets(
    warehouse: Warehouse,
    halves_there: list[tuple[int, bool]],
    ops_there: list[tuple[int, bool, bool]],
    expected: KeyCounts,
) -> None:
    put_back = expected.copies
    key = "broker_name STRING, queue_id INT, queue_offset BIGINT, arrived BOOLEAN"
    of_half = f"{key}, put_back BOOLEAN, may_be_asked BOOLEAN"
    frame = warehouse.spark.createDataFrame
    there = frame([("b", 0, *row, put_back, row[1]) for row in halves_there], of_half)
    named = frame(
        [("b", 0, offset, arrived, (header,)) for offset, arrived, header in ops_there],
        f"{key}, op STRUCT<header: BOOLEAN>",
    )
    assert counted(there, named) == expected


def test_a_slice_with_copies_of_version_0_1_is_refused(warehouse: Warehouse) -> None:
    half = m.Half("b", 0, 4, 400, "K", "g", "T", "0", NOW - 60_000, NOW - 60_000)
    r.land(warehouse, [half], [], NOW, {("b", 0): NOW})
    request = Request(r.settings(settings(CASES)), r.instant(NOW))
    warehouse.make("runs", "decisions", "topics_index")
    run = replace(_open(warehouse, request, None), slice=Slice(2, (3, 6), copies=True))
    write_opened(warehouse, run)
    refused = "run 1 is slice 2 of 3 of a backlog with put-back copies"
    for call in (reconcile, preview):
        with pytest.raises(HalfopError, match=refused):
            call(warehouse, request)
    last = replace(run, slice=Slice(3, (3, 6), copies=True), owed=(Debt(1, "rejected"),))
    write_closed(warehouse, last, {}, {})
    with pytest.raises(HalfopError, match="run 1 is slice 2 of 3"):
        verify(warehouse, 1)
    with pytest.raises(HalfopError, match="run 1 is slice 2 of 3"):
        reconcile(warehouse, request)


def test_a_run_says_which_way_it_took_and_why(warehouse: Warehouse, caplog: pytest.LogCaptureFixture) -> None:
    half = m.Half("b", 0, 4, 400, "K", "g", "T", "0", NOW - 60_000, NOW - 60_000)
    r.land(warehouse, [half], [], NOW, {("b", 0): NOW})
    with caplog.at_level(logging.INFO, "halfop"):
        summary = reconcile(warehouse, Request(r.settings(settings(CASES)), r.instant(NOW)))
    why = "grouped: 1 half messages joined with 0 ops"
    assert summary.extra["ways"] == {"1": why}
    assert f"run 1 decides {why}" in caplog.messages
