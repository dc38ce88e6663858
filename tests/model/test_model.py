"""The reference model held against RocketMQ's decisions, the rules' plain cases, and what must always be true."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from support.halves import half_at

from model import oracle
from model.lineage import Transaction
from model.reference import (
    LONG_MAX,
    ROCKSDB_QUEUES,
    Ask,
    BrokerDiscard,
    Decision,
    Final,
    Half,
    Key,
    LandingRefused,
    Model,
    Op,
    Override,
    Settings,
    own_immunity,
    split_body,
    undeliverable,
)
from model.strategies import (
    START,
    History,
    Land,
    Reordered,
    Resume,
    Run,
    copied_histories,
    half_lines,
    histories,
    op_lines,
    op_rows,
    play,
    reorderings,
)

HOUR = 3_600_000
Q = ("b", 0)


# RocketMQ's own decisions


@pytest.mark.parametrize("folder", oracle.folders(), ids=lambda folder: folder.name)
def test_decides_as_rocketmq_does(folder: Path) -> None:
    model = Model(oracle.settings(folder))
    # each case has a broker of its own, and copies may be on several brokers
    halves = [replace(half, uniq_key=half.uniq_key and half.broker + half.uniq_key) for half in oracle.halves(folder)]
    model.land(halves, oracle.ops(folder), oracle.NOW, {(half.broker, half.queue): oracle.NOW for half in halves})
    decided = {decision.key: decision for decision in model.run(oracle.NOW) if decision.decision != "EARLY_OP"}
    wrong = [
        (case, decided.get(case.key)) for case in oracle.expected(folder) if not case.agrees(decided.get(case.key))
    ]
    assert wrong == []


# Plain cases


def half(offset: int = 0, **columns: Any) -> Half:
    return half_at(Q, offset, START, **columns)


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
        (6_001, {"group": None}, ("DISCARD", "NO_PRODUCER_GROUP")),
        (6_000, {"group": None}, ("WAIT", "IMMUNE")),
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
        ({"outcome": "commit", "half_offset": -1}, "GARBAGE_OFFSET"),
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
    assert decide(model, START + 2, half()) == ("COMMIT", "PRODUCER")


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
    assert decide(model, START, half()) == ("COMMIT", "PRODUCER")
    assert rejects(model) == [("OP", "HALF_REJECTED"), ("HALF", "BAD_REAL_QUEUE")]


def test_an_op_without_outcome_blocks_no_corrected_one() -> None:
    model = Model(Settings())
    assert decide(model, START, half(), op(0, None)) == ("WAIT", "FRESH")
    assert decide(model, START, op()) == ("COMMIT", "PRODUCER")
    assert rejects(model) == [("OP", "NO_OUTCOME")]


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
    model.land([], [], START, {Q: START + 7 * 24 * HOUR})
    assert {(d.decision, d.reason) for d in model.run(START + 7 * 24 * HOUR)} == {("DISCARD", "END_NOT_SEEN")}


@pytest.mark.parametrize(
    ("ask", "source", "reason"),
    [
        ("auto", "FILES", "TIMEOUT"),
        ("auto", "STORE", "BROKER_ASKS"),
        ("auto", "BROKER", "BROKER_ASKS"),
        (True, "STORE", "TIMEOUT"),
        (False, "FILES", "BROKER_ASKS"),
    ],
)
def test_whether_to_ask_goes_by_what_a_broker_was_landed_by(ask: Ask, source: str, reason: str) -> None:
    model = Model(Settings(ask=ask))
    model.land([half()], [], START + 6_001, {Q: START + 6_001}, sources={Q[0]: source})
    assert [decision.reason for decision in model.run(START + 6_001)] == [reason]


@pytest.mark.parametrize(
    ("columns", "said", "after"),
    [
        ({}, None, 6_000 + 4 * 10_000),
        ({}, 77_000, 6_000 + 77_000),
        ({"immunity": "20"}, None, 20_000 + 4 * 10_000),
        ({"immunity": "0", "store": START + 5_000}, None, 5_000 + 4 * 10_000),
        ({"immunity": "x", "check_times": "9"}, None, 6_000 + 4 * 10_000),
    ],
)
def test_a_broker_forgets_what_it_keeps_in_rocksdb(columns: dict[str, Any], said: int | None, after: int) -> None:
    there = (Q[0], ROCKSDB_QUEUES)
    model = Model(Settings(check_max=2, check_interval=10_000, ask=False))
    parked = replace(half(**columns), queue=there[1])
    model.land([parked], [], START, forgets_after={} if said is None else {there: said})
    assert [decision.reason for decision in model.run(START + after - 1)] == ["BROKER_ASKS"]
    assert [decision.reason for decision in model.run(START + after)] == ["FORGOTTEN_BY_BROKER"]
    model.resume(parked.key, START + after)
    assert [decision.decision for decision in model.run(START + after + 1)] == ["WAIT"]
    model.land([], [replace(op(), queue=there[1])], START + after + 2)
    assert [decision.decision for decision in model.run(START + after + 2)] == ["COMMIT"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [("7", "HALF_BEFORE_LANDING"), ("-1", "GARBAGE_OFFSET"), (f"{LONG_MAX + 1}", "GARBAGE_OFFSET")],
)
def test_an_op_may_name_a_place_from_which_nothing_has_landed(body: str, reason: str) -> None:
    model = Model(Settings())
    model.land([], [replace(op(), queue=ROCKSDB_QUEUES, body=body, half_offset=None)], START)
    model.run(START)
    assert rejects(model) == [("OP", reason)]


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


# Put-back copies, final messages, a broker's own discards: what each run says, by half offset

STEP = 100_000  # between runs: long enough for every open message to be asked again
OPEN = "CHECK TIMEOUT"

UNFIT = [half(group=None), half(1, check_times="15"), half(2, real_qid="x")]  # for lines 4, 5 and 1

Row = Half | Op | Final | BrokerDiscard
Told = dict[int, str]


def copy(offset: int, check_times: str | None = "1", **columns: Any) -> Half:
    """What a broker's check made of half(0), a second later with each offset."""
    given = {"uniq_key": "k0", "check_times": check_times, "store": START + offset * 1_000}
    return half(offset, **(given | columns))


