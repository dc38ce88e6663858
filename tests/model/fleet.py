"""Many histories side by side in one warehouse: each has brokers of its own, all share settings and the runs' instants.

A run costs seconds whatever it decides; so a fleet of forty histories costs as much as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from halfop.warehouse.tables import Warehouse
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support import rows as r

from model import reference as m
from model.rocksdb import in_rocksdb
from model.strategies import (
    GATEWAY,
    Charter,
    History,
    Land,
    Played,
    Question,
    Resume,
    Run,
    Step,
    nothing_sent,
    play,
    sent_at,
)

T = TypeVar("T")
R = TypeVar("R", m.Half, m.Op, m.Final, m.BrokerDiscard)


def generated(strategy: st.SearchStrategy[T], number: int, seeded: int) -> list[T]:
    """The same `number` values at every call."""
    found: list[T] = []

    @seed(seeded)
    @hypothesis_settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found


@dataclass(frozen=True)
class Ship:
    """One history under broker names of its own, and what the model made of it."""

    prefix: str
    history: History
    played: Played


def lands_once_at_first(history: History) -> bool:
    """No key lands twice before the first run: that run then takes the short way."""
    keys: list[object] = []
    for step in history.steps:
        if isinstance(step, Run):
            break
        if isinstance(step, Land):
            keys += [half.key for half in step.halves] + [op.key for op in step.ops]
            keys += [("names", op.broker, op.queue, op.half_offset) for op in step.ops]
    return len(keys) == len(set(keys))


def fleet(histories: Iterable[History], some_of: Callable[[m.Model], list[Question]] = nothing_sent) -> list[Ship]:
    """Those of the histories for which the rules decide all; one in five is of brokers that have RocksDB."""
    mixed = [in_rocksdb(history) if n % 5 == 4 else history for n, history in enumerate(histories)]
    renamed = {f"s{n}-": under(f"s{n}-", history) for n, history in enumerate(mixed)}
    ships = [Ship(prefix, history, play(history, some_of)) for prefix, history in renamed.items()]
    return [ship for ship in ships if not ship.played.model.undecided]


def with_gateways(histories: Sequence[History], seeded: int) -> list[Ship]:
    """Every other history is of gateways, which deliver half of all questions after each run, some once more."""
    chance, mixed = Random(seeded), list(histories)
    mixed[1::2] = [under(GATEWAY, history) for history in mixed[1::2]]

    def some_of(model: m.Model) -> list[Question]:
        asked = [(request.run, request.key) for request in model.requests if request.key[0] in model.gateways]
        return [question for question in asked if chance.random() < 0.5]

    return fleet(mixed, some_of)


def prefix_of(broker: str) -> str:
    return broker.split("-", 1)[0] + "-"


def under(prefix: str, history: History) -> History:
    """The same history of other brokers."""
    return replace(history, steps=tuple(_under(prefix, step) for step in history.steps))


def _under(prefix: str, step: Step) -> Step:
    if isinstance(step, Land):
        known = {(prefix + broker, queue): until for (broker, queue), until in step.known_until.items()}
        return Land(
            tuple(_renamed(prefix, half) for half in step.halves),
            tuple(_renamed(prefix, op) for op in step.ops),
            step.at,
            known,
            tuple(_renamed(prefix, final) for final in step.finals),
            tuple(_renamed(prefix, discard) for discard in step.discards),
        )
    if isinstance(step, Resume):
        return replace(step, keys=tuple((prefix + broker, queue, offset) for broker, queue, offset in step.keys))
    return step


def _renamed(prefix: str, row: R) -> R:
    """The row of another broker, with another UNIQ_KEY: half messages that agree in it may be copies across brokers."""
    return replace(row, broker=prefix + row.broker, uniq_key=row.uniq_key and prefix + row.uniq_key)


def sail(warehouse: Warehouse, charter: Charter, ships: Sequence[Ship], max_rows: int | None = None) -> list[int]:
    """Play all ships' histories in the warehouse; the run id of each Run step (of its last slice)."""
    r.land(warehouse, [], [], 0)
    run_ids = []
    for number, steps in enumerate(abreast(ships)):
        land = [step for step in steps if isinstance(step, Land)]
        if land:
            known = {queue: until for step in land for queue, until in step.known_until.items()}
            halves = [half for step in land for half in step.halves]
            ops = [op for step in land for op in step.ops]
            sources = {broker: source for step in land for broker, source in step.sources.items()}
            more: dict[str, Any] = _finals_and_discards(land) | {"sources": sources}
            more["forgets_after"] = {queue: after for step in land for queue, after in step.forgets_after.items()}
            r.land(warehouse, halves, ops, land[0].at, known, **more)
        resumes = [step for step in steps if isinstance(step, Resume)]
        if resumes:
            r.resume(warehouse, [key for step in resumes for key in step.keys], resumes[0].at)
        runs = [step for step in steps if isinstance(step, Run)]
        if runs:
            summary = r.run(warehouse, charter.settings, runs[0].now, max_rows)
            assert summary.run_id is not None, number
            run_ids.append(summary.run_id)
            sent = [question for ship in ships for question in ship.played.sent[len(run_ids) - 1]]
            if sent:
                r.deliver(warehouse, sent, sent_at(runs[0]))
    return run_ids


