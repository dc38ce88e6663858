"""A run's stages: the ways to a plan agree, the counts that choose between them are right, nothing stays at hand."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace

import pytest
from halfop.planning.arrivals import Arrivals
from halfop.planning.counts import KeyCount, KeyCounts, OffsetRange, counted
from halfop.planning.plan import arrived, plan_of
from halfop.runs import finish
from halfop.runs.reconcile import Request, _open, reconcile
from halfop.runs.verify import verify
from halfop.warehouse import reading
from halfop.warehouse.reading import Limits
from halfop.warehouse.tables import Warehouse
from model import reference as m
from model.oracle import NOW, folders, settings
from support import rows as r
from support.rules import cases_of_copies as copies
from support.rules import rule_words as words
from support.rules.cases_of_copies import RUNS, SECOND, T0
from support.rules.rule_words import commit
from support.rules.unlike_the_broker import STORY_RULES, once
from support.ways import BY_SPARK

CASES = folders()[0]
NONE = KeyCount(0, 0, False, [])


def _persisted(warehouse: Warehouse) -> int:
    """How many frames Spark keeps, without the states of tables that Delta's connector keeps."""
    kept = warehouse.spark.sparkContext._jsc.getPersistentRDDs()
    return sum("Delta" not in str(rdd.name()) for rdd in kept.values())


def test_a_run_with_copies_keeps_nothing_and_can_be_printed(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "FEW", BY_SPARK)
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