def final(half_offset: int = 0, **columns: Any) -> Final:
    """The delivery of the half message at an offset."""
    given = Final(Q[0], half_offset * 100, "T", 3, 50 + half_offset, "k0", START)
    return replace(given, **columns)


def discard(second: int = 50, **columns: Any) -> BrokerDiscard:
    """What says that the broker gave up half(0) in a second after START."""
    return replace(BrokerDiscard(Q[0], 0, 100 + second, "k0", "g", START, 15, START + second * 1_000), **columns)


def resume(offset: int) -> int:
    """Our own resume of the half message at an offset."""
    return offset


def tell(model: Model, *landings: list[Row | int]) -> list[Told]:
    """Land all that is given and run, STEP after STEP; what each run said."""
    return [told_by(run_with(model, landed)) for landed in landings]


def run_with(model: Model, landed: list[Row | int]) -> list[Decision]:
    now = max(model.now, START) + STEP
    finals = [row for row in landed if isinstance(row, Final)]
    discards = [row for row in landed if isinstance(row, BrokerDiscard)]
    halves, ops = [row for row in landed if isinstance(row, Half)], [row for row in landed if isinstance(row, Op)]
    model.land(halves, ops, now, finals=finals, discards=discards)
    for offset in landed:
        if isinstance(offset, int):
            model.resume((*Q, offset), now)
    return model.run(now)


def told_by(decisions: list[Decision]) -> Told:
    """As `DECISION REASON`, and `by OFFSET` where superseded."""
    by = {d.key: "" if d.superseded_by is None else f"by {d.superseded_by}" for d in decisions}
    return {d.key[2]: " ".join(part for part in (d.decision, d.reason, by[d.key]) if part) for d in decisions}


