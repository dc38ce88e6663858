"""Put-back copies, final messages and a broker's own discards: a case a sentence of the rules."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import model as m
import pytest
import rows as r
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession

T0 = 1_750_000_000_000
RULES = m.Settings(check_max=3)
SECOND, MINUTE = 1_000, 60_000
RUNS = (T0 + 2 * MINUTE, T0 + 5 * MINUTE, T0 + 8 * MINUTE)

Step = m.Half | m.Op | m.Final | m.BrokerDiscard
Row = tuple[int, int, str, str | None, int | None]  # run, offset, decision, reason, superseded_by


def half(offset: int, times: str | None = None, prepared: str | None = None, **changed: object) -> m.Half:
    """The original at 0; a copy has check times or the first copy's offset."""
    made = m.Half("b", 0, offset, offset * 500, "KEY", "group", "T", "1", T0, T0 + offset, None, times)
    return replace(made, prepared_offset=prepared, body=f"half {offset}".encode(), **changed)  # type: ignore[arg-type]


def op(offset: int, names: int, outcome: str = "COMMIT", **changed: object) -> m.Op:
    made = m.Op("b", 0, offset, 0, "d", str(names), names, outcome, None, T0 + 9, T0 + 9, source="STORE")
    return replace(made, **changed)  # type: ignore[arg-type]


def final(names: int, offset: int = 0, key: str | None = "KEY") -> m.Final:
    return m.Final("b", names * 500, "T", 1, offset, key, T0 + 9)


def discard(store: int, offset: int = 0) -> m.BrokerDiscard:
    return m.BrokerDiscard("b", 0, offset, "KEY", "group", T0, 3, store)


@dataclass(frozen=True)
class Case:
    """What lands before each run, and what comes of it."""

    name: str
    landings: tuple[tuple[Step, ...], ...]
    rows: tuple[Row, ...]
    delivered: tuple[tuple[int, int | None], ...] = ()  # half offset, op offset
    rejected: tuple[tuple[str, int], ...] = ()  # reason, op offset


