"""A broker that keeps transactions in RocksDB forgets them by its own limit, and writes nothing about that."""

from __future__ import annotations

from typing import Any

import pytest
from halfop.rocketmq.names import ROCKSDB_QUEUES, ROCKSDB_TOPICS
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.tables import Warehouse
from model import reference as m
from model.strategies import op_rows
from support import rows as r
from support.halves import half_at

NOW, SECOND = 1_750_000_000_000, 1000
QUEUE = ("b", ROCKSDB_QUEUES)
RULES = m.Settings(transaction_timeout=6 * SECOND, check_max=3, check_interval=10 * SECOND)
FORGOTTEN, WATCHED = "DISCARD FORGOTTEN_BY_BROKER", "WAIT BROKER_ASKS"


def decided(warehouse: Warehouse, now: int, rules: m.Settings = RULES) -> str:
    run_id = r.run(warehouse, rules, now).run_id
    found = [f"{each.decision} {each.reason}" for each in r.decisions(warehouse, run_id or 0)]
    return found[0] if found else ""


def land(warehouse: Warehouse, known: int, ops: Any = (), **columns: Any) -> None:
    halves = [half_at(QUEUE, 0, NOW, **columns)] if columns.pop("lands", True) else []
    r.land(warehouse, halves, ops, NOW, {QUEUE: known}, sources={"b": "STORE"})


@pytest.mark.parametrize(
    ("after", "columns"),
    [
        (
            6,
            {},
        ),  # four questions after 6 s, 16, 26 and 36 s; an interval for the last answer, and one a restart may take
        (20, {"immunity": "20"}),
        (0, {"immunity": "0"}),
        (6, {"immunity": "x"}),
        (100, {"store": NOW + 100 * SECOND}),  # a copy that the broker was told to resume
    ],
)
def test_it_is_forgotten_once_its_broker_must_have_asked_to_the_limit(
    warehouse: Warehouse, after: int, columns: dict[str, Any]
) -> None:
    at = NOW + (after + 5 * 10) * SECOND
    land(warehouse, at + SECOND, **columns)
    assert decided(warehouse, at - 1) == WATCHED
    assert decided(warehouse, at) == FORGOTTEN
    assert [row.reason for row in r.discards(warehouse)] == ["FORGOTTEN_BY_BROKER"]


@pytest.mark.thorough
def test_the_broker_s_own_settings_count_if_they_are_known(warehouse: Warehouse) -> None:
    land(warehouse, NOW + 1000 * SECOND)
    row = {"broker_name": "b", "topic": ROCKSDB_TOPICS[0], "queue_id": ROCKSDB_QUEUES, "source": "BROKER"}
    warehouse.commit(PROGRESS, [row | {"forgets_after": 500 * SECOND * 1000}])
    assert decided(warehouse, NOW + 506 * SECOND - 1) == WATCHED
    assert decided(warehouse, NOW + 506 * SECOND) == FORGOTTEN


@pytest.mark.parametrize(("forever", "queue"), [("99999999999999", ROCKSDB_QUEUES), ("6", 0)])
def test_others_are_not_forgotten(warehouse: Warehouse, forever: str, queue: int) -> None:
    """An immunity for ever, and a message of the other half topic, which the broker puts back."""
    half = half_at(("b", queue), 0, NOW, immunity=forever)
    known = {("b", queue): NOW + 1000 * SECOND, QUEUE: NOW + 1000 * SECOND}
    r.land(warehouse, [half], [], NOW, known, sources={"b": "STORE"})
    assert decided(warehouse, NOW + 1000 * SECOND - 1).startswith("WAIT")


def test_the_greatest_limits_of_the_settings_leave_it_open(warehouse: Warehouse) -> None:
    land(warehouse, NOW + 7 * SECOND)
    rules = m.Settings(check_max=2**31 - 1, check_interval=36_500 * 86_400 * SECOND, checks_a_run=2**31 - 1)
    assert decided(warehouse, NOW + 7 * SECOND, rules) == WATCHED


def test_no_time_passes_while_its_ops_do_not_land(warehouse: Warehouse) -> None:
    land(warehouse, NOW + 30 * SECOND)
    assert decided(warehouse, NOW + 1000 * SECOND) == WATCHED


@pytest.mark.thorough
def test_a_producer_may_still_end_it_and_a_resume_opens_it(warehouse: Warehouse) -> None:
    land(warehouse, NOW + 100 * SECOND)
    assert decided(warehouse, NOW + 100 * SECOND) == FORGOTTEN
    r.resume(warehouse, [(*QUEUE, 0)], NOW + 101 * SECOND)
    r.land(warehouse, [], [], NOW + 1, {QUEUE: NOW + 130 * SECOND}, sources={"b": "STORE"})
    assert decided(warehouse, NOW + 130 * SECOND) == WATCHED, "its age counts from the resume"
    r.land(warehouse, [], [], NOW + 2, {QUEUE: NOW + 200 * SECOND}, sources={"b": "STORE"})
    assert decided(warehouse, NOW + 200 * SECOND) == FORGOTTEN
    ops = op_rows(QUEUE, 3, "0", ["COMMIT"], NOW + 201 * SECOND)
    r.land(warehouse, [], ops, NOW + 3, {QUEUE: NOW + 202 * SECOND}, sources={"b": "STORE"})
    assert decided(warehouse, NOW + 202 * SECOND) == "COMMIT AFTER_DISCARD"