COPIES: dict[str, tuple[list[list[Row | int]], list[Told]]] = {
    "the highest copy is the live one, the others are superseded by it": (
        [[half(), copy(4), copy(7)], []],
        [{0: "SUPERSEDED by 7", 4: "SUPERSEDED by 7", 7: OPEN}, {7: OPEN}],
    ),
    "a higher copy that lands later supersedes the one that was live": (
        [[half()], [copy(4)], [copy(7)]],
        [{0: OPEN}, {0: "SUPERSEDED by 4", 4: OPEN}, {4: "SUPERSEDED by 7", 7: OPEN}],
    ),
    "a lower copy that lands later is superseded at once": (
        [[half(), copy(7)], [copy(4)]],
        [{0: "SUPERSEDED by 7", 7: OPEN}, {4: "SUPERSEDED by 7", 7: OPEN}],
    ),
    "a copy has raised check times or TRAN_PREPARED_QUEUE_OFFSET": (
        [[half(), copy(4, None, prepared_offset="0")]],
        [{0: "SUPERSEDED by 4", 4: OPEN}],
    ),
    "a message with neither is a transaction of its own": (
        [[half(), copy(4, None), copy(7, "", prepared_offset="")]],
        [{0: OPEN, 4: OPEN, 7: OPEN}],
    ),
    "a message without UNIQ_KEY is a transaction of its own": (
        [[half(uniq_key=None), copy(4, uniq_key=None), half(5, uniq_key=""), copy(7, uniq_key="")]],
        [{0: OPEN, 4: OPEN, 5: OPEN, 7: OPEN}],
    ),
    "copies agree in group, UNIQ_KEY, birth and queue": (
        [[half(), copy(4, group="h"), copy(5, uniq_key="k1"), copy(7, born=START + 1), replace(copy(8), queue=1)]],
        [{0: OPEN, 4: OPEN, 5: OPEN, 7: OPEN, 8: OPEN}],
    ),
    "a copy joins the nearest of twins below it": (
        [[half(), copy(3, None), copy(4)], [copy(2)]],
        [{0: OPEN, 3: "SUPERSEDED by 4", 4: OPEN}, {0: "SUPERSEDED by 2", 2: OPEN, 4: OPEN}],
    ),
    "copies whose original has not landed are one transaction, which it joins later": (
        [[copy(4), copy(7)], [copy(2)], [half()]],
        [{4: "SUPERSEDED by 7", 7: OPEN}, {2: "SUPERSEDED by 7", 7: OPEN}, {0: "SUPERSEDED by 7", 7: OPEN}],
    ),
    "of twins that land after a copy the nearest one joins it": (
        [[copy(7)], [half(), copy(4, None)], [copy(3, None)]],
        [{7: OPEN}, {0: OPEN, 4: "SUPERSEDED by 7", 7: OPEN}, {0: OPEN, 3: OPEN, 7: OPEN}],
    ),
    "a twin that lands late takes no copy away": (
        [[half(), copy(7)], [copy(4, None)], [copy(5), copy(8)]],
        [
            {0: "SUPERSEDED by 7", 7: OPEN},
            {4: OPEN, 7: OPEN},
            {4: "SUPERSEDED by 8", 5: "SUPERSEDED by 8", 7: OPEN, 8: OPEN},
        ],
    ),
    "an op on any copy ends the transaction, at the live copy's key": (
        [[half(), copy(4), copy(7)], [op(4)], []],
        [{0: "SUPERSEDED by 7", 4: "SUPERSEDED by 7", 7: OPEN}, {7: "COMMIT PRODUCER"}, {}],
    ),
    "a copy superseded in the run that ends its transaction has no reason": (
        [[half()], [copy(4), op(0, "ROLLBACK", from_check=True)]],
        [{0: OPEN}, {0: "SUPERSEDED by 4", 4: "ROLLBACK CHECK"}],
    ),
    "a copy that lands after the end is decided with it, higher or lower": (
        [[copy(4), op(4)], [copy(7), half()], [copy(5)]],
        [
            {4: "COMMIT PRODUCER"},
            {0: "SUPERSEDED ALREADY_ENDED by 4", 7: "SUPERSEDED ALREADY_ENDED by 4"},
            {5: "SUPERSEDED ALREADY_ENDED by 4"},
        ],
    ),
    "an op that waits for a copy ends the transaction when it lands": (
        [[half(), op(4)], [copy(4)]],
        [{0: OPEN, 4: "EARLY_OP"}, {0: "SUPERSEDED by 4", 4: "COMMIT PRODUCER"}],
    ),
    "a copy that lands after a discard is decided with it; an op on it still ends the transaction": (
        [[copy(4, "15")], [copy(7, "16"), half()], [op(7)]],
        [
            {4: "DISCARD CHECKED_TOO_OFTEN"},
            {0: "SUPERSEDED ALREADY_ENDED by 4", 7: "SUPERSEDED ALREADY_ENDED by 4"},
            {4: "COMMIT AFTER_DISCARD"},
        ],
    ),
    "a resume by any copy opens the discarded one again": (
        [[half(), copy(4, "15")], [copy(7, "16")], [resume(0)], [copy(8)]],
        [
            {0: "SUPERSEDED by 4", 4: "DISCARD CHECKED_TOO_OFTEN"},
            {7: "SUPERSEDED ALREADY_ENDED by 4"},
            {4: OPEN},
            {4: "SUPERSEDED by 8", 8: OPEN},
        ],
    ),
    "a transaction is rejected for its live copy alone": (
        [[half(real_qid="x"), copy(4)], [copy(7, real_qid="x")], [copy(8)]],
        [
            {0: "SUPERSEDED by 4", 4: OPEN},
            {4: "SUPERSEDED by 7", 7: "REJECT BAD_REAL_QUEUE"},
            {8: OPEN},
        ],
    ),
    "a lower copy of a rejected one is superseded": (
        [[copy(4, real_qid="x")], [half(real_qid="x")], [copy(4, real_qid="x")]],
        [{4: "REJECT BAD_REAL_QUEUE"}, {0: "SUPERSEDED by 4"}, {}],
    ),
    "a corrected copy replaces the rejected one": (
        [[half(), copy(4, real_topic=None)], [copy(4)]],
        [{0: "SUPERSEDED by 4", 4: "REJECT BAD_REAL_TOPIC"}, {4: OPEN}],
    ),
    "copies that land again count once": (
        [[half(), copy(4), copy(4)], [half(), copy(4)], [op()], [copy(4)]],
        [{0: "SUPERSEDED by 4", 4: OPEN}, {4: OPEN}, {4: "COMMIT PRODUCER"}, {}],
    ),
}

