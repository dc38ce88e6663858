"""Half messages that a slave acting as master has let escape to another broker: a case a sentence of the rules.

Each case has brokers of its own, and lands some rows before each of three runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from halfop.columns.keys import Key
from halfop.explain.explain import timeline
from halfop.explain.look_up import find
from halfop.rules.halves import read_copies
from halfop.runs.standing import standing
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from model import reference as m
from pyspark.sql import SparkSession
from support import rows as r
from support.rules.cases_of_copies import RULES, RUNS, SECOND, T0, discard, half, only, op

Row = tuple[int, str, int, str, str | None, str | None]  # run, broker, offset, decision, reason, superseded_by
Step = m.Half | m.Op | m.Final | m.BrokerDiscard


def escaped(offset: int, store: int = T0 + 50 * SECOND, **changed: object) -> m.Half:
    """The half message as the other broker has it: its slave sent it with WAIT=false."""
    return half(offset, broker="b", store=store, wait="false", **changed)  # type: ignore[arg-type]


def at_a(offset: int, **changed: object) -> m.Half:
    return half(offset, broker="a", **changed)  # type: ignore[arg-type]


def end(broker: str, offset: int, names: int, outcome: str = "COMMIT") -> m.Op:
    return replace(op(offset, names, outcome), broker=broker)


@dataclass(frozen=True)
class Case:
    """Rows that land before each run, and what comes of them."""

    name: str
    landings: tuple[tuple[Step, ...], ...]
    rows: tuple[Row, ...]
    delivered: tuple[tuple[str, int], ...] = ()
    rejected: tuple[str, ...] = ()


GONE = (1, "a", 0, "SUPERSEDED", None, "b/7")
ASKED = (1, "b", 7, "CHECK", "TIMEOUT", None)
CASES = [
    Case("it is one transaction, and the escaped one is live", ((at_a(0), escaped(7)),), (GONE, ASKED)),
    Case(
        "an op of the other broker ends it",
        ((at_a(0), escaped(7), end("b", 3, 7)),),
        (GONE, (1, "b", 7, "COMMIT", "PRODUCER", None)),
        (("b", 7),),
    ),
    Case(
        "an op of the first broker ends it, too, and what it names is delivered",
        ((at_a(0), escaped(7), end("a", 3, 0)),),
        (GONE, (1, "b", 7, "COMMIT", "PRODUCER", None)),
        (("a", 0),),
    ),
    Case(
        "it escapes while it is open",
        ((at_a(0),), (escaped(7),), (end("a", 3, 0),)),
        (
            (1, "a", 0, "CHECK", "TIMEOUT", None),
            (2, "a", 0, "SUPERSEDED", None, "b/7"),
            (2, "b", 7, "CHECK", "TIMEOUT", None),
            (3, "b", 7, "COMMIT", "PRODUCER", None),
        ),
        (("a", 0),),
    ),
    Case(
        "it lands before its original",
        ((escaped(7),), (at_a(0),), (end("b", 3, 7, "ROLLBACK"),)),
        (
            ASKED,
            (2, "a", 0, "SUPERSEDED", None, "b/7"),
            (2, "b", 7, "CHECK", "TIMEOUT", None),
            (3, "b", 7, "ROLLBACK", "PRODUCER", None),
        ),
    ),
    Case(
        "its original lands after the end",
        ((escaped(7), end("b", 3, 7)), (at_a(0),)),
        ((1, "b", 7, "COMMIT", "PRODUCER", None), (2, "a", 0, "SUPERSEDED", "ALREADY_ENDED", "b/7")),
        (("b", 7),),
    ),
    Case(
        "it lands after its original has ended",
        ((at_a(0), end("a", 3, 0)), (escaped(7),)),
        ((1, "a", 0, "COMMIT", "PRODUCER", None), (2, "b", 7, "SUPERSEDED", "ALREADY_ENDED", "a/0")),
        (("a", 0),),
    ),
    Case(
        "it lands after its original has ended, and its op after it",
        ((at_a(0), end("a", 3, 0)), (escaped(7),), (end("b", 3, 7, "ROLLBACK"),)),
        ((1, "a", 0, "COMMIT", "PRODUCER", None), (2, "b", 7, "SUPERSEDED", "ALREADY_ENDED", "a/0")),
        (("a", 0),),
        ("CONFLICT",),
    ),
    Case(
        "it lands after its original was given up, and its op after it",
        ((at_a(0), replace(discard(T0 + 60 * SECOND), broker="a")), (escaped(7),), (end("b", 3, 7),)),
        (
            (1, "a", 0, "DISCARD", "BROKER_DISCARDED", None),
            (2, "b", 7, "SUPERSEDED", "ALREADY_ENDED", "a/0"),
            (3, "a", 0, "COMMIT", "AFTER_DISCARD", None),
        ),
        (("b", 7),),
    ),
    Case(
        "its broker gives it up and resumes it, it ends, and an op comes of what was given up",
        (
            (at_a(5), replace(discard(T0 + 60 * SECOND), broker="a", offset=5)),
            (at_a(9, times="0", store=T0 + 70 * SECOND), end("a", 3, 9)),
            (end("a", 4, 5),),
        ),
        ((1, "a", 5, "DISCARD", "BROKER_DISCARDED", None), (2, "a", 9, "COMMIT", "PRODUCER", None)),
        (("a", 9),),
        ("REDUNDANT",),
    ),
    Case(
        "its broker gives it up and resumes it, it escapes and ends, and an op comes of what was given up",
        (
            (at_a(5), replace(discard(T0 + 60 * SECOND), broker="a", offset=5)),
            (
                at_a(9, times="0", store=T0 + 70 * SECOND),
                half(2, "0", broker="b", store=T0 + 80 * SECOND, wait="false"),
                end("b", 3, 2),
            ),
            (end("a", 4, 5),),
        ),
        (
            (1, "a", 5, "DISCARD", "BROKER_DISCARDED", None),
            (2, "a", 9, "SUPERSEDED", None, "b/2"),
            (2, "b", 2, "COMMIT", "PRODUCER", None),
        ),
        (("b", 2),),
        ("REDUNDANT",),
    ),
    Case(
        "an op that lands late finds the transaction by the first broker's key",
        ((at_a(0), escaped(7), end("b", 3, 7)), (end("a", 4, 0),)),
        (GONE, (1, "b", 7, "COMMIT", "PRODUCER", None)),
        (("b", 7),),
        ("REDUNDANT",),
    ),
    Case(
        "the other broker's check service puts it back",
        ((at_a(0),), (escaped(7), half(9, "1", broker="b", store=T0 + 90 * SECOND)), (end("b", 3, 9),)),
        (
            (1, "a", 0, "CHECK", "TIMEOUT", None),
            (2, "a", 0, "SUPERSEDED", None, "b/9"),
            (2, "b", 7, "SUPERSEDED", None, "b/9"),
            (2, "b", 9, "CHECK", "TIMEOUT", None),
            (3, "b", 9, "COMMIT", "PRODUCER", None),
        ),
        (("b", 9),),
    ),
    Case(
        "a copy that was put back before it escaped keeps its mark",
        ((at_a(0), at_a(5, times="1"), half(7, "1", broker="b", store=T0 + 50 * SECOND, wait="false")),),
        (
            (1, "a", 0, "SUPERSEDED", None, "b/7"),
            (1, "a", 5, "SUPERSEDED", None, "b/7"),
            (1, "b", 7, "CHECK", "TIMEOUT", None),
        ),
    ),
    Case(
        "the other broker gives it up",
        ((at_a(0), escaped(7), replace(discard(T0 + 60 * SECOND), broker="b")),),
        (GONE, (1, "b", 7, "DISCARD", "BROKER_DISCARDED", None)),
    ),
    Case(
        "a producer that waits for nothing sends a message of its own",
        ((escaped(7),), (escaped(8, uniq_key="OTHER"),)),
        (ASKED, (2, "b", 7, "CHECK", "TIMEOUT", None), (2, "b", 8, "CHECK", "TIMEOUT", None)),
    ),
    Case(
        "a mark alone shows no escape",
        ((at_a(0), half(7, "1", broker="b", store=T0 + 50 * SECOND)),),
        ((1, "a", 0, "CHECK", "TIMEOUT", None), ASKED),
    ),
    Case(
        "a twin on another broker is no copy",
        ((at_a(0), half(7, broker="b", born=T0 + 1)),),
        ((1, "a", 0, "CHECK", "TIMEOUT", None), ASKED),
    ),
    Case(
        "it escapes back",
        ((at_a(0),), (escaped(7),), (at_a(9, wait="false", store=T0 + 95 * SECOND), end("a", 3, 9))),
        (
            (1, "a", 0, "CHECK", "TIMEOUT", None),
            (2, "a", 0, "SUPERSEDED", None, "b/7"),
            (2, "b", 7, "CHECK", "TIMEOUT", None),
            (3, "b", 7, "SUPERSEDED", None, "a/9"),
            (3, "a", 9, "COMMIT", "PRODUCER", None),
        ),
        (("a", 9),),
    ),
]
pytestmark = pytest.mark.thorough
NUMBERS = range(len(CASES))


def _under(number: int, step: Step) -> Step:
    return replace(step, broker=f"{step.broker}{number}", uniq_key=step.uniq_key and f"{step.uniq_key} {number}")


@pytest.fixture(scope="module")
def played(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    warehouse = KernelWarehouse(spark, str(tmp_path_factory.mktemp("escapes") / "warehouse"))
    play(warehouse, NUMBERS)
    return warehouse


def play(warehouse: Warehouse, numbers: Sequence[int]) -> None:
    for run, now in enumerate(RUNS):
        steps = [_under(n, s) for n in numbers if run < len(CASES[n].landings) for s in CASES[n].landings[run]]
        known = {(f"{broker}{n}", 0): now for n in numbers for broker in "ab"}
        halves, ops, discards = (only(kind, steps) for kind in (m.Half, m.Op, m.BrokerDiscard))
        r.land(warehouse, halves, ops, now - SECOND, known, discards=discards)
        r.run(warehouse, RULES, now)


def _decided(warehouse: Warehouse) -> Iterator[tuple[int, Row]]:
    names = ["run_id", "broker_name", "queue_offset", "decision", "reason", "superseded_by", "superseded_by_broker"]
    for run, broker, offset, decision, reason, by, by_broker in warehouse.read("decisions").select(names).collect():
        told = None if by is None else f"{(by_broker or broker)[0]}/{by}"
        yield int(broker[1:]), (run, broker[0], offset, decision, reason, told)


@pytest.fixture(scope="module")
def decided(played: Warehouse) -> list[tuple[int, Row]]:
    return list(_decided(played))


@pytest.fixture(scope="module")
def delivered(played: Warehouse) -> list[m.Key]:
    return [d.key for d in r.delivered(played).elements()]


@pytest.fixture(scope="module")
def rejected(played: Warehouse) -> list[tuple[int, str]]:
    return [(int(broker[1:]), reason) for _, reason, broker, *_ in r.rejected(played).elements()]


@pytest.mark.parametrize("number", NUMBERS, ids=[case.name for case in CASES])
def test_case(
    number: int, decided: list[tuple[int, Row]], delivered: list[m.Key], rejected: list[tuple[int, str]]
) -> None:
    case = CASES[number]
    last = len(case.landings)
    assert sorted(row for n, row in decided if n == number and row[0] <= last) == sorted(case.rows)
    found = [(broker[0], offset) for broker, _, offset in delivered if broker[1:] == str(number)]
    assert sorted(found) == sorted(case.delivered)
    assert [reason for n, reason in rejected if n == number] == list(case.rejected)


def test_explain_tells_one_life_across_brokers(played: Warehouse) -> None:
    for key in ("a3/0/0", "b3/0/7"):
        (life,), _ = find(played, key)
        assert list(map(str, life.keys)) == ["a3/0/0", "b3/0/7"]
        assert [event for event in timeline(life) if "escaped to this broker at offset b3/0/7" in event]


def test_maintain_keeps_what_a_copy_elsewhere_needs(played: Warehouse) -> None:
    """The copies of both brokers are known of a transaction that stands on one of them."""
    rows = played.read("decisions").where("broker_name = 'b3' AND decision = 'COMMIT'")
    (row,) = rows.select(read_copies().alias("copies")).collect()
    found = {tuple(copy[:3]) for copy in row["copies"]}
    assert found == {("a3", 0, 0), ("b3", 0, 7)}


def test_every_copy_names_the_one_that_can_be_ended(played: Warehouse) -> None:
    rows = standing(played).keys().where("broker_name IN ('a0', 'b0', 'a3', 'b3')").collect()
    found = {(row["broker_name"], row["queue_offset"]): Key(**row["stands_at"].asDict()) for row in rows}
    assert found == dict.fromkeys([("a0", 0), ("b0", 7)], Key("b0", 0, 7)), "3 has ended"
