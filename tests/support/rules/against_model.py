"""Rows side by side on frames in memory, run by run against all that the reference model says of decisions and rejects.

A second reading of what the cases say in words: check times, the last check, the op and the copy, each reject's place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from model import fleet as f
from model import reference as m
from model.strategies import History, Land, Resume, Run, Step, play
from pyspark.sql import SparkSession

from support import rows as r
from support.rules import cases_of_copies as copies
from support.rules.in_memory import InMemory
from support.rules.rule_case import Case, landed_abreast

T = TypeVar("T")


@dataclass(frozen=True)
class Played:
    """What lands, is resumed and is run, and what the model makes of it: by run, and for rejects up to that run."""

    settings: m.Settings
    steps: Sequence[Step]
    decided: Sequence[Counter[m.Decision]]
    rejected: Sequence[Counter[r.Cells]]
    details: Collection[tuple[str, str]] = ()  # cases, and what one of their rejects says: the model has no words


def played_cases(
    cases: Sequence[Case], rules: m.Settings, runs: Sequence[int], details: Mapping[str, str] | None = None
) -> Played:
    """Each case has a broker of its own."""
    steps: list[Step] = []
    for run, now in enumerate(runs):
        landing = landed_abreast(cases, run, now)
        steps.append(Land(tuple(landing.halves), tuple(landing.ops), now, landing.known))
        steps += [Resume(tuple(landing.resumes), now), Run(now)]
    return replace(played_ships(rules, [_alone(rules, steps)]), details=(details or {}).items())


def played_copies() -> Played:
    steps: list[Step] = []
    for run, now in enumerate(copies.RUNS):
        rows = [
            copies.under(f"b{n}", step)
            for n, case in enumerate(copies.CASES)
            if run < len(case.landings)
            for step in case.landings[run]
        ]
        halves, ops, finals, discards = (
            tuple(copies.only(kind, rows)) for kind in (m.Half, m.Op, m.Final, m.BrokerDiscard)
        )
        known = {(f"b{n}", 0): now for n in range(len(copies.CASES))}
        steps += [Land(halves, ops, now - copies.SECOND, known, finals, discards), Run(now)]
    return played_ships(copies.RULES, [_alone(copies.RULES, steps)])


def _alone(rules: m.Settings, steps: Sequence[Step]) -> f.Ship:
    history = History(rules, tuple(steps))
    return f.Ship("", history, play(history))


def played_ships(rules: m.Settings, ships: Sequence[f.Ship]) -> Played:
    """Each ship has brokers of its own."""
    steps = [step for group in f.abreast(ships) if group for step in _together(group)]
    runs = range(1, len(ships[0].played.runs) + 1)
    decided = [Counter(d for ship in ships for d in ship.played.runs[run - 1]) for run in runs]
    every = [row for ship in ships for row in ship.played.model.rejected]
    rejected = [Counter(f.rejected_cells(row) for row in every if row.run <= run) for run in runs]
    return Played(rules, steps, decided, rejected)


def _together(steps: Sequence[Step]) -> Iterator[Step]:
    """Steps of one kind as one."""
    lands = [step for step in steps if isinstance(step, Land)]
    if lands:
        known = {queue: until for step in lands for queue, until in step.known_until.items()}
        parts = zip(*((land.halves, land.ops, land.finals, land.discards) for land in lands), strict=True)
        halves, ops, finals, discards = (tuple(row for rows in part for row in rows) for part in parts)
        yield Land(halves, ops, lands[0].at, known, finals, discards)
    resumes = [step for step in steps if isinstance(step, Resume)]
    if resumes:
        yield Resume(tuple(key for step in resumes for key in step.keys), resumes[0].at)
    yield from [step for step in steps if isinstance(step, Run)][:1]


def assert_agrees(spark: SparkSession, played: Played) -> None:
    memory, runs = InMemory(spark, played.settings), zip(played.decided, played.rejected, strict=True)
    for step in played.steps:
        if isinstance(step, Land):
            given: dict[str, Any] = {"finals": step.finals, "discards": step.discards, "sources": step.sources}
            memory.land(step.halves, step.ops, step.at, step.known_until, forgets_after=step.forgets_after, **given)
        elif isinstance(step, Resume):
            memory.resume(step.keys, step.at)
        else:
            decided, rejected = next(runs)
            _same(Counter(memory.run(step.now)), decided)
            _same(memory.rejected, rejected)
    assert set(played.details) - memory.details == set()


def _same(found: Counter[T], wanted: Counter[T]) -> None:
    assert found == wanted, f"the model alone: {[*(wanted - found)]}; halfop alone: {[*(found - wanted)]}"