FINALS: dict[str, tuple[list[list[Row | int]], list[Told]]] = {
    "a final message is the proof of a commit whose op was lost": (
        [[half(), half(1, uniq_key=None), final()], [final(1)], [final(1)]],
        [{0: "COMMIT FINAL", 1: OPEN}, {1: "COMMIT FINAL"}, {}],
    ),
    "a valid op wins over it": ([[half(), op(0, "ROLLBACK"), final()], []], [{0: "ROLLBACK PRODUCER"}, {}]),
    "an op that is not valid does not": ([[half(), op(0, None), final()]], [{0: "COMMIT FINAL"}]),
    "an op that waits for another half message does not": (
        [[half(), op(4), final()], [copy(4)]],
        [{0: "COMMIT FINAL", 4: "EARLY_OP"}, {4: "SUPERSEDED ALREADY_ENDED by 0"}],
    ),
    "it says nothing of another broker, place or message": (
        [[half(), final(broker="c"), final(1), final(uniq_key="k1")]],
        [{0: OPEN}],
    ),
    "its UNIQ_KEY is compared only where both have one": (
        [[half(), half(4, uniq_key=None), final(uniq_key=None), final(4)]],
        [{0: "COMMIT FINAL", 4: "COMMIT FINAL"}],
    ),
    "it waits for its half message": ([[final()], [half()]], [{}, {0: "COMMIT FINAL"}]),
    "it may be of any copy": (
        [[half(), copy(4), copy(7)], [final(4)]],
        [{0: "SUPERSEDED by 7", 4: "SUPERSEDED by 7", 7: OPEN}, {7: "COMMIT FINAL"}],
    ),
    "it ends a discarded transaction": (
        [[half(check_times="15")], [final()]],
        [{0: "DISCARD CHECKED_TOO_OFTEN"}, {0: "COMMIT AFTER_DISCARD"}],
    ),
    "it wins over the lines below, line 1 wins over it": (
        [
            [*UNFIT, final(), final(1, uniq_key="k1"), final(2, uniq_key="k2")],
            [final(2, uniq_key="k2")],
        ],
        [{0: "COMMIT FINAL", 1: "COMMIT FINAL", 2: "REJECT BAD_REAL_QUEUE"}, {}],
    ),
    "it may be of a copy below a rejected one: line 1 goes by the live copy": (
        [[half(), copy(4, real_qid="x"), final()]],
        [{0: "SUPERSEDED by 4", 4: "REJECT BAD_REAL_QUEUE"}],
    ),
    "it changes nothing that is rejected": (
        [[half(real_qid="x")], [final()]],
        [{0: "REJECT BAD_REAL_QUEUE"}, {}],
    ),
}

