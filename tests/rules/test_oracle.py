"""The rules held against what RocketMQ's own check service and end-transaction processor decided, case by case."""

from __future__ import annotations

from pathlib import Path

import pytest
from halfop.columns.keys import HALF_KEY
from halfop.rules import cases as c
from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules.settings_columns import RuleColumns
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from model.oracle import NOW, expected, folders, halves, ops, settings, wrong
from model.reference import Decision, Half, Key, Op, Settings
from model.strategies import op_columns
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support import rows as r

CASES = 3_779
each_folder = pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.name)


def test_all_recorded_cases_are_here() -> None:
    assert sum(len(expected(folder)) for folder in folders()) == CASES


@each_folder
def test_the_rules_decide_as_rocketmq_does(spark: SparkSession, folder: Path) -> None:
    assert wrong(folder, by_the_rules(spark, halves(folder), ops(folder), settings(folder))) == []


@each_folder
def test_a_run_decides_as_rocketmq_does(warehouse: Warehouse, folder: Path) -> None:
    landed = halves(folder)
    r.land(warehouse, landed, ops(folder), NOW, {(half.broker, half.queue): NOW for half in landed})
    r.run(warehouse, settings(folder), NOW)
    assert wrong(folder, {d.key: d for d in r.decisions(warehouse, 1) if d.decision != "EARLY_OP"}) == []


def by_the_rules(spark: SparkSession, halves: list[Half], ops: list[Op], given: Settings) -> dict[Key, Decision]:
    """The decisions of `rules.cases` on frames in memory: nothing lands, nothing is written."""
    nowhere, rules = KernelWarehouse(spark, ""), RuleColumns(r.settings(given).rules, r.instant(NOW))
    half_rows = r.frame(nowhere, "half_messages", [r.half_cells(half, NOW) for half in halves])
    op_rows = r.frame(nowhere, "op_messages", [op_columns(op) | {"landed_at": NOW} for op in ops])
    named = o.by_half(o.as_named(o.landed(op_rows)))
    rows = h.nothing_else(h.landed(half_rows, rules)).join(named, HALF_KEY, "full")
    decided = c.decisions(c.cases(rows, None, _queues(spark), rules), rules)
    columns = ["broker_name", "queue_id", "queue_offset", "decision", "reason", "check_times"]
    found = decided.where(F.col("decision") != "EARLY_OP").select(columns).collect()
    decisions = [Decision(1, (row[0], row[1], row[2]), row[3], row[4], row[5], None) for row in found]
    return {decision.key: decision for decision in decisions}


def _queues(spark: SparkSession) -> DataFrame:
    """No queue has a clock of its own, so each is known until the run's instant."""
    columns = "broker_name STRING, queue_id INT, known_until TIMESTAMP, next_offset BIGINT, first_offset BIGINT"
    return spark.createDataFrame([], f"{columns}, has_clock BOOLEAN")
