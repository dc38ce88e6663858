"""Recorded cases of RocketMQ, each several times, under exactly the Spark settings of conf/spark-defaults.conf.

The suite's session is made for a handful of rows: no generated code, adaptive execution or data skipping, one
shuffle partition. All of these are settings of a session, so this section plays with the file's values instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from halfop.planning import counts
from halfop.warehouse import reading
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import session_settings, spark_session
from halfop.warehouse.tables import Warehouse
from model.oracle import NOW, Expected, expected, folders, halves, ops, settings
from model.reference import Decision, Half, Key, Op
from model.strategies import op_columns
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from support import rows as r
from support.places import ROOT
from support.ways import BY_SPARK

pytestmark = pytest.mark.thorough
CONF = ROOT / "conf" / "spark-defaults.conf"
FOLDER = max(folders(), key=lambda folder: len(expected(folder)))
# What a session cannot change, and what the suite has otherwise: how many cores, and how much memory.
OF_THE_MACHINE = {"spark.master", "spark.driver.memory", "spark.driver.extraJavaOptions"}
EACH = 16  # of the cases, each sixteenth
COPIES = 3  # of each of them, in a queue of its own
FILES = 4  # of each landed table, at each landing
Row = tuple[Any, ...]
DECIDED = ["run_id", "broker_name", "queue_offset", "decision", "reason", "check_times", "op_queue_offset"]
WRITTEN = {
    "decisions": DECIDED,
    "real_topics": ["run_id", "broker_name", "half_queue_offset", "topic", "op_queue_offset"],
    "trans_check_max_time": ["run_id", "broker_name", "queue_offset", "reason", "check_times"],
    "check_requests": ["run_id", "broker_name", "tran_state_table_offset", "producer_group", "check_times"],
    "rejected": ["run_id", "broker_name", "queue_offset", "kind", "reason"],
}


@dataclass(frozen=True)
class Played:
    """A warehouse after two runs, how much code Spark generated, and how many older files the second run read."""

    warehouse: Warehouse
    compiled: int  # classes of generated code
    looked_back: dict[str, int]

    def written(self, name: str) -> Counter[Row]:
        """How often each row is there, whatever its queue."""
        found = self.warehouse.read(name).groupBy(*WRITTEN[name]).count().collect()
        return Counter({tuple(row[:-1]): row["count"] for row in found})


def defaults() -> dict[str, str]:
    lines = CONF.read_text().splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#")]
    return {key: value.strip() for key, value in pairs}


@contextmanager
def production(spark: SparkSession) -> Iterator[None]:
    """A job's settings: those of the file, those that every job makes itself, and Spark's own defaults otherwise."""
    suite = {key: value for key, value in spark.sparkContext.getConf().getAll() if spark.conf.isModifiable(key)}
    try:
        for key in suite.keys() - defaults().keys():
            spark.conf.unset(key)
        with session_settings(spark, {k: v for k, v in defaults().items() if spark.conf.isModifiable(k)}):
            spark_session("tests")
            yield
    finally:
        for key, value in suite.items():
            spark.conf.set(key, value)


# ---- landing and runs ----


def played(warehouse: Warehouse, copies: int) -> Played:
    """One half of the cases in a first run, the other half in a second one; each has a broker of its own."""
    brokers = _brokers()
    compiled = _compiled(warehouse.spark)
    for part in (brokers[: len(brokers) // 2], brokers[len(brokers) // 2 :]):
        landed = [half for half in halves(FOLDER) if half.broker in part]
        _land(warehouse, landed, [op for op in ops(FOLDER) if op.broker in part], copies)
        summary = r.run(warehouse, settings(FOLDER), NOW)
    return Played(warehouse, _compiled(warehouse.spark) - compiled, summary.extra["files_looked_back_into"])


def _brokers() -> list[str]:
    return sorted({half.broker for half in halves(FOLDER)})[::EACH]


def _land(warehouse: Warehouse, halves: list[Half], ops: list[Op], copies: int) -> None:
    """Every row in as many queues, in several files."""
    r.land(warehouse, [], [], NOW)
    queues = warehouse.spark.range(copies).select(F.col("id").cast("int").alias("queue_id"))
    rows = {
        "half_messages": [r.half_cells(half, NOW) for half in halves],
        "op_messages": [op_columns(op) | {"source": op.source, "landed_at": NOW} for op in ops],
    }
    for name, cells in rows.items():
        if cells:
            once = r.frame(warehouse, name, cells).drop("queue_id")
            warehouse.commit(name, once.crossJoin(F.broadcast(queues)).repartition(FILES))


def _compiled(spark: SparkSession) -> int:
    assert spark._jvm is not None
    return int(spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount())


@pytest.fixture(scope="module")
def in_production(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Played:
    with production(spark), pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "FEW", BY_SPARK)
        patch.setattr(counts, "_MOST_RANGES", 500)  # every case has a broker of its own
        return played(KernelWarehouse(spark, str(tmp_path_factory.mktemp("production") / "warehouse")), COPIES)


@pytest.fixture(scope="module")
def in_the_suite(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Few rows, read and written in this process."""
    return played(KernelWarehouse(spark, str(tmp_path_factory.mktemp("suite") / "warehouse")), 1)


# ---- what must hold ----


def test_only_the_machine_s_settings_are_the_suite_s(spark: SparkSession, in_production: Played) -> None:
    """Delta's settings are known to Spark once Delta has worked."""
    with production(spark):
        found = {key: str(spark.conf.get(key, None)).split() for key in defaults()}
        others = {key for key, value in defaults().items() if not set(value.split()) <= set(found[key])}
        assert others == OF_THE_MACHINE
        assert spark.conf.get("spark.sql.codegen.wholeStage") == "true"
        assert spark.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"
        assert spark.conf.get("spark.databricks.delta.stats.skipping") == "true"


def test_decides_as_rocketmq_does(in_production: Played) -> None:
    """Every copy of a case, in the run that sees it first."""
    rows: dict[Key, list[tuple[Decision, int]]] = {}
    for (run, broker, offset, decision, reason, *_), number in in_production.written("decisions").items():
        key = (broker, 0, offset)
        rows.setdefault(key, []).append((Decision(run, key, decision, reason, 0, None), number))
    brokers = _brokers()
    cases = [case for case in expected(FOLDER) if case.key[0] in brokers]
    assert len(cases) > 100
    assert [case for case in cases if not _agrees(case, rows.get(case.key, []))] == []


def _agrees(case: Expected, rows: list[tuple[Decision, int]]) -> bool:
    first = min((decision.run for decision, _ in rows), default=0)
    found = [(decision, number) for decision, number in rows if decision.run == first]
    return all(case.agrees(decision) for decision, _ in found) and sum(number for _, number in found) == COPIES


def test_writes_what_the_suite_s_settings_write(in_production: Played, in_the_suite: Played) -> None:
    for name in WRITTEN:
        found = in_production.written(name)
        assert found == Counter({row: COPIES * n for row, n in in_the_suite.written(name).items()}), name


def test_the_plans_ran_as_generated_code(in_production: Played, in_the_suite: Played) -> None:
    """Some code is always generated, as for sorting; whole plans are in production alone."""
    assert in_production.compiled > in_the_suite.compiled


def test_files_of_other_brokers_are_skipped(in_production: Played) -> None:
    """The second run's brokers are not the first one's, as the files' bounds show: no older op is read."""
    assert "op_messages" not in in_production.looked_back