DISCARDS: dict[str, tuple[list[list[Row | int]], list[Told]]] = {
    "the broker's own discard discards an open transaction": (
        [[half()], [discard()], []],
        [{0: OPEN}, {0: "DISCARD BROKER_DISCARDED"}, {}],
    ),
    "it waits for its half message": ([[discard()], [half()]], [{}, {0: "DISCARD BROKER_DISCARDED"}]),
    "it names group, UNIQ_KEY and birth": (
        [
            [half(), discard(2, group="h"), discard(3, uniq_key="k7")],
            [half(1, uniq_key=None), discard(4, born=START + 1), discard(5, uniq_key=None)],
        ],
        [{0: OPEN}, {0: OPEN, 1: OPEN}],
    ),
    "it stands at the live copy": (
        [[half(), copy(4)], [discard()], [copy(7)]],
        [{0: "SUPERSEDED by 4", 4: OPEN}, {4: "DISCARD BROKER_DISCARDED"}, {7: "SUPERSEDED ALREADY_ENDED by 4"}],
    ),
    "ops and final messages win over it, at once and later": (
        [
            [half(), discard(), op()],
            [half(1), half(2), discard(1, uniq_key="k1"), final(1, uniq_key="k1")],
            [discard(2, uniq_key="k2")],
            [op(2, "ROLLBACK", 1)],
        ],
        [
            {0: "COMMIT PRODUCER"},
            {1: "COMMIT FINAL", 2: OPEN},
            {2: "DISCARD BROKER_DISCARDED"},
            {2: "ROLLBACK AFTER_DISCARD"},
        ],
    ),
    "line 1 wins over it, it wins over lines 4 to 11": (
        [[*UNFIT, discard(0, group=""), discard(1, uniq_key="k1"), discard(2, uniq_key="k2")]],
        [{0: "DISCARD BROKER_DISCARDED", 1: "DISCARD BROKER_DISCARDED", 2: "REJECT BAD_REAL_QUEUE"}],
    ),
    "it changes nothing that is discarded already": (
        [[half(check_times="15")], [discard()]],
        [{0: "DISCARD CHECKED_TOO_OFTEN"}, {}],
    ),
    "it can be resumed, and only a later discard counts again": (
        [[half(), discard()], [resume(0)], [discard(51)], [discard(1_000)]],
        [{0: "DISCARD BROKER_DISCARDED"}, {0: OPEN}, {0: OPEN}, {0: "DISCARD BROKER_DISCARDED"}],
    ),
    "each of twins takes one record, the lowest first": (
        [[half(), copy(4, None), copy(5), discard(50)], [discard(50)], [discard(51)], [discard(52)]],
        [
            {0: "DISCARD BROKER_DISCARDED", 4: "SUPERSEDED by 5", 5: OPEN},
            {5: OPEN},
            {5: "DISCARD BROKER_DISCARDED"},
            {},
        ],
    ),
    "a twin that has ended takes none": (
        [[half(), copy(4, None), op(), discard()]],
        [{0: "COMMIT PRODUCER", 4: "DISCARD BROKER_DISCARDED"}],
    ),
    "a later copy with check times 0 is the broker's resume": (
        [[half(), copy(4), discard()], [copy(60, "0")], [op(4)]],
        [{0: "SUPERSEDED by 4", 4: "DISCARD BROKER_DISCARDED"}, {60: OPEN}, {60: "COMMIT PRODUCER"}],
    ),
    "of our own discard too; copies of the same landing are superseded": (
        [[half(check_times="15")], [copy(4, "16"), copy(60, "+00"), copy(70, "1")]],
        [
            {0: "DISCARD CHECKED_TOO_OFTEN"},
            {4: "SUPERSEDED by 70", 60: "SUPERSEDED by 70", 70: OPEN},
        ],
    ),
    "only a number 0, and only above all that has landed": (
        [[half(), copy(4), discard()], [copy(60, "x"), copy(61, None, prepared_offset="4")], [copy(59, "0")]],
        [
            {0: "SUPERSEDED by 4", 4: "DISCARD BROKER_DISCARDED"},
            {60: "SUPERSEDED ALREADY_ENDED by 4", 61: "SUPERSEDED ALREADY_ENDED by 4"},
            {59: "SUPERSEDED ALREADY_ENDED by 4"},
        ],
    ),
    "discard and resume that land together, or in the other order, leave it open": (
        [[half(), discard(), copy(60, "0")], [discard(59)], [discard(61)]],
        [{0: "SUPERSEDED by 60", 60: OPEN}, {60: OPEN}, {60: "DISCARD BROKER_DISCARDED"}],
    ),
    "the newest resume counts": (
        [[half(), discard(50), copy(60, "0"), discard(65), copy(70, "0")]],
        [{0: "SUPERSEDED by 70", 60: "SUPERSEDED by 70", 70: OPEN}],
    ),
    "a record that a resume undid is no twin's": (
        [[half(), discard(2), copy(3, "0"), copy(4, None)]],
        [{0: "SUPERSEDED by 3", 3: OPEN, 4: OPEN}],
    ),
    "a resume that lands before its discard": (
        [[half(), copy(60, "0")], [discard(60)], [discard(61)]],
        [{0: "SUPERSEDED by 60", 60: OPEN}, {60: OPEN}, {60: "DISCARD BROKER_DISCARDED"}],
    ),
    "a resume of a transaction that has ended opens nothing": (
        [[half(), op(), discard()], [copy(60, "0")]],
        [{0: "COMMIT PRODUCER"}, {60: "SUPERSEDED ALREADY_ENDED by 0"}],
    ),
}

CASES = COPIES | FINALS | DISCARDS


@pytest.mark.parametrize("sentence", CASES)
def test_a_brokers_own_rows(sentence: str) -> None:
    landings, expected = CASES[sentence]
    assert tell(Model(Settings()), *landings) == expected


@pytest.mark.parametrize("named", [0, 4, 7])
def test_the_copy_that_the_op_names_is_delivered_once(named: int) -> None:
    model = Model(Settings())
    copies: list[Row | int] = [half(body=b"0"), copy(4, body=b"4"), copy(7, body=b"7")]
    tell(model, [*copies, op(named)], [op(0, offset=1), op(4, "ROLLBACK", 2), op(7, offset=3)])
    (delivered,) = model.delivered
    assert (delivered.key, delivered.body) == ((*Q, named), b"%d" % named)
    assert (delivered.prepared_transaction_offset, delivered.store) == (named * 100, START + named * 1_000)
    assert rejects(model) == [("OP", "REDUNDANT"), ("OP", "CONFLICT"), ("OP", "REDUNDANT")]


