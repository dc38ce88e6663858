"""Put-back copies, final messages and a broker's own discards: a case a sentence of the rules."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import pytest
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from model import reference as m
from pyspark.sql import SparkSession
from support import rows as r
from support.rules.cases_of_copies import (
    CASES,
    RULES,
    RUNS,
    SECOND,
    T0,
    Row,
    Step,
    discard,
    final,
    half,
    only,
    op,
    under,
)


@pytest.fixture(scope="module")
def played(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """All cases side by side, each with a broker of its own."""
    warehouse = KernelWarehouse(spark, str(tmp_path_factory.mktemp("lineage") / "warehouse"))
    play(warehouse, range(len(CASES)))
    return warehouse


def play(warehouse: Warehouse, numbers: Sequence[int]) -> None:
    for run, now in enumerate(RUNS):
        steps = [under(f"b{n}", s) for n in numbers if run < len(CASES[n].landings) for s in CASES[n].landings[run]]
        known = {(f"b{n}", 0): now for n in numbers}
        halves, ops, finals, discards = (only(kind, steps) for kind in (m.Half, m.Op, m.Final, m.BrokerDiscard))
        r.land(warehouse, halves, ops, now - SECOND, known, finals=finals, discards=discards)
        r.run(warehouse, RULES, now)


def by_case(
    rows: Callable[[Warehouse], Iterable[tuple[str, tuple[object, ...]]]], warehouse: Warehouse
) -> dict[str, list]:  # type: ignore[type-arg]
    found: dict[str, list[tuple[object, ...]]] = {}
    for broker, row in rows(warehouse):
        found.setdefault(broker, []).append(row)
    return found


@pytest.fixture(scope="module")
def decided(played: Warehouse) -> dict[str, list[Row]]:
    return decided_in(played)


def decided_in(played: Warehouse) -> dict[str, list[Row]]:
    rows = [d for run in range(1, len(RUNS) + 1) for d in r.decisions(played, run)]
    return by_case(
        lambda _: [(d.key[0], (d.run, d.key[2], d.decision, d.reason, d.superseded_by)) for d in rows], played
    )


@pytest.fixture(scope="module")
def delivered(played: Warehouse) -> dict[str, list[tuple[int, int | None, bytes]]]:
    return delivered_in(played)


def delivered_in(played: Warehouse) -> dict[str, list[tuple[int, int | None, bytes]]]:
    found = r.delivered(played)
    return by_case(lambda _: [(d.key[0], (d.key[2], d.op_offset, d.body)) for d in found.elements()], played)


@pytest.fixture(scope="module")
def rejected(played: Warehouse) -> dict[str, list[tuple[str, int]]]:
    return rejected_in(played)


def rejected_in(played: Warehouse) -> dict[str, list[tuple[str, int]]]:
    return by_case(lambda w: [(row[2], (row[1], row[4])) for row in r.rejected(w).elements()], played)


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_case(
    number: int,
    decided: dict[str, list[Row]],
    delivered: dict[str, list[tuple[int, int | None, bytes]]],
    rejected: dict[str, list[tuple[str, int]]],
) -> None:
    case, broker = CASES[number], f"b{number}"
    last = max(run for run, *_ in case.rows)
    assert sorted(row for row in decided[broker] if row[0] <= last) == sorted(case.rows)
    wanted = [(offset, op_offset, f"half {offset}".encode()) for offset, op_offset in case.delivered]
    assert delivered.get(broker, []) == wanted
    assert sorted(rejected.get(broker, [])) == list(case.rejected)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_case_alone(number: int, warehouse: Warehouse) -> None:
    """Among others a case takes the way that they need; alone it takes its own short cuts."""
    play(warehouse, [number])
    test_case(number, decided_in(warehouse), delivered_in(warehouse), rejected_in(warehouse))


@pytest.mark.thorough
def test_a_final_message_arrives_alone_for_what_was_discarded(warehouse: Warehouse) -> None:
    r.land(warehouse, [half(0, "3", uniq_key=None)], [], RUNS[0] - SECOND, {("b", 0): RUNS[0]})
    r.run(warehouse, RULES, RUNS[0])
    r.land(warehouse, [], [], RUNS[1] - SECOND, {("b", 0): RUNS[1]}, finals=[final(0, key=None)])
    r.run(warehouse, RULES, RUNS[1])
    assert [(d.key[2], d.decision, d.reason) for d in r.decisions(warehouse, 1)] == [
        (0, "DISCARD", "CHECKED_TOO_OFTEN")
    ]
    assert [(d.key[2], d.decision, d.reason) for d in r.decisions(warehouse, 2)] == [(0, "COMMIT", "AFTER_DISCARD")]


@pytest.mark.thorough
def test_a_final_message_alone_where_nothing_was_put_back(warehouse: Warehouse) -> None:
    """So it is when a broker crashed that never had to ask: none of the other cases' ways through a run is taken."""
    landed = [under("b", step) for step in (half(0), half(1), half(2), final(0), op(1, 1))]
    halves, ops, finals = (only(kind, landed) for kind in (m.Half, m.Op, m.Final))
    r.land(warehouse, halves, ops, RUNS[0] - SECOND, {("b", 0): RUNS[0]}, finals=finals)
    r.run(warehouse, RULES, RUNS[0])
    found = [(d.key[2], d.decision, d.reason, d.op_offset) for d in r.decisions(warehouse, 1)]
    assert found == [(0, "COMMIT", "FINAL", None), (1, "COMMIT", "PRODUCER", 1), (2, "CHECK", "TIMEOUT", None)]
    assert sorted((d.key[2], d.op_offset) for d in r.delivered(warehouse).elements()) == [(0, None), (1, 1)]


