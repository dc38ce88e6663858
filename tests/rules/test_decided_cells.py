"""Cells of decisions that the reference model has no words for, on frames in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from halfop.rules import ops as o
from halfop.rules.settings_columns import RuleColumns
from halfop.settings.model import GroupOverride, RuleSettings
from halfop.warehouse.schema import table
from model import reference as m
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from support import rows as r
from support.rules import cases_of_copies as copies
from support.rules.in_memory import InMemory
from support.rules.rule_words import MINUTE, NOW, commit, half
from support.rules.unlike_the_broker import STORY_RULES, once


def landed(frames: SparkSession, *rows: m.Half | m.Op) -> InMemory:
    memory = InMemory(frames, STORY_RULES)
    halves, ops = [row for row in rows if isinstance(row, m.Half)], [row for row in rows if isinstance(row, m.Op)]
    memory.land(halves, ops, NOW, {("", 0): NOW + 10 * MINUTE})
    return memory


def test_an_op_that_has_just_landed_is_new(frames: SparkSession) -> None:
    """Only what landed under its key before says otherwise, which a run looks up only where it has to."""
    written = [field for field in table("op_messages").struct if field.name in table("op_messages").given]
    rows = r.in_memory(frames, StructType(written), [r.op_cells(commit(), NOW)])
    assert [row["again"] for row in o.landed(rows).collect()] == [False]


def test_of_two_messages_under_a_key_the_one_that_landed_first_counts(frames: SparkSession) -> None:
    memory = landed(frames, half())
    memory.land([half(store=NOW - 1 * MINUTE)], [], NOW + 1, {})
    memory.run(NOW + 10 * MINUTE)
    assert [row["store_timestamp"] for row in memory.cells] == [half().store]


@pytest.mark.thorough
def test_of_two_resumes_the_first_counts(frames: SparkSession) -> None:
    memory = landed(frames, once())
    for run in range(2):
        memory.run(NOW + run * MINUTE)
    assert [(row["decision"], row["resumed_at"]) for row in memory.cells] == [("DISCARD", None)]
    for at in (3 * MINUTE, 2 * MINUTE + 1):
        memory.resume([("", 0, 0)], NOW + at)
    memory.run(NOW + 3 * MINUTE)
    assert [(row["decision"], row["resumed_at"]) for row in memory.cells] == [("CHECK", NOW + 2 * MINUTE + 1)]


def test_of_two_final_messages_the_lower_copy_s_counts(frames: SparkSession) -> None:
    memory = InMemory(frames, copies.RULES)
    finals = [copies.final(5, 1), copies.final(0)]
    memory.land([copies.half(0), copies.half(5, "1")], [], copies.T0 + MINUTE, {}, finals=finals)
    memory.run(copies.RUNS[0])
    found = {row["queue_offset"]: (row["decision"], row["copy_offset"]) for row in memory.cells}
    assert found == {0: ("SUPERSEDED", None), 5: ("COMMIT", 0)}


def test_ops_of_two_brokers_may_have_one_offset(frames: SparkSession) -> None:
    """A message has escaped twice. The first broker's op is known, and is refused once its half message is there."""
    memory = InMemory(frames, copies.RULES)
    known = dict.fromkeys([("a", 0), ("b", 0), ("c", 0)], copies.RUNS[1])
    first = replace(copies.op(3, 0), broker="a", group="other")
    memory.land([copies.half(10, broker="a", uniq_key="OTHER")], [first], copies.T0 + MINUTE, known)
    memory.run(copies.RUNS[0])
    escaped = [
        copies.half(7, broker=broker, store=copies.T0 + minutes * MINUTE, wait="false")
        for minutes, broker in ((1, "b"), (2, "c"))
    ]
    memory.land([copies.half(0, broker="a"), *escaped], [replace(copies.op(3, 7), broker="b")], copies.RUNS[1], known)
    memory.run(copies.RUNS[1])
    assert sorted((row["broker_name"], row["decision"]) for row in memory.cells if row["uniq_key"] == "KEY") == [
        ("a", "SUPERSEDED"),
        ("b", "SUPERSEDED"),
        ("c", "COMMIT"),
    ]
    reasons = r.REJECTED.index("reason"), r.REJECTED.index("broker_name"), r.REJECTED.index("queue_offset")
    assert sorted(tuple(row[n] for n in reasons) for row in memory.rejected.elements()) == [
        ("HALF_BEFORE_LANDING", "a", 3),
        ("WRONG_PRODUCER_GROUP", "a", 3),
    ]


def test_an_op_names_a_copy_of_another_queue(frames: SparkSession) -> None:
    memory = InMemory(frames, copies.RULES)
    escaped = copies.half(7, broker="b", queue=1, store=copies.T0 + MINUTE, wait="false")
    memory.land(
        [copies.half(0, broker="a"), escaped, copies.half(9, uniq_key="ALONE")],
        [replace(copies.op(3, 0), broker="a")],
        copies.RUNS[0],
        {},
    )
    memory.run(copies.RUNS[0])
    names = ("queue_id", "decision", "copy_broker", "copy_queue", "copy_offset")
    assert sorted(tuple(row[name] for name in names) for row in memory.cells) == [
        (0, "CHECK", None, None, None),
        (0, "SUPERSEDED", None, None, None),
        (1, "COMMIT", "a", 0, 0),
    ]
    without = [row["copies"] for row in memory.cells if row["decision"] in ("CHECK", "SUPERSEDED")]
    assert without == [None, None]
    (ended,) = [row for row in memory.cells if row["decision"] == "COMMIT"]
    assert [copy["queue_offset"] for copy in ended["copies"]] == [7], "those of its own queue"
    assert [(copy["broker_name"], copy["queue_offset"]) for copy in ended["copies_elsewhere"]] == [("a", 0)]