@pytest.mark.parametrize(
    "limits", [reading.FEW, pytest.param(BY_SPARK, marks=pytest.mark.slow)], ids=["few", "by Spark"]
)
def test_a_discarded_message_that_landed_several_times_is_delivered_once(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    """Within one landing, and once more after it was discarded."""
    monkeypatch.setattr(reading, "FEW", limits)
    for number, (halves, ops, decided) in enumerate(
        [([once(), once()], [], "CHECK"), ([], [], "DISCARD"), ([once()], [], None), ([], [commit()], "COMMIT")]
    ):
        at = words.NOW + number * words.MINUTE
        r.land(warehouse, halves, ops, at, {("", 0): at})
        run = r.run(warehouse, STORY_RULES, at).run_id
        assert [d.decision for d in r.decisions(warehouse, run or 0)] == [decided] * (decided is not None)
    assert r.delivered(warehouse).total() == 1


@pytest.mark.parametrize(
    "first",
    [pytest.param(0, marks=pytest.mark.slow), pytest.param(7, marks=pytest.mark.thorough)],
    ids=["late", "in their order"],
)
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


# ---- what a run did not use ----


@pytest.mark.thorough
def test_a_conflict_shows_though_rows_that_come_and_go_are_as_many(warehouse: Warehouse) -> None:
    """An op that an earlier run has rejected ends the corrected message, and this run's own op is left."""
    bad = words.half(real_qid="x")
    for number, (each, named) in enumerate([(bad, commit()), (replace(bad, real_qid="3"), words.rollback(offset=1))]):
        at = words.NOW + number * SECOND
        r.land(warehouse, [each], [named], at, {("", 0): at})
        r.run(warehouse, STORY_RULES, at)
    assert [d.decision for d in r.decisions(warehouse, 2)] == ["COMMIT"]
    assert {row[:2] for row in r.rejected(warehouse)} == {
        ("HALF", "BAD_REAL_QUEUE"),
        ("OP", "HALF_REJECTED"),
        ("OP", "CONFLICT"),
    }


# What lands beside a message and its op.
LEFT: dict[str, tuple[list[m.Half], list[m.Op], list[m.Key]]] = {
    "REDUNDANT": ([], [commit(offset=7)], []),
    "CONFLICT": ([], [words.rollback(offset=7)], []),
    "GARBAGE_OFFSET": ([], [words.batch("x", offset=7)[0]], []),
    "WRONG_PRODUCER_GROUP": ([], [words.headed(half_offset=1, offset=7, group="other")], []),
    "KEY_REUSED": ([words.half(store=words.NOW - 5000)], [], []),
    "HALF_BEFORE_LANDING": ([], [replace(commit(of=3, offset=7), queue=1)], []),
    "UNKNOWN": ([], [], [("", 0, 99)]),
    "OPEN": ([], [], [("", 0, 1)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("limits", [reading.FEW, BY_SPARK], ids=["few", "by Spark"])
@pytest.mark.parametrize("reason", LEFT)
def test_what_a_run_leaves_beside_what_it_uses(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, reason: str, limits: Limits
) -> None:
    """Whatever else the run decides, which is as much as it takes."""
    monkeypatch.setattr(reading, "FEW", limits)
    halves = [words.half(), words.half(1, age=0), replace(words.half(5), queue=1)]
    known = {("", 0): words.NOW, ("", 1): words.NOW}
    r.land(warehouse, halves, [commit()], words.NOW, known)
    r.run(warehouse, STORY_RULES, words.NOW)
    late, ops, resumed = LEFT[reason]
    r.land(warehouse, [words.half(2), *late], [commit(of=2, offset=2), *ops], words.NOW, known)
    if resumed:
        r.resume(warehouse, resumed, words.NOW)
    r.run(warehouse, STORY_RULES, words.NOW)
    assert [row[1] for row in r.rejected(warehouse)] == [reason]
    assert verify(warehouse, 2)[0].status == 0


# ---- ops without a source ----


@pytest.mark.thorough
def test_an_op_without_a_source_that_lands_again_is_the_same(warehouse: Warehouse) -> None:
    """A user's own pipeline may leave `source` out: it waits once, and a rebuilt broker's op is known by its key."""
    early, reused = commit(of=4, offset=4, source=None), commit(of=1, offset=1, source=None)
    for number, ops in enumerate([[early, reused], [early], [replace(reused, store=words.NOW)]]):
        at = words.NOW + number * SECOND
        r.land(warehouse, [words.half(1)] if number == 0 else [], ops, at, {("", 0): at})
        r.run(warehouse, STORY_RULES, at)
        assert [d.decision for d in r.decisions(warehouse, number + 1) if d.decision == "EARLY_OP"] == ["EARLY_OP"]
    assert Counter(row[1] for row in r.rejected(warehouse)) == {"KEY_REUSED": 1}


@pytest.mark.thorough
def test_a_reused_key_without_a_source_ends_no_late_half_message(warehouse: Warehouse) -> None:
    """The op of a rebuilt broker has been rejected, and is met again when its half message lands corrected."""
    bad, first, reused = words.half(real_qid="x"), commit(of=9, offset=1, source=None), commit(offset=1, source=None)
    ops = [first, replace(reused, store=words.NOW)]
    r.land(warehouse, [bad, words.half(9)], ops, words.NOW, {("", 0): words.NOW})
    r.run(warehouse, STORY_RULES, words.NOW)
    r.land(warehouse, [replace(bad, real_qid="3")], [], words.NOW, {("", 0): words.NOW})
    run = r.run(warehouse, STORY_RULES, words.NOW + SECOND).run_id
    assert {d.key[2]: d.decision for d in r.decisions(warehouse, run or 0)} == {0: "CHECK"}


# ---- final messages that come before their ops ----


@pytest.mark.thorough
@pytest.mark.parametrize(("outcome", "rejects"), [("COMMIT", []), ("ROLLBACK", ["CONFLICT"])])
def test_an_op_that_lands_after_the_final_message_is_its_record(
    warehouse: Warehouse, outcome: str, rejects: list[str]
) -> None:
    """A landing may see the real topic's queue before the op queue: the op says what has been proved."""
    r.land(warehouse, [copies.half(0)], [], RUNS[0], {("b", 0): RUNS[0]}, finals=[copies.final(0)])
    r.run(warehouse, copies.RULES, RUNS[0])
    r.land(warehouse, [], [copies.op(0, 0, outcome)], RUNS[1], {("b", 0): RUNS[1]})
    r.run(warehouse, copies.RULES, RUNS[1])
    assert [(d.decision, d.reason) for d in r.decisions(warehouse, 1)] == [("COMMIT", "FINAL")]
    assert [row[1] for row in r.rejected(warehouse)] == rejects


def test_queues_of_final_messages_are_never_late(warehouse: Warehouse) -> None:
    """They have no clock: nobody is asked by them."""
    r.land(warehouse, [copies.half(0)], [], RUNS[0], {("b", 0): RUNS[0]})
    of_finals = {"broker_name": "b", "topic": "T", "queue_id": 3, "next_offset": 7, "landed_at": RUNS[0]}
    r.append(warehouse, "landing_progress", [of_finals])
    assert "queues_behind" not in r.run(warehouse, copies.RULES, RUNS[0]).extra


@pytest.mark.parametrize(("number", "queues"), [(1, "1 queue is"), (2, "2 queues are")])
def test_late_queues_are_one_line_in_plain_words(number: int, queues: str) -> None:
    said = f"{queues} not known up to now (queues_behind): nobody is asked there about what is due since, until"
    assert finish._late_queues(number).startswith(said)


def _kept(arrivals: Arrivals) -> int:
    plan_of(arrivals)
    return _persisted(arrivals.warehouse)


def _count(rows: int, arrived: int, repeated: bool, low: int, high: int) -> KeyCount:
    return KeyCount(rows, arrived, repeated, [OffsetRange("b", 0, low, high)] if arrived else [])


@pytest.mark.parametrize(
    ("halves_there", "ops_there", "expected"),
    [
        ([], [], KeyCounts(NONE, NONE, True, True, True, False, 0)),
        (
            [(0, True), (63, True), (64, False)],
            [(63, True, False)],
            KeyCounts(_count(3, 2, False, 0, 63), _count(1, 1, False, 63, 63), True, True, False, False, 2),
        ),
        (
            [(5, True), (5, False)],
            [(5, True, True), (5, False, False)],
            KeyCounts(_count(2, 1, True, 5, 5), _count(2, 1, True, 5, 5), True, True, True, True, 1),
        ),
        (
            [(1, True)],
            [(65, False, False), (1, True, False)],  # the same place in another block
            KeyCounts(_count(1, 1, False, 1, 1), _count(2, 1, False, 1, 1), False, True, True, False, 1),
        ),
        (
            [(1, True)],
            [(m.LONG_MAX, True, False)],
            KeyCounts(
                _count(1, 1, False, 1, 1), _count(1, 1, False, m.LONG_MAX, m.LONG_MAX), False, False, False, False, 1
            ),
        ),
        (
            [(1, True), (2, True)],
            [(1, True, False), (2, True, True)],
            KeyCounts(_count(2, 2, False, 1, 2), _count(2, 2, False, 1, 2), True, True, False, False, 2),
        ),
    ],
    ids=["nothing", "met", "twice", "one that waited is unmet", "one that arrived is unmet", "one has a header"],
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


def test_a_run_says_which_way_it_took_and_why(warehouse: Warehouse, caplog: pytest.LogCaptureFixture) -> None:
    half = m.Half("b", 0, 4, 400, "K", "g", "T", "0", NOW - 60_000, NOW - 60_000)
    r.land(warehouse, [half], [], NOW, {("b", 0): NOW})
    with caplog.at_level(logging.INFO, "halfop"):
        summary = reconcile(warehouse, Request(r.settings(settings(CASES)), r.instant(NOW)))
    why = "grouped: 1 half messages joined with 0 ops"
    assert summary.extra["ways"] == {"1": why}
    assert f"run 1 decides {why}" in caplog.messages