def test_the_lowest_op_wins_whichever_copies_the_ops_name() -> None:
    model = Model(Settings())
    assert tell(model, [half(), copy(4), op(4, "COMMIT", 3), op(0, "ROLLBACK", 2)])[0][4] == "ROLLBACK PRODUCER"
    assert rejects(model) == [("OP", "CONFLICT")]


@pytest.mark.parametrize("named", [0, 4])
@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"group": "g", "tran_state_table_offset": 7}, "WRONG_STATE_TABLE_OFFSET"),
        ({"group": "g", "commit_log_offset": 700}, "WRONG_COMMIT_LOG_OFFSET"),
    ],
)
def test_a_header_is_checked_against_the_copy_that_the_op_names(
    named: int, columns: dict[str, Any], reason: str
) -> None:
    model = Model(Settings())
    copies: list[Row | int] = [half(), copy(4), copy(7)]
    tell(model, [*copies, replace(op(named), **columns)])
    assert (rejects(model), model.delivered) == ([("OP", reason)], [])
    tell(model, [op(named, offset=1, group="g", tran_state_table_offset=named, commit_log_offset=named * 100)])
    assert len(model.delivered) == 1


def test_an_op_on_any_copy_of_a_rejected_transaction_is_rejected() -> None:
    model = Model(Settings())
    tell(model, [half(), copy(4, real_qid="x"), op()], [op(offset=1)], [half(5, real_qid="x"), op(5, offset=2)])
    assert rejects(model).count(("OP", "HALF_REJECTED")) == 3
    assert model.delivered == []


def test_an_op_on_an_undeliverable_copy_is_rejected_whatever_the_live_one_is() -> None:
    model = Model(Settings())
    assert tell(model, [half(real_qid="x"), copy(4), op(), final()]) == [{0: "SUPERSEDED by 4", 4: OPEN}]
    assert (rejects(model), model.delivered) == ([("OP", "HALF_REJECTED")], [])


def checks(model: Model, landed: list[Row | int]) -> dict[int, tuple[int, int | None]]:
    """Check times and last checked (in seconds after START) of a run's rows."""
    at = {
        d.key[2]: None if d.last_checked is None else (d.last_checked - START) // 1_000 for d in run_with(model, landed)
    }
    return {d.key[2]: (d.check_times, at[d.key[2]]) for d in model.decisions if d.run == model.decisions[-1].run}


def test_the_live_copy_takes_the_maxima_over_copies_and_our_own_checks() -> None:
    model = Model(Settings(check_interval=1_000_000))
    assert checks(model, [half(), copy(4, "3"), copy(7, "2")]) == {0: (0, None), 4: (3, 4), 7: (3, 7)}
    model = Model(Settings())
    assert checks(model, [half()]) == {0: (1, 100)}
    assert checks(model, []) == {0: (2, 200)}
    assert checks(model, [copy(150, "1"), copy(4, "9", immunity="4"), copy(5, "-7")]) == {
        0: (2, 200),  # as they stood
        4: (0, None),
        5: (-7, None),
        150: (3, 300),
    }
    assert checks(model, [copy(3, "13"), copy(350, "8")]) == {3: (13, 3), 150: (3, 300), 350: (13, 350)}


def test_a_copy_that_was_checked_recently_is_not_asked_again() -> None:
    assert tell(Model(Settings()), [half(), copy(60)])[0][60] == "WAIT CHECKED_RECENTLY"
    assert tell(Model(Settings()), [half(), copy(4, "15"), copy(60, "14")])[0][60] == "WAIT CHECKED_RECENTLY"
    assert tell(Model(Settings()), [half(), copy(4, "15"), copy(40, "x")])[0][40] == "DISCARD CHECKED_TOO_OFTEN"


def test_freshness_and_immunity_go_by_the_live_copy() -> None:
    assert tell(Model(Settings()), [half(), copy(100)])[0][100] == "WAIT FRESH"
    assert tell(Model(Settings()), [half(immunity="200"), copy(4)])[0][4] == OPEN
    assert tell(Model(Settings()), [half(), copy(4, immunity="200")])[0][4] == "WAIT IMMUNE"


def test_after_our_resume_only_copies_stored_since_then_count() -> None:
    model = Model(Settings())
    tell(model, [half(check_times="15")], [resume(0)])
    assert checks(model, [copy(4, "15"), copy(200, "15")]) == {0: (1, 200), 4: (15, 4), 200: (2, 300)}
    assert checks(model, [copy(201, "9")]) == {200: (2, 300), 201: (10, 400)}


@pytest.mark.parametrize("together", [True, False])
def test_the_brokers_resume_starts_again(together: bool) -> None:
    landings: list[list[Row | int]] = [[half(), copy(4, "14"), discard()], [copy(60, "0"), copy(70, "1")]]
    model = Model(Settings(check_interval=0, file_reserved_time=1_000_000))
    if together:
        landings = [[*landings[0], *landings[1]]]
    *_, last = [run_with(model, landed) for landed in landings]
    assert {d.key[2]: d.check_times for d in last if d.decision == "CHECK"} == {70: 2}
    model.run(START + 60_000 + 1_000_000)
    assert model.discards[(0 if together else 1) :] == []
    assert told_by(model.run(START + 60_001 + 1_000_000)) == {70: "DISCARD EXPIRED"}


