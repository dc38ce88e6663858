"""A case of the rules, what the reference model makes of it, and what a run made of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from halfop.columns.lives import Lost
from model import reference as m
from model.lineage import is_marked
from pyspark.sql import SparkSession

from support import rows as r
from support.rules.in_memory import InMemory

Landed = m.Half | m.Op


@dataclass(frozen=True)
class Case:
    """What lands before the first run (or before each), and what each run makes of the half message at `offset`.

    `wanted` has one text a run: decision and reason, "" where the run does not look at it. `rejects` holds all that is
    rejected, as "OP CONFLICT". `known`: the queue's known_until, by default the landing's instant; without `listed` the
    queue has no landing_progress row.
    """

    name: str
    lands: Sequence[Landed] | Mapping[int, Sequence[Landed]]
    wanted: str | Sequence[str]
    rejects: Sequence[str] = ()
    known: Mapping[int, int | None] = field(default_factory=dict)
    listed: bool = True
    resumes: Mapping[int, Sequence[int]] = field(default_factory=dict)
    offset: int = 0

    def landing(self, run: int) -> Sequence[Landed]:
        return self.lands.get(run, ()) if isinstance(self.lands, Mapping) else self.lands if run == 0 else ()


def by_the_model(case: Case, rules: m.Settings, runs: Sequence[int]) -> tuple[list[str], list[str]]:
    """What the reference model decides of a case, and what it rejects."""
    model, decided = m.Model(rules), []
    for run, now in enumerate(runs):
        rows = case.landing(run)
        known = {("", 0): case.known.get(run, now)} if case.listed else {}
        halves, ops = [row for row in rows if isinstance(row, m.Half)], [row for row in rows if isinstance(row, m.Op)]
        model.land(halves, ops, now, known)
        for offset in case.resumes.get(run, ()):
            model.resume(("", 0, offset), now)
        decided.append(_text({d.key[2]: d for d in model.run(now)}.get(case.offset)))
    return decided, sorted(f"{row.kind} {row.reason}" for row in model.rejected)


@dataclass(frozen=True)
class Outcome:
    """What became of every case."""

    decided: Mapping[str, Sequence[str]]
    times: Mapping[str, Sequence[int]]
    rejected: Mapping[str, Sequence[str]]
    rows: Sequence[Sequence[m.Decision]] = ()  # of each run, all that it decided
    rejects: Mapping[r.Cells, int] = field(default_factory=dict)
    details: Collection[tuple[str, str]] = ()  # cases, and what one of their rejects says


def in_memory(
    spark: SparkSession, cases: Sequence[Case], rules: m.Settings, runs: Sequence[int], lost: Sequence[Lost] = ()
) -> Outcome:
    """Returns what the rules decide of all cases side by side, on frames in memory."""
    memory, by_run = InMemory(spark, rules, lost), []
    for run, now in enumerate(runs):
        landing = landed_abreast(cases, run, now)
        memory.land(landing.halves, landing.ops, now, landing.known)
        memory.resume(landing.resumes, now)
        by_run.append(memory.run(now))
    found = outcome(cases, by_run, [(row[2], row[0], row[1]) for row in memory.rejected.elements()])
    return replace(found, rows=by_run, rejects=memory.rejected, details=memory.details)


@dataclass(frozen=True)
class Landing:
    halves: list[m.Half]
    ops: list[m.Op]
    known: dict[m.Queue, int | None]
    resumes: list[m.Key]


def landed_abreast(cases: Sequence[Case], run: int, now: int) -> Landing:
    """Returns what lands before a run, each case's rows under a broker of its own."""
    assert len({case.name for case in cases}) == len(cases)
    rows = [_under(case.name, row) for case in cases for row in case.landing(run)]
    return Landing(
        [row for row in rows if isinstance(row, m.Half)],
        [row for row in rows if isinstance(row, m.Op)],
        {(case.name, 0): case.known.get(run, now) for case in cases if case.listed},
        [(case.name, 0, offset) for case in cases for offset in case.resumes.get(run, ())],
    )


def _under(name: str, row: m.Half | m.Op) -> m.Half | m.Op:
    """The row of another broker; a copy gets another UNIQ_KEY, for what agrees in it may be a copy across brokers."""
    if isinstance(row, m.Half) and is_marked(row):
        return replace(row, broker=name, uniq_key=row.uniq_key and f"{row.uniq_key} of {name}")
    return replace(row, broker=name)


def outcome(
    cases: Sequence[Case], by_run: Sequence[Iterable[m.Decision]], rejects: Iterable[tuple[str, str, str]]
) -> Outcome:
    """Returns each case's decisions run by run, and its rejects, given as (broker, kind, reason)."""
    keyed = [{d.key: d for d in decisions} for decisions in by_run]
    found = {case.name: [of.get((case.name, 0, case.offset)) for of in keyed] for case in cases}
    decided = {name: [_text(decision) for decision in of] for name, of in found.items()}
    times = {name: [decision.check_times if decision else -1 for decision in of] for name, of in found.items()}
    rejected: dict[str, list[str]] = {case.name: [] for case in cases}
    for broker, kind, reason in rejects:
        rejected.setdefault(broker, []).append(f"{kind} {reason}")
    return Outcome(decided, times, rejected)


def _text(decision: m.Decision | None) -> str:
    return " ".join(part for part in (decision.decision, decision.reason) if part) if decision else ""


def check(found: Outcome, case: Case) -> None:
    wanted = [case.wanted] if isinstance(case.wanted, str) else list(case.wanted)
    assert found.decided[case.name] == wanted
    assert sorted(found.rejected[case.name]) == sorted(case.rejects)


def named(case: Case) -> str:
    return case.name
