"""`explain` of a message whose half row was corrected, or whose outcome the producer did not give."""

from __future__ import annotations

import pytest
from halfop.explain.explain import explain
from halfop.settings.model import Settings
from halfop.warehouse.tables import Warehouse
from model.strategies import op_rows
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