def test_a_late_discard_record_resets_what_was_resumed() -> None:
    model = Model(Settings())
    assert checks(model, [half(), copy(4, "13"), copy(40, "0")])[40] == (14, 100)
    assert checks(model, [discard(40)])[40] == (1, 200)


def test_a_brokers_discard_is_written_to_the_discards() -> None:
    model = Model(Settings())
    tell(model, [half(), copy(4, "9"), discard()], [copy(60, "0"), discard(70)])
    assert [(row.key, row.reason, row.check_times) for row in model.discards] == [
        ((*Q, 4), "BROKER_DISCARDED", 9),
        ((*Q, 60), "BROKER_DISCARDED", 0),
    ]
    model = Model(Settings())
    tell(model, [half(), copy(4, "9"), discard(), copy(60, "0"), discard(70)])
    assert [(row.key, row.check_times) for row in model.discards] == [((*Q, 60), 0)]


def test_what_a_broker_discards_is_discarded_though_it_asks_itself() -> None:
    model = Model(Settings(ask=False))
    assert tell(model, [half(), copy(4, "15")], [discard()], [copy(60, "0")]) == [
        {0: "SUPERSEDED by 4", 4: "WAIT BROKER_ASKS"},
        {4: "DISCARD BROKER_DISCARDED"},
        {60: "WAIT BROKER_ASKS"},
    ]


def test_a_final_messages_copy_is_delivered_without_an_op() -> None:
    model = Model(Settings())
    told = tell(model, [half(), copy(4, body=b"4"), copy(7), final(7), final(4)], [op(0), op(7, "ROLLBACK", 1)])
    assert told[0][7] == "COMMIT FINAL"
    (delivered,) = model.delivered
    assert (delivered.key, delivered.body, delivered.op_offset) == ((*Q, 4), b"4", None)
    assert rejects(model) == [("OP", "CONFLICT")], "the commit is the record of its final message"


def test_a_resume_is_refused_by_what_became_of_the_transaction() -> None:
    model = Model(Settings())
    tell(model, [half(), copy(4), resume(0)], [op(), resume(0)])
    assert rejects(model) == [("RESUME", "OPEN"), ("RESUME", "ENDED")]


# What must always be true


@given(histories())
def test_a_transaction_ends_once_and_is_delivered_once(history: History) -> None:
    model = play(history).model
    delivered = Counter(row.key for row in model.delivered)
    ended = Counter(decision.key for decision in model.decisions if decision.decision in ("COMMIT", "ROLLBACK"))
    assert set(delivered.values()) <= {1}
    assert set(ended.values()) <= {1}
    assert set(delivered) == {key for key, known in model.transactions.items() if known.status == "COMMIT"}


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.thorough
@given(histories())
def test_nobody_is_asked_or_discarded_before_the_rules_allow_it(history: History) -> None:
    model = play(history).model
    nows = [step.now for step in history.steps if isinstance(step, Run)]
    rules = history.settings
    asked: dict[object, int] = {}
    for decision in model.decisions:
        if decision.decision == "CHECK":
            now = nows[decision.run - 1]
            # a queue clock that lags may not have reached its birth yet
            may = may_be_asked(model.transactions[decision.key].half, now, history.settings)
            assert may or decision.reason == "CLOCK_SKEW"
            assert decision.check_times <= max(history.settings.check_max_of(model.transactions[decision.key].half), 0)
            assert (
                now - asked.get(decision.key, now - history.settings.check_interval) >= history.settings.check_interval
            )
            asked[decision.key] = now
    assert rules.ask or not asked
    assert rules.ask or {each.reason for each in model.discards} <= {"END_NOT_SEEN", "BROKER_DISCARDED"}


def may_be_asked(known: Half, now: int, rules: Settings) -> bool:
    immunity = own_immunity(known, rules.timeout_of(known))
    left_alone = rules.timeout_of(known) if immunity is None else immunity
    age = now - known.born
    return bool(known.group) and undeliverable(known) is None and (age < 0 or age > left_alone)


@pytest.mark.thorough
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


def ends_of(history: History) -> tuple[dict[object, str], set[object]]:
    """How the transactions ended, and what was delivered, whenever that was."""
    model = play(history).model
    ends: dict[object, str] = {
        key: known.status
        for key, known in model.transactions.items()
        if known.status in ("COMMIT", "ROLLBACK", "REJECT")
    }
    delivered: set[object] = {replace(row, run=0, op_offset=0) for row in model.delivered}
    return ends, delivered