CASES = [
    Case(
        "the highest copy is the live one",
        ((half(0), half(5, "1"), half(9, "2")),),
        ((1, 0, "SUPERSEDED", None, 9), (1, 5, "SUPERSEDED", None, 9), (1, 9, "CHECK", "TIMEOUT", None)),
    ),
    Case(
        "an immune message's copy names its original",
        ((half(0), half(5, prepared="0")),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "CHECK", "TIMEOUT", None)),
    ),
    Case(
        "twins are never merged",
        ((half(0), half(5)),),
        ((1, 0, "CHECK", "TIMEOUT", None), (1, 5, "CHECK", "TIMEOUT", None)),
    ),
    Case(
        "an op that names the original ends the transaction, and the original is delivered",
        ((half(0), half(5, "1"), op(0, 0)),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "COMMIT", "PRODUCER", None)),
        delivered=((0, 0),),
    ),
    Case(
        "an op that names the live copy",
        ((half(0), half(5, "1"), op(0, 5)),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "COMMIT", "PRODUCER", None)),
        delivered=((5, 0),),
    ),
    Case(
        "ops on two copies end it once",
        ((half(0), half(5, "1"), op(0, 0), op(1, 5), op(2, 5, "ROLLBACK")),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "COMMIT", "PRODUCER", None)),
        delivered=((0, 0),),
        rejected=(("CONFLICT", 2), ("REDUNDANT", 1)),
    ),
    Case(
        "a copy lands while the transaction is open, and an op still names the original",
        ((half(0),), (half(5, "1"),), (op(0, 0),)),
        (
            (1, 0, "CHECK", "TIMEOUT", None),
            (2, 0, "SUPERSEDED", None, 5),
            (2, 5, "CHECK", "TIMEOUT", None),
            (3, 5, "COMMIT", "PRODUCER", None),
        ),
        delivered=((0, 0),),
    ),
    Case(
        "a copy lands after the end",
        ((half(0), op(0, 0)), (half(5, "1"),), (op(1, 5), op(2, 0, "ROLLBACK"))),
        ((1, 0, "COMMIT", "PRODUCER", None), (2, 5, "SUPERSEDED", "ALREADY_ENDED", 0)),
        delivered=((0, 0),),
        rejected=(("CONFLICT", 2), ("REDUNDANT", 1)),
    ),
    Case(
        "the original lands after its copy",
        ((half(5, "1"),), (half(0),), (op(0, 0),)),
        (
            (1, 5, "CHECK", "TIMEOUT", None),
            (2, 0, "SUPERSEDED", None, 5),
            (2, 5, "CHECK", "TIMEOUT", None),
            (3, 5, "COMMIT", "PRODUCER", None),
        ),
        delivered=((0, 0),),
    ),
    Case(
        "the original lands after its copy ended",
        ((half(5, "1"), op(0, 5)), (half(0),), ()),
        ((1, 5, "COMMIT", "PRODUCER", None), (2, 0, "SUPERSEDED", "ALREADY_ENDED", 5)),
        delivered=((5, 0),),
    ),
    Case(
        "a final message proves a commit whose op was lost",
        ((half(0), half(5, "1"), final(0)), (op(0, 5, "ROLLBACK"),)),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "COMMIT", "FINAL", None)),
        delivered=((0, None),),
        rejected=(("CONFLICT", 0),),
    ),
    Case(
        "a final message of a message without copies, landed later",
        ((half(0),), (final(0),)),
        ((1, 0, "CHECK", "TIMEOUT", None), (2, 0, "COMMIT", "FINAL", None)),
        delivered=((0, None),),
    ),
    Case(
        "a final message beside its op says nothing new",
        ((half(0), op(0, 0), final(0)),),
        ((1, 0, "COMMIT", "PRODUCER", None),),
        delivered=((0, 0),),
    ),
    Case(
        "a final message of another key proves nothing",
        ((half(0), final(0, key="OTHER")),),
        ((1, 0, "CHECK", "TIMEOUT", None),),
    ),
    Case(
        "the broker gave it up",
        ((half(0), half(5, "1"), discard(T0 + 50)),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "DISCARD", "BROKER_DISCARDED", None)),
    ),
    Case(
        "the broker gave up what an op ends",
        ((half(0), half(5, "1"), discard(T0 + 50), op(0, 5)),),
        ((1, 0, "SUPERSEDED", None, 5), (1, 5, "COMMIT", "PRODUCER", None)),
        delivered=((5, 0),),
    ),
    Case(
        "the broker gave it up, later; an op on a copy comes later still",
        ((half(0), half(5, "1")), (discard(T0 + 50),), (op(0, 0),)),
        (
            (1, 0, "SUPERSEDED", None, 5),
            (1, 5, "CHECK", "TIMEOUT", None),
            (2, 5, "DISCARD", "BROKER_DISCARDED", None),
            (3, 5, "COMMIT", "AFTER_DISCARD", None),
        ),
        delivered=((0, 0),),
    ),
    Case(
        "a final message of what the broker gave up",
        ((half(0), half(5, "1"), discard(T0 + 50)), (final(0),)),
        (
            (1, 0, "SUPERSEDED", None, 5),
            (1, 5, "DISCARD", "BROKER_DISCARDED", None),
            (2, 5, "COMMIT", "AFTER_DISCARD", None),
        ),
        delivered=((0, None),),
    ),
    Case(
        "the broker resumes what it gave up",
        ((half(0), half(5, "3"), discard(T0 + 50)), (half(100, "0"),), (op(0, 100),)),
        (
            (1, 0, "SUPERSEDED", None, 5),
            (1, 5, "DISCARD", "BROKER_DISCARDED", None),
            (2, 100, "CHECK", "TIMEOUT", None),
            (3, 100, "COMMIT", "PRODUCER", None),
        ),
        delivered=((100, 0),),
    ),
    Case(
        "an op names what was given up, and was resumed, and has ended",
        ((half(0), discard(T0 + 50)), (half(100, "0"), op(0, 100)), (op(1, 0),)),
        (
            (1, 0, "DISCARD", "BROKER_DISCARDED", None),
            (2, 100, "COMMIT", "PRODUCER", None),
        ),
        delivered=((100, 0),),
        rejected=(("REDUNDANT", 1),),
    ),
    Case(
        "an op names a copy that was given up, and was resumed, and has ended",
        ((half(0), half(5, "3"), discard(T0 + 50)), (half(100, "0"), op(0, 100)), (op(1, 5, "ROLLBACK"),)),
        (
            (1, 0, "SUPERSEDED", None, 5),
            (1, 5, "DISCARD", "BROKER_DISCARDED", None),
            (2, 100, "COMMIT", "PRODUCER", None),
        ),
        delivered=((100, 0),),
        rejected=(("CONFLICT", 1),),
    ),
    Case(
        "given up and resumed before the first run",
        ((half(0), half(5, "3"), discard(T0 + 50), half(100, "0")),),
        ((1, 0, "SUPERSEDED", None, 100), (1, 5, "SUPERSEDED", None, 100), (1, 100, "CHECK", "TIMEOUT", None)),
    ),
    Case(
        "the broker gave up that one of twins that no op ends",
        ((half(0), half(5), op(0, 0), discard(T0 + 50)),),
        ((1, 0, "COMMIT", "PRODUCER", None), (1, 5, "DISCARD", "BROKER_DISCARDED", None)),
        delivered=((0, 0),),
    ),
    Case(
        "twins are given up one by one",
        ((half(0), half(5), discard(T0 + 50)), (discard(T0 + 150, 1),)),
        (
            (1, 0, "DISCARD", "BROKER_DISCARDED", None),
            (1, 5, "CHECK", "TIMEOUT", None),
            (2, 5, "DISCARD", "BROKER_DISCARDED", None),
        ),
    ),
    Case(
        "a twin that lands later is not given up for the same record",
        ((half(5), discard(T0 + 50)), (half(0),)),
        ((1, 5, "DISCARD", "BROKER_DISCARDED", None), (2, 0, "CHECK", "TIMEOUT", None)),
    ),
    Case(
        "a copy lands behind the resume that was written after it",
        ((half(5, "2"), discard(T0 + 8), half(9, "0")), (half(7, "3"),)),
        (
            (1, 5, "SUPERSEDED", None, 9),
            (1, 9, "CHECK", "TIMEOUT", None),
            (2, 7, "SUPERSEDED", None, 9),
            (2, 9, "CHECK", "TIMEOUT", None),
        ),
    ),
    Case(
        "given up, resumed and given up again",
        ((half(0), half(5, "3"), discard(T0 + 50), half(100, "0")), (discard(T0 + 150, 1),)),
        (
            (1, 0, "SUPERSEDED", None, 100),
            (1, 5, "SUPERSEDED", None, 100),
            (1, 100, "CHECK", "TIMEOUT", None),
            (2, 100, "DISCARD", "BROKER_DISCARDED", None),
        ),
    ),
]


