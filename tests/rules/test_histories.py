"""Generated histories played through the model and through runs: they agree, run by run and in all that is written.

TEST_SHIPS sets how many histories play side by side, TEST_SEED which ones: without it, others each time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from halfop.rules import halves
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from model import fleet as f
from model import reference as m
from model.lineage import is_marked
from model.strategies import START, Charter, History, Land, Phase, charters, copied_histories, histories, reorderings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support import rows as r
from support.seeds import SEED

SHIPS = int(os.environ.get("TEST_SHIPS", "60"))

# A quarter of an hour on two busy cores: tests/run -m slow
pytestmark = pytest.mark.slow
SECOND, MINUTE = 1_000, 60_000


def charter(settings: m.Settings, *phases: tuple[int, tuple[int, ...]], last: int) -> Charter:
    """Instants as milliseconds after START: of each phase its landing and its runs."""
    at = [
        Phase(START + landing, tuple(START + run for run in runs), tuple(START + run for run in runs))
        for landing, runs in phases
    ]
    return Charter(settings, tuple(at), START + last)


# Most messages are born at START and stored by 7 s; so each run stands on a boundary of some rule, or just beside it.
RULES = m.Settings(
    check_max=2,
    file_reserved_time=60 * MINUTE,
    groups={"g1": m.Override(transaction_timeout=1 * SECOND), "g2": m.Override(check_max=1)},
    topics={"T2": m.Override(transaction_timeout=10 * SECOND, check_max=3)},
)
PATIENT = charter(
    RULES,
    (0, (6_001,)),
    (7_000, (66_000, 66_001)),
    (60 * MINUTE, (60 * MINUTE,)),
    last=60 * MINUTE + 66_001,
)
HASTY = charter(
    m.Settings(6 * SECOND, check_max=1, check_interval=SECOND, file_reserved_time=30 * SECOND),
    (-1, (7_000,)),
    (7_001, (8_000, 30_001)),
    last=61_002,
)


# ---- run by run ----


@pytest.mark.parametrize("charter", [PATIENT, HASTY], ids=["patient", "hasty"])
def test_every_run_decides_what_the_model_decides(warehouse: Warehouse, charter: Charter) -> None:
    f.assert_agrees(warehouse, charter, f.with_gateways(f.generated(histories(charter), SHIPS, SEED), SEED))


# Landings minutes apart, so that copies, discards and resumes of a broker fall into several runs.
PUT_BACK = charter(
    RULES,
    (7_000, (30_000,)),
    (45_000, (66_000,)),
    (2 * MINUTE, (3 * MINUTE,)),
    (4 * MINUTE, (5 * MINUTE,)),
    last=10 * MINUTE,
)


@pytest.mark.parametrize("charter", [PUT_BACK, HASTY], ids=["put back", "hasty"])
def test_transactions_of_several_copies(warehouse: Warehouse, charter: Charter) -> None:
    f.assert_agrees(warehouse, charter, f.with_gateways(f.generated(copied_histories(charter), SHIPS, SEED), SEED))


def test_runs_without_repeats_take_the_short_way_to_the_same_end(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ways: list[DataFrame] = []
    one_per_key = halves.one_per_key

    def the_long_way(rows: DataFrame) -> DataFrame:
        long_ways.append(rows)
        return one_per_key(rows)

    monkeypatch.setattr(halves, "one_per_key", the_long_way)
    short = charter(HASTY.settings, (7_000, (7_001,)), last=30_001)
    found = [h for h in f.generated(histories(short), 3 * SHIPS, SEED + 1) if f.lands_once_at_first(h)]
    f.assert_agrees(warehouse, short, f.fleet(found))
    assert len(found) > SHIPS // 4
    assert not long_ways


@pytest.mark.slow
@pytest.mark.skipif("TEST_FLEETS" not in os.environ, reason="TEST_FLEETS says how many more fleets sail")
@pytest.mark.parametrize("number", range(int(os.environ.get("TEST_FLEETS", "0"))))
def test_more_fleets(warehouse: Warehouse, number: int) -> None:
    drawn = f.generated(charters(most_phases=3, most_runs=2), 20, SEED + number)
    charter = max(drawn, key=lambda drawn: sum(len(phase.runs) for phase in drawn.phases))
    f.assert_agrees(warehouse, charter, f.fleet(f.generated(histories(charter), SHIPS, SEED + number)))


# ---- slices and orders ----


def ends(model_or_found: Iterable[m.Delivered]) -> Counter[m.Delivered]:
    return Counter(replace(row, run=0, op_offset=0) for row in model_or_found)


def settled(decisions: Iterable[m.Decision]) -> Counter[m.Decision]:
    """Decisions as the next run finds them: what was asked now was checked recently."""
    return Counter(
        replace(d, run=0, decision="WAIT", reason="CHECKED_RECENTLY") if d.decision == "CHECK" else replace(d, run=0)
        for d in decisions
    )


def has_marks(history: History) -> bool:
    halves = (half for step in history.steps if isinstance(step, Land) for half in step.halves)
    return any(is_marked(half) and half.uniq_key for half in halves)


@pytest.mark.parametrize("copies", [False, True], ids=["plain", "copies"])
def test_slices_of_a_backlog_decide_what_one_run_decides(warehouse: Warehouse, copies: bool) -> None:
    """A backlog in which one half message is marked as a copy is not sliced."""
    sliced = charter(PATIENT.settings, (7_000, (66_001,)), last=126_001)
    of = copied_histories if copies else histories
    drawn = f.generated(of(sliced), SHIPS if copies else 4 * SHIPS, SEED + 2)
    ships = f.fleet(h for h in drawn if copies or not has_marks(h))
    last_of_backlog, last = f.sail(warehouse, sliced, ships, max_rows=SHIPS // 2)
    assert last_of_backlog == 1 if copies else last_of_backlog >= 3
    runs = [r.decisions(warehouse, run) for run in range(1, last_of_backlog + 1)]
    closed = [d for run in runs[:-1] for d in run if d.decision not in ("CHECK", "WAIT", "EARLY_OP")]
    assert settled(closed + runs[-1]) == settled(d for ship in ships for d in ship.played.runs[0])
    assert settled(r.decisions(warehouse, last)) == settled(d for ship in ships for d in ship.played.runs[1])
    assert r.rejected(warehouse) == f.rejected(ships)
    assert ends(r.delivered(warehouse).elements()) == ends(row for ship in ships for row in ship.played.model.delivered)


def test_the_same_rows_end_the_same_way_in_any_order_and_slicing(spark: SparkSession, tmp_path: Path) -> None:
    """Also if a half message lands after its op was given up, was rejected at first, or has no producer group."""
    rules = replace(RULES, file_reserved_time=30 * SECOND)
    at_once = charter(rules, (1, ()), last=6_001)
    by_and_by = charter(rules, (1, ()), (2, (6_002,)), (6_003, (40_000,)), (41_000, ()), last=106_002)
    pairs = f.generated(reorderings((at_once, by_and_by)), SHIPS, SEED + 3)
    outcomes = []
    for name, order, max_rows in [("first", at_once, None), ("second", by_and_by, SHIPS)]:
        warehouse = KernelWarehouse(spark, str(tmp_path / name))
        f.sail(warehouse, order, f.fleet(getattr(pair, name) for pair in pairs), max_rows)
        outcomes.append((ended(warehouse), ends(r.delivered(warehouse).elements())))
    assert outcomes[0] == outcomes[1]


def ended(warehouse: Warehouse) -> dict[m.Key, str]:
    """The last word on each half message that was committed, rolled back or rejected."""
    rows = warehouse.read("decisions").where(F.col("decision") != "EARLY_OP")
    last = rows.groupBy("broker_name", "queue_id", "queue_offset").agg(F.max_by("decision", "run_id").alias("decision"))
    found = last.where(F.col("decision").isin("COMMIT", "ROLLBACK", "REJECT")).collect()
    return {(row["broker_name"], row["queue_id"], row["queue_offset"]): row["decision"] for row in found}
