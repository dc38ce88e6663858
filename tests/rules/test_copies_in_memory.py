"""Put-back copies, final messages and a broker's own discards on frames in memory: the cases of `test_lineage`."""

from __future__ import annotations

from collections import defaultdict

import pytest
from model import reference as m
from pyspark.sql import SparkSession
from support.rules.cases_of_copies import CASES, RULES, RUNS, SECOND, Row, only, under
from support.rules.in_memory import InMemory

Decided = dict[str, list[Row]]
Rejected = dict[str, list[tuple[str, int]]]


@pytest.fixture(scope="module")
def played(frames: SparkSession) -> tuple[Decided, Rejected]:
    """All cases side by side, each with a broker of its own."""
    memory, decided, rejected = InMemory(frames, RULES), defaultdict(list), defaultdict(list)
    for number, now in enumerate(RUNS):
        steps = [under(f"b{n}", s) for n, c in enumerate(CASES) if number < len(c.landings) for s in c.landings[number]]
        halves, ops, finals, discards = (only(kind, steps) for kind in (m.Half, m.Op, m.Final, m.BrokerDiscard))
        known: dict[m.Queue, int | None] = {(f"b{n}", 0): now for n in range(len(CASES))}
        memory.land(halves, ops, now - SECOND, known, finals=finals, discards=discards)
        for d in memory.run(now):
            decided[d.key[0]].append((d.run, d.key[2], d.decision, d.reason, d.superseded_by))
    for _, reason, broker, _, offset, *_ in memory.rejected.elements():
        rejected[broker].append((reason, offset))
    return decided, rejected


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.name for case in CASES])
def test_case(number: int, played: tuple[Decided, Rejected]) -> None:
    case, (decided, rejected) = CASES[number], played
    last = max(run for run, *_ in case.rows)
    assert sorted(row for row in decided[f"b{number}"] if row[0] <= last) == sorted(case.rows)
    assert sorted(rejected[f"b{number}"]) == list(case.rejected)
