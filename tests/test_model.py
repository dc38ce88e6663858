"""The reference model held against RocketMQ's decisions, the rules' plain cases, and what must always be true."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import oracle
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from model import (
    LONG_MAX,
    Half,
    LandingRefused,
    Model,
    Op,
    Override,
    Settings,
    own_immunity,
    split_body,
    undeliverable,
)
from strategies import (
    START,
    History,
    Land,
    Reordered,
    Resume,
    Run,
    half_lines,
    histories,
    op_lines,
    op_rows,
    play,
    reorderings,
)

HOUR = 3_600_000
Q = ("b", 0)

thorough = hypothesis_settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# RocketMQ's own decisions


@pytest.mark.parametrize("folder", oracle.folders(), ids=lambda folder: folder.name)
def test_decides_as_rocketmq_does(folder: Path) -> None:
    model = Model(oracle.settings(folder))
    halves = oracle.halves(folder)
    model.land(halves, oracle.ops(folder), oracle.NOW, {(half.broker, half.queue): oracle.NOW for half in halves})
    decided = {decision.key: decision for decision in model.run(oracle.NOW) if decision.decision != "EARLY_OP"}
    wrong = [
        (case, decided.get(case.key)) for case in oracle.expected(folder) if not case.agrees(decided.get(case.key))
    ]
    assert wrong == []


# Plain cases


def half(offset: int = 0, **columns: Any) -> Half:
    given: dict[str, Any] = {
        "commit_log_offset": offset % 1000 * 100,
        "uniq_key": f"k{offset}",
        "group": "g",
        "real_topic": "T",
        "real_qid": "3",
        "born": START,
        "store": START,
    }
    return Half(*Q, offset, **(given | columns))


def op(half_offset: int = 0, outcome: str | None = "COMMIT", offset: int = 0, **columns: Any) -> Op:
    return op_rows(Q, offset, str(half_offset), [outcome], START, **columns)[0]


def decide(model: Model, now: int, *landed: Half | Op) -> tuple[str, str | None]:
    """Land the rows at `now`, run, and say what became of the half message at offset 0 (or of an op that waits for
    it).
    """
    halves, ops = [row for row in landed if isinstance(row, Half)], [row for row in landed if isinstance(row, Op)]
    model.land(halves, ops, now, {Q: now})
    found = [decision for decision in model.run(now) if decision.key == (*Q, 0)]
    return (found[-1].decision, found[-1].reason) if found else ("NOTHING", None)


def rejects(model: Model) -> list[tuple[str, str]]:
    return [(rejected.kind, rejected.reason) for rejected in model.rejected]


@pytest.mark.parametrize(
    ("age", "columns", "expected"),
    [
        (6_000, {}, ("WAIT", "IMMUNE")),
        (6_001, {}, ("CHECK", "TIMEOUT")),
        (0, {}, ("WAIT", "FRESH")),
        (1, {"born": START + 2}, ("CHECK", "CLOCK_SKEW")),
        (1, {"born": START + 2, "immunity": "0"}, ("WAIT", "IMMUNE")),
        (7_000, {"immunity": "7"}, ("WAIT", "IMMUNE")),
        (7_001, {"immunity": "7"}, ("CHECK", "TIMEOUT")),
        (6_000, {"immunity": " 7"}, ("WAIT", "IMMUNE")),
        (6_001, {"immunity": "7.0"}, ("CHECK", "TIMEOUT")),
        (1, {"immunity": "-7"}, ("CHECK", "TIMEOUT")),
        (72 * HOUR, {"immunity": "9223372036854776"}, ("WAIT", "IMMUNE")),
        (72 * HOUR + 1, {"immunity": "9223372036854776"}, ("DISCARD", "EXPIRED")),
        (59_999, {"check_times": "15"}, ("WAIT", "CHECKED_RECENTLY")),
        (60_000, {"check_times": "15"}, ("DISCARD", "CHECKED_TOO_OFTEN")),
        (60_000, {"check_times": "15", "immunity": "0"}, ("CHECK", "TIMEOUT")),  # raised within its own immunity
        (6_001, {"check_times": "-3"}, ("CHECK", "TIMEOUT")),
        (6_001, {"group": None}, ("REJECT", "NO_PRODUCER_GROUP")),
        (6_001, {"real_topic": "a b"}, ("REJECT", "BAD_REAL_TOPIC")),
        (6_001, {"real_qid": "x"}, ("REJECT", "BAD_REAL_QUEUE")),
        (6_001, {"real_topic": "rMq_sYs_x"}, ("REJECT", "SYSTEM_TOPIC")),
    ],
)
def test_an_open_message_by_the_table(age: int, columns: dict[str, Any], expected: tuple[str, str]) -> None:
    assert decide(Model(Settings()), START + age, half(**columns)) == expected


def test_the_producer_is_asked_check_max_times_and_the_next_look_discards() -> None:
    model = Model(Settings(check_max=2))
    assert decide(model, START + 6_001, half()) == ("CHECK", "TIMEOUT")
    assert decide(model, START + 66_000) == ("WAIT", "CHECKED_RECENTLY")
    assert decide(model, START + 66_001) == ("CHECK", "TIMEOUT")
    assert decide(model, START + 126_000) == ("WAIT", "CHECKED_RECENTLY")
    assert decide(model, START + 126_001) == ("DISCARD", "CHECKED_TOO_OFTEN")
    assert [request.check_times for request in model.requests] == [1, 2]


def test_a_resumed_message_is_open_again_and_counts_its_age_from_there() -> None:
    model = Model(Settings())
    late = START + 73 * HOUR
    assert decide(model, late, half()) == ("DISCARD", "EXPIRED")
    model.resume((*Q, 0), late + 1)
    assert decide(model, late + 2) == ("CHECK", "TIMEOUT")
    assert decide(model, late + 1 + 72 * HOUR) == ("CHECK", "TIMEOUT")
    assert decide(model, late + 60_001 + 72 * HOUR) == ("DISCARD", "EXPIRED")


def test_an_op_ends_a_discarded_message_and_a_resume_after_it_is_refused() -> None:
    model = Model(Settings())
    decide(model, START + 73 * HOUR, half())
    model.resume((*Q, 0), START + 73 * HOUR)
    assert decide(model, START + 74 * HOUR, op()) == ("COMMIT", "AFTER_DISCARD")
    assert rejects(model) == [("RESUME", "ENDED")]
    assert len(model.delivered) == 1


def test_only_what_is_discarded_can_be_resumed() -> None:
    model = Model(Settings())
    for offset in (0, 1, 99):
        model.resume((*Q, offset), START)
    decide(model, START + 1, half(), half(1, real_topic=None))
    assert rejects(model) == [
        ("RESUME", "OPEN"),
        ("RESUME", "HALF_REJECTED"),
        ("RESUME", "UNKNOWN"),
        ("HALF", "BAD_REAL_TOPIC"),
    ]


def test_no_time_passes_while_ops_do_not_land() -> None:
    model = Model(Settings())
    for known, expected in [(None, "FRESH"), (START, "FRESH"), (START + 6_000, "IMMUNE"), (START + 6_001, "TIMEOUT")]:
        model.land([half()], [], START, {Q: known})
        assert model.run(START + HOUR)[0].reason == expected
    assert model.run(START + 2 * HOUR)[0].reason == "CHECKED_RECENTLY"


def test_the_lowest_visible_op_wins_and_later_ones_change_nothing() -> None:
    model = Model(Settings())
    ops = [op(0, "ROLLBACK", 5, from_check=True), op(0, "COMMIT", 7), op(0, "ROLLBACK", 6)]
    assert decide(model, START, half(), *ops) == ("ROLLBACK", "CHECK")
    assert decide(model, START, op(0, "COMMIT", 1)) == ("NOTHING", None)
    assert rejects(model) == [("OP", "REDUNDANT"), ("OP", "CONFLICT"), ("OP", "CONFLICT")]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"tag": "D", "body": None}, "ILLEGAL_TAG"),
        ({"body": None, "half_offset": None, "outcome": None}, "NULL_BODY"),
        ({"body": " 0", "half_offset": None, "outcome": None}, "GARBAGE_OFFSET"),
        ({"outcome": "commit", "half_offset": -1}, "NO_OUTCOME"),
        ({"group": "other", "tran_state_table_offset": 9}, "WRONG_PRODUCER_GROUP"),
        ({"group": "g", "tran_state_table_offset": 9, "commit_log_offset": 9}, "WRONG_STATE_TABLE_OFFSET"),
        ({"group": "g", "tran_state_table_offset": 0, "commit_log_offset": 9}, "WRONG_COMMIT_LOG_OFFSET"),
        ({"group": "g", "from_check": False, "born": START + 7_001}, "TOO_LATE"),
    ],
)
def test_an_op_that_is_not_valid(columns: dict[str, Any], reason: str) -> None:
    model = Model(Settings())
    assert decide(model, START, half(immunity="7"), replace(op(), **columns)) == ("WAIT", "FRESH")
    assert rejects(model) == [("OP", reason)]


@pytest.mark.parametrize(
    "columns",
    [{"from_check": None}, {"from_check": True}, {"born": START + 7_000}, {"group": None}],
)
def test_an_op_that_is_not_too_late(columns: dict[str, Any]) -> None:
    headed = replace(op(), group="g", from_check=False, born=START + 7_001)
    assert decide(Model(Settings()), START, half(immunity="7"), replace(headed, **columns))[0] == "COMMIT"


def test_an_early_op_waits_for_its_half_message() -> None:
    model = Model(Settings())
    assert decide(model, START, op()) == ("EARLY_OP", None)
    assert decide(model, START + 1) == ("EARLY_OP", None)
    assert decide(model, START + 2, half()) == ("COMMIT", "PRODUCER")


def test_an_op_below_the_queues_first_offset_is_rejected_at_once() -> None:
    model = Model(Settings())
    assert decide(model, START, op()) == ("EARLY_OP", None)
    assert decide(model, START + 1, half(1)) == ("NOTHING", None)
    assert rejects(model) == [("OP", "HALF_BEFORE_LANDING")]


def test_an_op_in_a_hole_is_rejected_when_file_reserved_time_has_passed() -> None:
    model = Model(Settings(file_reserved_time=1000))
    model.land([replace(half(), offset=LONG_MAX)], [op(LONG_MAX - 1)], START, {Q: START})
    model.land([replace(half(), offset=7)], [], START)
    model.run(START + 999)
    assert ("OP", "HALF_NEVER_LANDED") not in rejects(model)
    model.run(START + 1000)
    assert ("OP", "HALF_NEVER_LANDED") in rejects(model)


def test_rejected_rows_block_no_corrected_ones() -> None:
    model = Model(Settings())
    assert decide(model, START, half(real_qid="x"), op()) == ("REJECT", "BAD_REAL_QUEUE")
    assert decide(model, START, half()) == ("WAIT", "FRESH")
    assert decide(model, START, op(0, None)) == ("WAIT", "FRESH")
    assert decide(model, START, op()) == ("COMMIT", "PRODUCER")
    assert rejects(model) == [("OP", "HALF_REJECTED"), ("HALF", "BAD_REAL_QUEUE"), ("OP", "NO_OUTCOME")]


@pytest.mark.parametrize("columns", [{"commit_log_offset": 7}, {"store": START + 1}, {"uniq_key": None}])
def test_a_reused_key_is_rejected_and_its_queue_takes_nothing_more(columns: dict[str, Any]) -> None:
    model = Model(Settings())
    decide(model, START, half(), half(), op())
    decide(model, START, half(), op())
    assert rejects(model) == []
    decide(model, START, half(**columns))
    assert rejects(model) == [("HALF", "KEY_REUSED")]
    with pytest.raises(LandingRefused):
        model.land([half(1)], [], START)


def test_a_broker_that_asks_itself_is_only_watched() -> None:
    model = Model(Settings(ask=False))
    assert decide(model, START + 6_001, half(), half(1, check_times="15")) == ("WAIT", "BROKER_ASKS")
    model.land([], [], START, {Q: START + 73 * HOUR})
    assert {decision.reason for decision in model.run(START + 73 * HOUR)} == {"BROKER_ASKS"}
    assert (model.requests, model.discards) == ([], [])


def test_a_topics_setting_wins_over_its_groups() -> None:
    overrides = Settings(groups={"g": Override(1_000, 1)}, topics={"T": Override(transaction_timeout=9_000)})
    assert overrides.timeout_of(half()) == 9_000
    assert overrides.check_max_of(half()) == 1
    assert decide(Model(overrides), START + 9_000, half()) == ("WAIT", "IMMUNE")


def test_items_of_a_body() -> None:
    assert split_body(f"0,+3,,03, 3,-1,{LONG_MAX},{LONG_MAX + 1},") == [
        (0, "0", 0),
        (1, "+3", 3),
        (2, "03", 3),
        (3, " 3", None),
        (4, "-1", None),
        (5, str(LONG_MAX), LONG_MAX),
        (6, str(LONG_MAX + 1), None),
    ]
    assert split_body(",") == []


# What must always be true


@thorough
@given(histories())
def test_a_transaction_ends_once_and_is_delivered_once(history: History) -> None:
    model = play(history).model
    delivered = Counter(row.key for row in model.delivered)
    ended = Counter(decision.key for decision in model.decisions if decision.decision in ("COMMIT", "ROLLBACK"))
    assert set(delivered.values()) <= {1}
    assert set(ended.values()) <= {1}
    assert set(delivered) == {key for key, known in model.transactions.items() if known.status == "COMMIT"}


@thorough
@given(histories())
def test_every_half_message_gets_one_decision_a_run_until_it_is_closed(history: History) -> None:
    model = play(history).model
    looked_at = [d for d in model.decisions if d.decision != "EARLY_OP"]
    assert max(Counter((d.run, d.key) for d in looked_at).values(), default=0) <= 1
    assert {d.key for d in looked_at} == set(model.transactions)
    closed: dict[object, str] = {}
    for decision in looked_at:
        assert closed.get(decision.key) not in ("COMMIT", "ROLLBACK")
        closed[decision.key] = decision.decision


@thorough
@given(histories())
def test_every_op_row_is_accounted_for(history: History) -> None:
    played = play(history)
    model = played.model
    used = {(d.key[:2], d.op_offset) for d in model.decisions if d.op_offset is not None}
    rejected = {((r.broker, r.queue), r.queue_offset, r.item) for r in model.rejected if r.kind == "OP"}
    for number, step in enumerate(history.steps):
        if isinstance(step, Land) and number not in played.refused:
            for row in step.ops:
                queue = (row.broker, row.queue)
                assert (queue, row.offset) in used or (queue, row.offset, row.item) in rejected


@thorough
@given(histories())
def test_nobody_is_asked_or_discarded_before_the_rules_allow_it(history: History) -> None:
    model = play(history).model
    nows = [step.now for step in history.steps if isinstance(step, Run)]
    rules = history.settings
    asked: dict[object, int] = {}
    for decision in model.decisions:
        if decision.decision == "CHECK":
            now = nows[decision.run - 1]
            assert may_be_asked(model.transactions[decision.key].half, now, history.settings)
            assert decision.check_times <= max(history.settings.check_max_of(model.transactions[decision.key].half), 0)
            assert (
                now - asked.get(decision.key, now - history.settings.check_interval) >= history.settings.check_interval
            )
            asked[decision.key] = now
    assert rules.ask or not asked
    assert rules.ask or not model.discards


def may_be_asked(known: Half, now: int, rules: Settings) -> bool:
    immunity = own_immunity(known, rules.timeout_of(known))
    left_alone = rules.timeout_of(known) if immunity is None else immunity
    age = now - known.born
    return bool(known.group) and undeliverable(known) is None and (age < 0 or age > left_alone)


@thorough
@given(histories())
def test_landing_everything_again_changes_nothing(history: History) -> None:
    played = play(history)
    model = played.model
    if model.refused_queues or any(isinstance(step, Resume) for step in history.steps):
        return
    ends = {key: known.status for key, known in model.transactions.items() if known.status in ("COMMIT", "ROLLBACK")}
    delivered = list(model.delivered)
    for step in history.steps:
        if isinstance(step, Land):
            model.land(step.halves, step.ops, model.now, {})
    decisions = model.run(model.now)
    assert not {d.key for d in decisions} & set(ends)
    assert [row for row in model.delivered if row.key in {d.key for d in delivered}] == delivered


def ends_of(history: History) -> tuple[dict[object, str], set[object], set[object]]:
    """How the transactions ended, what was delivered, and which half messages were rejected, whenever that was."""
    model = play(history).model
    ends: dict[object, str] = {
        key: known.status
        for key, known in model.transactions.items()
        if known.status in ("COMMIT", "ROLLBACK", "REJECT")
    }
    delivered: set[object] = {replace(row, run=0, op_offset=0) for row in model.delivered}
    rejected: set[object] = {replace(row, run=0) for row in model.rejected if row.kind == "HALF"}
    return ends, delivered, rejected


@thorough
@given(reorderings())
def test_the_same_transactions_end_the_same_way_whatever_the_order_and_the_slicing(reordered: Reordered) -> None:
    assert ends_of(reordered.first) == ends_of(reordered.second)


@given(histories())
def test_rows_survive_the_way_through_json(history: History) -> None:
    for step in history.steps:
        if isinstance(step, Land):
            lines = json.loads(json.dumps([*half_lines(step.halves), *op_lines(step.ops)]))
            offsets = [row.offset for row in step.halves] + [row.offset for row in step.ops]
            assert [line["queue_offset"] for line in lines] == offsets
            for row, line in zip(step.halves, half_lines(step.halves), strict=True):
                assert oracle.half(line) == row