@pytest.mark.thorough
@given(reorderings())
def test_the_same_transactions_end_the_same_way_whatever_the_order_and_the_slicing(reordered: Reordered) -> None:
    assert ends_of(reordered.first) == ends_of(reordered.second)


def in_one_landing(history: History) -> History:
    """The same rows, all landed before the first run, and no resumes."""
    landings = [step for step in history.steps if isinstance(step, Land)]
    land = Land(
        tuple(half for step in landings for half in step.halves),
        tuple(op for step in landings for op in step.ops),
        landings[-1].at,
        {},
        tuple(final for step in landings for final in step.finals),
        tuple(discard for step in landings for discard in step.discards),
    )
    return History(history.settings, (land, history.steps[-1]))


def without_progress(history: History) -> History:
    """How far queues have landed is not known; so no op is given up."""
    steps = [replace(step, known_until={}) if isinstance(step, Land) else step for step in history.steps]
    return replace(history, steps=tuple(steps))


def transactions_of(model: Model) -> set[Transaction]:
    return set(model.transactions.values())


def last_rows(model: Model) -> dict[Key, Decision]:
    return {d.key: d for d in model.decisions if d.decision != "EARLY_OP"}


@given(copied_histories())
def test_a_transaction_with_copies_ends_once_and_is_delivered_once(history: History) -> None:
    model = play(history).model
    ends = [d for d in model.decisions if d.decision in ("COMMIT", "ROLLBACK")]
    assert max(Counter(id(model.transactions[d.key]) for d in ends).values(), default=0) <= 1
    delivered = Counter(id(model.transactions[row.key]) for row in model.delivered)
    assert delivered == {id(known): 1 for known in transactions_of(model) if known.status == "COMMIT"}


@pytest.mark.thorough
@given(copied_histories())
def test_every_copy_is_told_of_and_of_each_open_transaction_one_is_live(history: History) -> None:
    model = play(history).model
    looked_at = [d for d in model.decisions if d.decision != "EARLY_OP"]
    assert max(Counter((d.run, d.key) for d in looked_at).values(), default=0) <= 1
    assert set(last_rows(model)) == set(model.transactions)
    superseded = [d for d in looked_at if d.decision == "SUPERSEDED"]
    assert len(superseded) == len({d.key for d in superseded})
    for known in transactions_of(model):
        assert last_rows(model)[known.half.key].decision != "SUPERSEDED"
        if known.status == "OPEN":
            assert last_rows(model)[known.half.key].run == len([s for s in history.steps if isinstance(s, Run)])


@pytest.mark.thorough
@given(copied_histories())
def test_what_is_superseded_stays_so_by_a_copy_of_its_own_transaction(history: History) -> None:
    model = play(history).model
    for decision in model.decisions:
        if decision.decision == "SUPERSEDED":
            assert last_rows(model)[decision.key] == decision
            (broker, queue, _), by = decision.key, decision.superseded_by or 0
            assert model.transactions[broker, queue, by] is model.transactions[decision.key]


@pytest.mark.thorough
@given(copied_histories(conflicts=False))
def test_transactions_with_copies_end_the_same_way_whatever_the_order(history: History) -> None:
    ends: list[dict[Key, str]] = []
    for order in (without_progress(history), in_one_landing(history)):
        model = play(order).model
        ended = {key: t for key, t in model.transactions.items() if t.status in ("COMMIT", "ROLLBACK", "REJECT")}
        ends.append({key: known.status for key, known in ended.items()})
    assert ends[0] == ends[1]


@pytest.mark.thorough
@given(copied_histories())
def test_landing_all_copies_again_changes_nothing(history: History) -> None:
    model = play(history).model
    live = {key: known.half for key, known in model.transactions.items()}
    closed = [key for key, known in model.transactions.items() if known.status != "OPEN"]
    delivered = list(model.delivered)
    for step in history.steps:
        if isinstance(step, Land):
            model.land(step.halves, (), model.now, finals=step.finals, discards=step.discards)
    again = model.run(model.now)
    assert {d.decision for d in again} <= {"WAIT", "CHECK", "DISCARD", "EARLY_OP"}
    assert not {d.key for d in again} & set(closed)
    assert {key: known.half for key, known in model.transactions.items()} == live
    assert model.delivered == delivered


@pytest.mark.thorough
@given(histories())
def test_rows_survive_the_way_through_json(history: History) -> None:
    for step in history.steps:
        if isinstance(step, Land):
            lines = json.loads(json.dumps([*half_lines(step.halves), *op_lines(step.ops)]))
            offsets = [row.offset for row in step.halves] + [row.offset for row in step.ops]
            assert [line["queue_offset"] for line in lines] == offsets
            for row, line in zip(step.halves, half_lines(step.halves), strict=True):
                assert oracle.half_of(line) == row