@pytest.mark.thorough
def test_a_final_message_before_the_first_half_message_of_its_queue(warehouse: Warehouse) -> None:
    """Lost ranges that are found again may bring them in this order."""
    r.land(warehouse, [], [], RUNS[0] - SECOND, {("b", 0): RUNS[0]}, finals=[final(0)])
    r.run(warehouse, RULES, RUNS[0])
    r.land(warehouse, [half(0)], [], RUNS[1] - SECOND, {("b", 0): RUNS[1]})
    r.run(warehouse, RULES, RUNS[1])
    assert [(d.key[2], d.decision, d.reason) for d in r.decisions(warehouse, 2)] == [(0, "COMMIT", "FINAL")]


def landed(warehouse: Warehouse, steps: Iterable[Step], now: int) -> None:
    halves, ops, discards = (only(kind, steps) for kind in (m.Half, m.Op, m.BrokerDiscard))
    brokers = {(half.broker, 0): now for half in halves}
    r.land(warehouse, halves, ops, now - SECOND, brokers, discards=discards)


FAULTY = [op(n, names, "NEITHER") for n, names in enumerate((0, 4, 5, 9))] + [op(9, 0, body="x", half_offset=None)]


def test_a_backlog_with_copies_is_not_sliced(warehouse: Warehouse, caplog: pytest.LogCaptureFixture) -> None:
    halves = [half(0, uniq_key="OTHER"), half(4, "1"), half(5, "2"), half(9, "3"), half(12, "4")]
    landed(warehouse, [*halves, *FAULTY], RUNS[0])
    with caplog.at_level(logging.INFO, "halfop"):
        assert r.run(warehouse, RULES, RUNS[0], max_rows=2).extra["runs"] == [1]
    assert "run 1 takes its backlog in one piece, not in 3 slices: copies arrived" in caplog.text
    assert sorted((row[1], row[4]) for row in r.rejected(warehouse).elements()) == [
        ("GARBAGE_OFFSET", 9),
        *[("NO_OUTCOME", n) for n in range(4)],
    ]


