"""Generated transactions whose half messages escape from broker to broker: any order of landing ends them alike."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest
from halfop.warehouse.tables import Warehouse
from model import reference as m
from support import rows as r
from support.rules.cases_of_copies import RUNS, SECOND, T0, half, only, op
from support.seeds import SEED

RULES = m.Settings(check_max=50)
BROKERS = "abc"


@dataclass(frozen=True)
class Escaped:
    """One transaction: its half messages, the ops that name some of them, and before which run each row lands."""

    number: int
    halves: list[m.Half]
    ops: list[m.Op]
    order: list[int]

    @property
    def fate(self) -> str:
        return self.ops[0].outcome or "" if self.ops else "OPEN"

    def landing(self, run: int) -> list[m.Half | m.Op]:
        rows: list[m.Half | m.Op] = [*self.halves, *self.ops]
        return [row for row, landed in zip(rows, self.order, strict=True) if landed == run]


def escaped(number: int) -> Escaped:
    """Each half message but the first was put back on its broker, or escaped to another one, from one before it."""
    chance = Random(SEED * 10_000 + number)
    halves = [half(0, broker=f"a{number}", uniq_key=f"K{number}")]
    for n in range(chance.randint(1, 4)):
        halves.append(_copy(chance, halves, T0 + (n + 1) * 10 * SECOND, number))
    outcome = chance.choice(["COMMIT", "ROLLBACK"])
    named = [chance.choice(halves) for _ in range(chance.randint(0, 2))]
    ops = [replace(op(n, each.offset, outcome), broker=each.broker) for n, each in enumerate(named)]
    order = [chance.randrange(len(RUNS)) for _ in range(len(halves) + len(ops))]
    return Escaped(number, halves, ops, order)


def _copy(chance: Random, halves: Sequence[m.Half], store: int, number: int) -> m.Half:
    of = chance.choice(halves)
    others = [
        broker
        for b in BROKERS
        if (broker := f"{b}{number}") != of.broker and (of.check_times or _is_new(broker, halves))
    ]
    puts_back = not others or chance.random() < 0.4
    broker = of.broker if puts_back else chance.choice(others)
    offset = max([each.offset + 1 for each in halves if each.broker == broker], default=0)
    times = str(int(of.check_times or 0) + 1) if puts_back else of.check_times
    return half(offset, times, broker=broker, uniq_key=of.uniq_key, store=store, wait=of.wait if puts_back else "false")


def _is_new(broker: str, halves: Sequence[m.Half]) -> bool:
    """A copy without a mark that escapes back, or twice, looks like a twin before all have landed."""
    return all(half.broker != broker for half in halves)


@pytest.mark.slow
@pytest.mark.parametrize("number", [30, 1_500])
def test_each_ends_once_as_its_ops_say(warehouse: Warehouse, number: int) -> None:
    fleet = [escaped(n) for n in range(number)]
    known = {(f"{b}{n}", 0) for n in range(number) for b in BROKERS}
    for run, now in enumerate(RUNS):
        rows = [row for each in fleet for row in each.landing(run)]
        halves, ops = only(m.Half, rows), only(m.Op, rows)
        r.land(warehouse, halves, ops, now - SECOND, dict.fromkeys(known, now))
        r.run(warehouse, RULES, now)
    last = last_decisions(warehouse)
    delivered = Counter(d.transaction_id for d in r.delivered(warehouse).elements())
    for each in fleet:
        found = Counter(last[f"K{each.number}"].values())
        times = delivered[f"K{each.number}"]
        assert found["SUPERSEDED"] == len(each.halves) - 1, each
        assert found["OPEN" if each.fate == "OPEN" else each.fate] == 1, each
        assert times == (each.fate == "COMMIT"), each


def last_decisions(warehouse: Warehouse) -> dict[str, dict[m.Key, str]]:
    """The last decisions by UNIQ_KEY and half key; an end stands for ever."""
    found: dict[str, dict[m.Key, str]] = defaultdict(dict)
    rows = warehouse.read("decisions").where("decision <> 'EARLY_OP'").orderBy("run_id")
    names = ["uniq_key", "broker_name", "queue_id", "queue_offset", "decision"]
    for uniq_key, *key, decision in rows.select(names).collect():
        found[uniq_key][tuple(key)] = "OPEN" if decision in ("WAIT", "CHECK") else decision
    return found
