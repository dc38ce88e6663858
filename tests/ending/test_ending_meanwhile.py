"""What lands and is decided while a plan waits, or while `end --apply` goes on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from halfop.columns.keys import Key
from halfop.ending.apply import ApplyRequest, apply
from halfop.ending.endable import checked
from halfop.ending.owner import Masters
from halfop.ending.plan import EndingPlan, Row, rows_of
from halfop.ending.selection import Selection, plan
from halfop.ending.sender import Sender
from halfop.ending.table import Clerk, Ending, EndingsTable, known
from halfop.landing.progress import ProgressRow, move
from halfop.rocketmq.names import OP_TOPIC
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.warehouse.kernel import KernelWarehouse
from support import rows as r
from support.messages import KNOWN, NOW, RULES, half, ops

SOURCES = {"b": "BROKER"}
WHERE = Masters(RemotingSettings(), broker="127.0.0.1:1")


def copy(offset: int, times: int) -> Any:
    return half(offset, uniq_key="U", check_times=str(times), commit_log_offset=offset * 100)


def planned(warehouse: KernelWarehouse, *keys: Key) -> EndingPlan:
    return plan(warehouse, Selection("COMMIT", keys))[1]


def ended_by(warehouse: KernelWarehouse, made: EndingPlan) -> list[str | None]:
    return [each.ends_as for each in checked(warehouse, made)[1]]


@pytest.mark.thorough
def test_an_end_is_found_under_a_copy_that_was_put_back_meanwhile(warehouse: KernelWarehouse) -> None:
    """The op names the planned copy, but by now a later one stands for the transaction, and then one after that."""
    r.land(warehouse, [half(1, uniq_key="U")], [], NOW, KNOWN, sources=SOURCES)
    r.run(warehouse, RULES, NOW)
    made = planned(warehouse, Key("b", 0, 1))
    r.land(warehouse, [copy(5, 1)], [], NOW + 1, KNOWN, sources=SOURCES)
    r.run(warehouse, RULES, NOW + 1)
    assert [row.places[-1].queue_offset for row in checked(warehouse, made)[0]] == [5], "it is open still"
    r.land(warehouse, [copy(7, 2)], ops("COMMIT", 1), NOW + 2, KNOWN, sources=SOURCES)
    r.run(warehouse, RULES, NOW + 2)
    last = {d.key[2]: d.decision for run in (2, 3) for d in r.decisions(warehouse, run)}
    assert last == {1: "SUPERSEDED", 5: "SUPERSEDED", 7: "COMMIT"}
    assert ended_by(warehouse, made) == ["COMMIT"]


def sent(made: EndingPlan) -> list[Row]:
    return next(rows_of(made.rows, 10))


@pytest.mark.thorough
def test_what_a_killed_call_ended_is_swept_also_under_a_later_copy(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    r.land(warehouse, [half(1, uniq_key="U")], [], NOW, KNOWN, sources=SOURCES)
    r.run(warehouse, RULES, NOW)
    made = planned(warehouse, Key("b", 0, 1))
    (row,) = sent(made)
    warehouse.make("endings")
    EndingsTable(warehouse).record([Clerk(made.head.plan_id, None).ending(row, "INTENDED", sent=row.places[-1])])
    r.land(warehouse, [copy(5, 1)], ops("COMMIT", 1), NOW + 1, KNOWN, sources=SOURCES)
    r.run(warehouse, RULES, NOW + 1)
    swept: list[Row] = []
    monkeypatch.setattr(Sender, "end", lambda self, rows, ended=(): swept.extend(ended))
    summary, _ = apply(warehouse, ApplyRequest(made, ["b"], 10, WHERE))
    assert (summary.extra["endings"], summary.status) == ({"VERIFIED": 1}, 0)
    assert [each.key.queue_offset for each in swept] == [1]


def test_what_a_run_decides_meanwhile_is_read_from_the_broker_again(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run, after the plan was compared with decisions: a rollback that it has seen is in no queue after it."""
    r.land(warehouse, [half(0)], [], NOW, KNOWN, sources=SOURCES)
    move(warehouse, [ProgressRow("b", OP_TOPIC, 0, 4, None, NOW, 0)], "BROKER")
    r.run(warehouse, RULES, NOW)
    made = planned(warehouse, Key("b", 0, 0))
    starts: list[int | None] = []

    def follow(warehouse: KernelWarehouse, made: EndingPlan) -> Any:
        found = checked(warehouse, made)
        r.land(warehouse, [], ops("ROLLBACK", 0), NOW + 1, KNOWN, sources=SOURCES)
        move(warehouse, [ProgressRow("b", OP_TOPIC, 0, 9, None, NOW + 1, 0)], "BROKER")
        r.run(warehouse, RULES, NOW + 1)
        return found

    def ends(self: Sender, rows: Sequence[Row], ended: Sequence[Row] = ()) -> None:
        assert [row.key.queue_offset for row in rows] == [0]
        starts.append(self.broker.landed[0].op)

    monkeypatch.setattr("halfop.ending.apply.checked", follow)
    monkeypatch.setattr(Sender, "end", ends)
    apply(warehouse, ApplyRequest(made, ["b"], 10, WHERE))
    assert starts == [4], "not 9"


def test_what_was_sent_lately_is_known_in_all_lives(warehouse: KernelWarehouse) -> None:
    """A broker's later life has another name. What is in doubt may have been sent until now."""
    warehouse.make("endings")
    now = datetime.now(timezone.utc)

    def at(name: str, offset: int, state: Any, minutes: int) -> Ending:
        instant = now - timedelta(minutes=minutes)
        key = Key(name, 0, offset)
        return Ending("other", key, "ROLLBACK", "KEY", None, state, None, None, "me", instant, "U", None)

    rows = [at("b", 1, "INTENDED", 50), at("b", 1, "SENT", 40), at("b~2", 2, "SENT", 30)]
    rows += [at("c", 3, "INTENDED", 20), at("c", 3, "VERIFIED", 10), at("d", 4, "INTENDED", 10), at("e", 5, "SENT", 70)]
    EndingsTable(warehouse).record(rows)
    found = known(warehouse, "mine", [Key("b", 0, 1)])
    assert found.sent_to(["b", "b~2"]) == now - timedelta(minutes=30)
    assert found.sent_to(["b"]) == now - timedelta(minutes=40)
    assert (found.sent_to(["c"]), found.sent_to(["e"])) == (None, None), "it is over, or long ago"
    assert (found.sent_to(["d"]) or now) >= now