@pytest.mark.thorough
def test_copies_that_have_ended_slice_the_next_backlog(warehouse: Warehouse) -> None:
    """Their rows of the run in which they were open stay in the table."""
    landed(warehouse, [half(0), half(5, "1"), half(9, "2")], RUNS[0])
    r.run(warehouse, RULES, RUNS[0])
    landed(warehouse, [op(1, 9)], RUNS[1])
    assert r.run(warehouse, RULES, RUNS[1]).extra["open_messages"] == 0
    landed(warehouse, [half(n, uniq_key=f"K{n}") for n in range(20, 24)], RUNS[2])
    assert r.run(warehouse, RULES, RUNS[2], max_rows=2).extra["runs"] == [3, 4]


@pytest.mark.thorough
def test_a_backlog_with_discard_records_is_not_sliced(warehouse: Warehouse) -> None:
    landed(warehouse, [half(0), half(5)], RUNS[0])
    r.run(warehouse, RULES, RUNS[0])
    others = [half(n, broker="c", uniq_key=f"K{n}") for n in range(6)]
    landed(warehouse, [*others, discard(T0 + 50)], RUNS[1])
    last = r.run(warehouse, RULES, RUNS[1], max_rows=2).run_id or 0
    assert last == 2
    given_up = [
        (d.key, d.run) for run in range(2, last + 1) for d in r.decisions(warehouse, run) if d.decision == "DISCARD"
    ]
    assert given_up == [(("b", 0, 0), 2)]


FAR = 50_000  # beyond the offsets of the other broker, so that it lies in the last slice; stored in time, too
OTHERS = [half(n, broker="c", uniq_key=None) for n in range(6)]


@pytest.mark.slow
def test_a_final_message_of_another_slice_delivers_nothing_twice(warehouse: Warehouse) -> None:
    r.land(warehouse, [half(FAR, "3", uniq_key=None)], [], RUNS[0] - SECOND, {("b", 0): RUNS[0]})
    r.run(warehouse, RULES, RUNS[0])
    r.resume(warehouse, [("b", 0, FAR)], RUNS[0] + SECOND)
    r.run(warehouse, RULES, RUNS[0] + 2 * SECOND)
    known = {("b", 0): RUNS[1], ("c", 0): RUNS[1]}
    r.land(warehouse, OTHERS, [op(0, FAR)], RUNS[1] - SECOND, known, finals=[final(FAR, key=None)])
    assert len(r.run(warehouse, RULES, RUNS[1], max_rows=2).extra["runs"]) > 1
    assert [(d.key, d.op_offset) for d in r.delivered(warehouse).elements()] == [(("b", 0, FAR), 0)]


@pytest.mark.thorough
def test_a_backlog_that_names_closed_copies_is_not_sliced(warehouse: Warehouse) -> None:
    r.land(warehouse, [half(0), half(FAR, "3")], [], RUNS[0] - SECOND, {("b", 0): RUNS[0]})
    r.run(warehouse, RULES, RUNS[0])
    known = {("b", 0): RUNS[1], ("c", 0): RUNS[1]}
    r.land(warehouse, OTHERS, [op(0, FAR, "ROLLBACK"), op(1, 0)], RUNS[1] - SECOND, known)
    assert r.run(warehouse, RULES, RUNS[1], max_rows=2).extra["runs"] == [2]
    ended = [(d.key[2], d.decision, d.op_offset) for d in r.decisions(warehouse, 2) if d.decision == "ROLLBACK"]
    assert ended == [(FAR, "ROLLBACK", 0)]
    assert not r.delivered(warehouse)


@pytest.mark.thorough
def test_a_broker_gives_up_what_we_have_resumed(warehouse: Warehouse) -> None:
    landed(warehouse, [half(0), discard(T0 + 50)], RUNS[0])
    r.run(warehouse, RULES, RUNS[0])
    r.resume(warehouse, [("b", 0, 0)], RUNS[0] + 1)
    landed(warehouse, [half(1, uniq_key="OTHER"), discard(RUNS[0] + 2, 1)], RUNS[1])
    r.run(warehouse, RULES, RUNS[1])
    assert [(d.key[2], d.decision) for d in r.decisions(warehouse, 2)] == [(0, "DISCARD"), (1, "CHECK")]
