"""The transactions that a plan is made of: open and discarded ones, each under its live copy."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from halfop.ending.selection import Selection, plan, planned
from halfop.runs.standing import standing
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from support import rows as r
from support.messages import KNOWN, NOW, QUEUE, RULES, half, one_of_each, ops

_WANTED = "broker_name STRING, queue_id INT, queue_offset BIGINT, kind STRING, evidence STRING"


def offsets(rows: pa.Table) -> list[int]:
    return sorted(rows["queue_offset"].to_pylist())


@pytest.mark.thorough
def test_open_and_discarded_ones(warehouse: Warehouse) -> None:
    assert standing(warehouse).rows.count() == 0, "nothing has landed"
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW)
    found = standing(warehouse)
    states = {(row["queue_offset"], row["decision"]) for row in found.rows.collect()}
    assert states == {(3, "DISCARD"), (6, "CHECK")}
    wanted = warehouse.frame([(*QUEUE, n, "ROLLBACK", f"e{n}") for n in (0, 3, 6)], _WANTED)
    rows, left_out = planned(found, wanted, "KEY", r.instant(NOW - 10_000))
    assert (offsets(rows), left_out) == ([3, 6], {})
    assert rows.select(["kind", "evidence", "origin", "decision"]).to_pylist()[0] == {
        "kind": "ROLLBACK",
        "evidence": "e3",
        "origin": "KEY",
        "decision": "DISCARD",
    }
    assert planned(found, wanted, "KEY", r.instant(NOW - 10_001)).left_out == {"TOO_YOUNG": 2}
    r.land(warehouse, [], ops("COMMIT", 3), NOW + 1, KNOWN)
    r.run(warehouse, RULES, NOW + 100_000)
    assert {row["queue_offset"] for row in standing(warehouse).rows.collect()} == {6}, "3 has ended after its discard"


def test_a_copy_stands_for_its_transaction(warehouse: Warehouse) -> None:
    copy = half(5, uniq_key="U", check_times="1", commit_log_offset=500)
    r.land(warehouse, [half(1, uniq_key="U"), copy, half(2, group=None)], [], NOW, KNOWN, sources={"b": "BROKER"})
    r.run(warehouse, RULES, NOW)
    found = standing(warehouse)
    assert {(row["queue_offset"], row["stands_at"]["queue_offset"]) for row in found.keys().collect()} >= {
        (1, 5),
        (5, 5),
    }
    wanted = warehouse.frame([(*QUEUE, n, "COMMIT", None) for n in (1, 2)], _WANTED)
    rows, left_out = planned(found, wanted, "WHERE", r.instant(NOW))
    assert (offsets(rows), left_out) == ([5], {"NO_PRODUCER_GROUP": 1})
    (row,) = rows.to_pylist()
    assert (row["commit_log_offset"], [copy["queue_offset"] for copy in row["copies"]]) == (500, [1, 5])


def test_a_message_born_in_the_future_can_be_ended(warehouse: KernelWarehouse) -> None:
    tomorrow = int(time.time() * 1_000) + 86_400_000
    r.land(warehouse, [half(1, born=tomorrow), half(2)], [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    every = Selection("ROLLBACK", where="true")
    assert plan(warehouse, every)[0].extra["left_out"] == {"TOO_YOUNG": 1}
    assert offsets(plan(warehouse, replace(every, min_age=timedelta(0)))[1].rows) == [1, 2]