def under(broker: str, step: Step) -> Step:
    return replace(step, broker=broker)


def only(kind: type[Step], steps: Iterable[Step]) -> list:  # type: ignore[type-arg]
    return [step for step in steps if isinstance(step, kind)]


@pytest.fixture(scope="module")
def played(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """All cases side by side, each with a broker of its own."""
    warehouse = Warehouse(spark, str(tmp_path_factory.mktemp("lineage") / "warehouse"))
    for number, now in enumerate(RUNS):
        steps = [under(f"b{n}", s) for n, c in enumerate(CASES) if number < len(c.landings) for s in c.landings[number]]
        known = {(f"b{n}", 0): now for n in range(len(CASES))}
        halves, ops, finals, discards = (only(kind, steps) for kind in (m.Half, m.Op, m.Final, m.BrokerDiscard))
        r.land(warehouse, halves, ops, now - SECOND, known, finals=finals, discards=discards)
        r.run(warehouse, RULES, now)
    return warehouse


def by_case(
    rows: Callable[[Warehouse], Iterable[tuple[str, tuple[object, ...]]]], warehouse: Warehouse
) -> dict[str, list]:  # type: ignore[type-arg]
    found: dict[str, list[tuple[object, ...]]] = {}
    for broker, row in rows(warehouse):
        found.setdefault(broker, []).append(row)
    return found


@pytest.fixture(scope="module")
def decided(played: Warehouse) -> dict[str, list[Row]]:
    rows = [d for run in range(1, len(RUNS) + 1) for d in r.decisions(played, run)]
    return by_case(
        lambda _: [(d.key[0], (d.run, d.key[2], d.decision, d.reason, d.superseded_by)) for d in rows], played
    )


@pytest.fixture(scope="module")
def delivered(played: Warehouse) -> dict[str, list[tuple[int, int | None, bytes]]]:
    found = r.delivered(played)
    return by_case(lambda _: [(d.key[0], (d.key[2], d.op_offset, d.body)) for d in found.elements()], played)


@pytest.fixture(scope="module")
def rejected(played: Warehouse) -> dict[str, list[tuple[str, int]]]:
    return by_case(lambda w: [(row[2], (row[1], row[4])) for row in r.rejected(w).elements()], played)


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


def test_a_final_message_alone_where_nothing_was_put_back(warehouse: Warehouse) -> None:
    """As after the crash of a broker that never had to ask: none of the other cases' ways through a run is taken."""
    landed = [under("b", step) for step in (half(0), half(1), half(2), final(0), op(1, 1))]
    halves, ops, finals = (only(kind, landed) for kind in (m.Half, m.Op, m.Final))
    r.land(warehouse, halves, ops, RUNS[0] - SECOND, {("b", 0): RUNS[0]}, finals=finals)
    r.run(warehouse, RULES, RUNS[0])
    found = [(d.key[2], d.decision, d.reason, d.op_offset) for d in r.decisions(warehouse, 1)]
    assert found == [(0, "COMMIT", "FINAL", None), (1, "COMMIT", "PRODUCER", 1), (2, "CHECK", "TIMEOUT", None)]
    assert sorted((d.key[2], d.op_offset) for d in r.delivered(warehouse).elements()) == [(0, None), (1, 1)]


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


def test_a_broker_gives_up_what_we_have_resumed(warehouse: Warehouse) -> None:
    landed(warehouse, [half(0), discard(T0 + 50)], RUNS[0])
    r.run(warehouse, RULES, RUNS[0])
    r.resume(warehouse, [("b", 0, 0)], RUNS[0] + 1)
    landed(warehouse, [half(1, uniq_key="OTHER"), discard(RUNS[0] + 2, 1)], RUNS[1])
    r.run(warehouse, RULES, RUNS[1])
    assert [(d.key[2], d.decision) for d in r.decisions(warehouse, 2)] == [(0, "DISCARD"), (1, "CHECK")]