def _finals_and_discards(land: Sequence[Land]) -> dict[str, Any]:
    finals = [final for step in land for final in step.finals]
    discards = [discard for step in land for discard in step.discards]
    return {name: rows for name, rows in [("finals", finals), ("discards", discards)] if rows}


def abreast(ships: Sequence[Ship]) -> Iterator[list[Step]]:
    """The ships' steps in time with each other: all landings of a phase, then before each run the resumes."""
    ways = [_way(ship) for ship in ships]
    for steps in zip(*ways, strict=True):
        yield [step for group in steps for step in group]


def _way(ship: Ship) -> Iterator[tuple[Step, ...]]:
    """Groups that come at the same place in every history of a charter: (landing), (resume or nothing), (run)."""
    pending: tuple[Step, ...] = ()
    for number, step in enumerate(ship.history.steps):
        if isinstance(step, Land):
            yield () if number in ship.played.refused else (step,)
        elif isinstance(step, Resume):
            pending = (step,)
        else:  # every ship yields the resumes before a run, be there any or none
            yield pending
            yield (step,)
            pending = ()


# ---- what must agree ----


def all_of(ships: Iterable[Ship], rows: Callable[[m.Model], Iterable[T]]) -> Counter[T]:
    return Counter(row for ship in ships for row in rows(ship.played.model))


def rejected(ships: Iterable[Ship]) -> Counter[r.Cells]:
    found = all_of(ships, lambda model: model.rejected)
    return Counter(map(rejected_cells, found.elements()))


def rejected_cells(row: m.Rejected) -> r.Cells:
    """A reject of the model as `rows` reads it."""
    return row.kind, row.reason, row.broker, row.queue, row.queue_offset, row.item, row.half_offset


def differences(found: Iterable[m.Decision], ships: Sequence[Ship], run: int) -> list[str]:
    """The first ship in which a run decided otherwise than the model."""
    decided: dict[str, Counter[m.Decision]] = {ship.prefix: Counter() for ship in ships}
    for decision in found:
        decided[prefix_of(decision.key[0])][decision] += 1
    for ship in ships:
        expected, got = Counter(ship.played.runs[run - 1]), decided[ship.prefix]
        if expected != got:
            return [f"run {run} of {ship.history}", f"model: {[*(expected - got)]}", f"halfop: {[*(got - expected)]}"]
    return []


def assert_agrees(warehouse: Warehouse, charter: Charter, ships: Sequence[Ship]) -> None:
    for run in sail(warehouse, charter, ships):
        assert differences(r.decisions(warehouse, run), ships, run) == []
    assert r.rejected(warehouse) == rejected(ships)
    assert r.delivered(warehouse) == all_of(ships, lambda model: model.delivered)
    assert r.discards(warehouse) == all_of(ships, lambda model: model.discards)
    assert r.requests(warehouse) == all_of(ships, lambda model: model.requests)
