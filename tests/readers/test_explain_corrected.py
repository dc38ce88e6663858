"""`explain` of what was corrected, or has landed since the last run, or whose outcome the producer did not give."""

from __future__ import annotations

from dataclasses import replace

import pytest
from halfop.columns.keys import Key
from halfop.explain.explain import explain
from halfop.explain.look_up import look_up
from halfop.explain.outlook import outlook
from halfop.settings.model import Settings
from halfop.warehouse.tables import Warehouse
from model.strategies import header, op_rows
from support import rows as r
from support.messages import KNOWN, NOW, QUEUE, RULES, half, ops

KEY = "b/0/1"


def text_of(warehouse: Warehouse) -> str:
    return explain(warehouse, Settings(warehouse=warehouse.root), KEY)[1]


@pytest.mark.thorough
def test_the_corrected_row_is_the_message(warehouse: Warehouse) -> None:
    r.land(warehouse, [half(1, "not a topic")], ops("COMMIT", 1), NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    assert "topic     not a topic" in text_of(warehouse)
    r.land(warehouse, [half(1, "Orders")], [], NOW + 1)
    landed = text_of(warehouse)
    assert "topic     Orders" in landed
    assert "state: it was rejected; another row has landed under its key since: the next reconcile decides" in landed
    r.run(warehouse, RULES, NOW + 2)
    r.land(warehouse, [half(1, "not a topic")], [], NOW + 3)
    assert "topic     Orders" in text_of(warehouse), "what stands is not replaced"
    assert "COMMIT PRODUCER - line 2" in text_of(warehouse)


def test_a_message_without_a_topic_is_said_to_have_none(warehouse: Warehouse, caplog: pytest.LogCaptureFixture) -> None:
    r.land(warehouse, [half(1, "")], [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    assert "real topic (none)." in caplog.text
    assert "state: rejected: no or illegal REAL_TOPIC: it is missing or empty; a corrected row" in text_of(warehouse)


@pytest.mark.thorough
def test_an_answer_that_resolve_gave_is_not_the_producer_s(warehouse: Warehouse) -> None:
    r.land(warehouse, [half(1)], op_rows(QUEUE, 2**62 + 1, "1", ["COMMIT"], NOW, from_check=True), NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    assert text_of(warehouse).count("the producer answered a check") == 1
    warehouse.commit("op_messages", [op | {"source": "RESOLVE"} for op in warehouse.rows("op_messages")])
    told = text_of(warehouse)
    assert "item 0: COMMIT, given by end or resolve, not by the producer" in told
    assert "outcome commit; given by end or resolve, not by the producer; by op message" in told
    assert "answered a check" not in told


@pytest.mark.parametrize(("state", "credited"), [("VERIFIED", True), ("ENDED_MEANWHILE", False)])
def test_an_outcome_that_end_sent_to_a_broker_may_be_its_own(warehouse: Warehouse, state: str, credited: bool) -> None:
    r.land(warehouse, [half(1)], ops("COMMIT", 1), NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    warehouse.make("endings")
    about = {"broker_name": "b", "queue_id": 0, "queue_offset": 1, "at": r.instant(NOW)}
    warehouse.commit("endings", [about | {"plan_id": "p", "kind": "COMMIT", "state": state}])
    assert ("given by end or resolve, or by the producer" in text_of(warehouse)) == credited


def states(warehouse: Warehouse, *offsets: int) -> list[tuple[str, str]]:
    """Each state with its last line about what is next."""
    lives = {life.keys[-1].queue_offset: life for life in look_up(warehouse, {Key(*QUEUE, n) for n in offsets})}
    looks = [outlook(warehouse, Settings(), lives[n]) for n in offsets]
    return [(look.state, next((line for line in look.lines if "next" in line), look.lines[0])) for look in looks]


def test_what_has_landed_since_the_last_run_is_next(warehouse: Warehouse) -> None:
    """An op of another group ends nothing, which only the run finds."""
    early, given_up = op_rows(QUEUE, 1, "40", ["COMMIT"], NOW), half(2, check_times="1", store=NOW - 3_600_000)
    r.land(warehouse, [half(0), half(1), given_up, half(3, group=None)], early, NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    assert states(warehouse, 40) == [("EARLY_OP", "an op waits for this half message, which has not landed")]
    wrong = op_rows(QUEUE, 2, "1", ["COMMIT"], NOW, **header(half(1, group="other")))
    r.land(warehouse, [half(3), half(40)], [*ops("ROLLBACK", 0), *ops("COMMIT", 2), *wrong], NOW + 1)
    since = "an op (%s) has landed since: the next reconcile ends the message by it, or rejects it"
    assert states(warehouse, 0, 1, 2, 3, 40) == [
        ("OPEN", f"next: {since % 'ROLLBACK'}"),
        ("OPEN", f"next: {since % 'COMMIT'}"),
        ("DISCARDED", f"discarded; {since % 'COMMIT'}"),
        (
            "DISCARDED",
            "discarded; a row with its producer group has landed since: the next reconcile decides about that",
        ),
        ("LANDED", "it has landed, and no run has seen it yet: the next reconcile decides about it"),
    ]
    r.run(warehouse, RULES, NOW + 2)
    found = states(warehouse, 0, 1, 2, 3, 40)
    assert [state for state, _ in found] == ["ROLLED_BACK", "OPEN", "COMMITTED", "OPEN", "COMMITTED"]
    assert found[1][1].startswith("next: it is discarded (line 5)"), found[1]


def test_an_op_that_has_got_its_outcome_since_is_next(warehouse: Warehouse) -> None:
    (op,) = ops("COMMIT", 0)
    r.land(warehouse, [half(0)], [replace(op, outcome=None)], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    r.land(warehouse, [], [op], NOW + 1, KNOWN)
    assert "an op (COMMIT) has landed since" in states(warehouse, 0)[0][1]
    r.run(warehouse, RULES, NOW + 2)
    assert states(warehouse, 0)[0][0] == "COMMITTED"


def test_an_op_that_was_given_up_waits_no_more(warehouse: Warehouse) -> None:
    rules = replace(RULES, file_reserved_time=1_000)
    r.land(warehouse, [half(0)], ops("COMMIT", 5), NOW, KNOWN)
    r.run(warehouse, rules, NOW)
    assert states(warehouse, 5)[0][0] == "EARLY_OP"
    r.land(warehouse, [half(9)], [], NOW + 1, KNOWN)
    r.run(warehouse, rules, NOW + 2_000)
    assert states(warehouse, 5) == [
        ("REJECTED", "its half message has not landed, and the op or resume that names it was rejected")
    ]