def test_a_copy_alone_has_no_others(frames: SparkSession) -> None:
    """Its original may land later, and so may an escaped one's, unless it is known."""
    memory = InMemory(frames, copies.RULES)
    known = dict.fromkeys([("a", 0), ("b", 0), ("c", 0)], copies.RUNS[0])
    escaped = [copies.half(7, broker=broker, store=copies.T0 + MINUTE, wait="false") for broker in ("b", "c")]
    escaped[1] = replace(escaped[1], uniq_key="ALONE")
    memory.land([copies.half(0, broker="a"), copies.half(9, "1", uniq_key="COPY"), *escaped], [], copies.RUNS[0], known)
    memory.run(copies.RUNS[0])
    names = ("broker_name", "queue_offset", "decision", "copies", "orphan", "escaped_key")
    found = {tuple(row[name] for name in names[:3]): [row[name] for name in names[3:]] for row in memory.cells}
    assert found.pop(("b", 7, "CHECK"))[1:] == [None, None]
    assert found == {
        ("a", 0, "SUPERSEDED"): [None, None, None],
        ("b", 9, "CHECK"): [None, True, None],
        ("c", 7, "CHECK"): [None, None, "ALONE"],
    }


def test_a_refused_resume_holds_no_discard_back(frames: SparkSession) -> None:
    """The message was open when it was asked for, and its broker has given it up."""
    memory = InMemory(frames, copies.RULES)
    given_up = copies.discard(copies.T0 + copies.SECOND)
    memory.land([copies.half(0)], [], copies.T0 + MINUTE, {("b", 0): copies.RUNS[0]}, discards=[given_up])
    memory.resume([("b", 0, 0)], copies.T0 + MINUTE)
    memory.run(copies.RUNS[0])
    assert [(row["decision"], row["reason"]) for row in memory.cells] == [("DISCARD", "BROKER_DISCARDED")]


def test_the_first_offset_that_has_landed_may_have_been_skipped(frames: SparkSession) -> None:
    """It is a hole then, and its half message may come with another landing."""
    rows = frames.createDataFrame(
        [(offset, 10, 20, (r.instant(NOW),)) for offset in (9, 10)],
        "queue_offset BIGINT, first_offset BIGINT, next_offset BIGINT, op STRUCT<landed_at: TIMESTAMP>",
    )
    why = o.why_given_up(F.col("op"), RuleColumns(r.settings(STORY_RULES).rules, r.instant(NOW)))
    assert [tuple(row) for row in rows.select("queue_offset", why).collect()] == [
        (9, "HALF_BEFORE_LANDING"),
        (10, None),
    ]


def test_what_a_setting_says_it_says_of_all_brokers(frames: SparkSession) -> None:
    """Also of those that no landing has named; `auto` would go by what landed them."""
    given, some = r.settings(STORY_RULES).rules, frozenset({"a"})
    watching = RuleColumns(given.model_copy(update={"ask": False}), r.instant(NOW), watched=some).watching
    delivered = given.model_copy(update={"count": "delivered"})
    later = RuleColumns(delivered, r.instant(NOW), counting_delivered=some).counts_later
    assert watching is not None
    assert later is not None
    rows = frames.createDataFrame([("a",), ("other",)], "broker_name STRING")
    assert [tuple(row) for row in rows.select(watching, later).collect()] == [(True, True)] * 2


def test_what_is_open_outside_of_a_slice_stays_as_it_is(frames: SparkSession) -> None:
    memory = landed(frames, half(), half(1, immunity="3600"), commit(7))
    memory.run(NOW)
    found = memory.carried_over(NOW + MINUTE)
    names = ("queue_offset", "decision", "reason", "check_times", "last_checked_at", "open", "decided_at")
    assert sorted(tuple(row[name] for name in names) for row in found) == [
        (0, "WAIT", "CHECKED_RECENTLY", 1, NOW, True, NOW + MINUTE),
        (1, "WAIT", "IMMUNE", 0, None, True, NOW + MINUTE),
        (7, "EARLY_OP", None, None, None, True, NOW + MINUTE),
    ]
    (op,) = [row["op"] for row in memory.cells if row["op"]]
    assert [row["op"] for row in found if row["op"]] == [op]


def test_thousands_of_groups_have_limits_of_their_own(frames: SparkSession) -> None:
    """Their number does not make the plan deeper; null is no limit; left out, the general one counts."""
    groups = {f"g-{n}": GroupOverride(checks_a_run=n) for n in range(10_000)}
    groups |= {"free": GroupOverride(checks_a_run=None), "slow": GroupOverride(transaction_timeout=timedelta(hours=1))}
    rules = RuleColumns(RuleSettings(checks_a_run=7, groups=groups), r.instant(NOW))
    asked = ["g-0", "g-9999", "free", "slow", "g-10000", "", None, "支付"]
    rows = frames.createDataFrame([(name, None) for name in asked], "producer_group STRING, real_topic STRING")
    found = rows.select(rules.checks_a_run, rules.timeout).collect()
    assert [limit for limit, _ in found] == [0, 9_999, None, 7, 7, 7, 7, 7]
    assert [timeout // 10**6 for _, timeout in found] == [6, 6, 6, 3600, 6, 6, 6, 6]
