"""Harm that users and Delta may do to tables while runs go on: halfop says so, or nothing happens."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from halfop.frame.errors import LostRows
from halfop.planning.plan import InputRemoved, Plan
from halfop.runs.reconcile import Request, reconcile
from halfop.runs.verify import verify
from halfop.settings.model import Settings
from halfop.upkeep.maintain import maintain
from halfop.warehouse import reading
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.reading import Limits
from halfop.warehouse.tables import Warehouse
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support import rows as r
from support.dying import Killed, dying
from support.messages import KNOWN, NOW, QUEUE, RULES, half, one_of_each, ops
from support.ways import BY_SPARK

LATER = NOW + 100_000


def maintained(warehouse: Warehouse, name: str) -> None:
    """Files of earlier versions are removed at once."""
    table = f"delta.`{warehouse.path(name)}`"
    warehouse.spark.sql(f"OPTIMIZE {table}")
    key = "spark.databricks.delta.retentionDurationCheck.enabled"
    warehouse.spark.conf.set(key, "false")
    try:
        warehouse.spark.sql(f"VACUUM {table} RETAIN 0 HOURS")
    finally:
        warehouse.spark.conf.unset(key)


@pytest.mark.slow
def test_pinned_files_that_vacuum_removed(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """No result is better than a wrong one: the run stays open, and its next start says why."""
    one_of_each(warehouse)
    r.land(warehouse, [half(20)], ops("COMMIT", 20), NOW, KNOWN)
    with dying(monkeypatch, Plan, "commit", after=False), pytest.raises(Killed):
        r.run(warehouse, RULES, NOW)
    removed = warehouse.spark.read.format("delta").load(warehouse.path("half_messages")).inputFiles()
    kept = Path(warehouse.root, "kept")
    shutil.copytree(warehouse.path("half_messages"), kept)
    maintained(warehouse, "half_messages")
    warehouse = KernelWarehouse(warehouse.spark, warehouse.root)  # a driver that starts has read no file yet
    with pytest.raises(InputRemoved, match=r"run 1 reads.*delta\.deletedFileRetentionDuration"):
        reconcile(warehouse, Request(r.settings(RULES), r.instant(NOW)))
    assert warehouse.rows("decisions") == []
    for file in removed:
        name = file.rsplit("/", 1)[1]
        shutil.copy(kept / name, Path(warehouse.path("half_messages"), name))
    assert reconcile(warehouse, Request(r.settings(RULES), r.instant(NOW))).status == 0
    assert verify(warehouse, 1)[0].status == 0


@pytest.mark.slow
def test_maintenance_between_runs_changes_nothing(warehouse: Warehouse) -> None:
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    for name in ("half_messages", "op_messages", "decisions", "topics/T"):
        maintained(warehouse, name)
    r.land(warehouse, [half(20)], ops("COMMIT", 6, 20), LATER, {QUEUE: LATER})
    r.run(warehouse, RULES, LATER, layout="per_topic")
    found = {row["half_queue_offset"] for row in warehouse.read("topics/T").where("run_id = 2").collect()}
    assert found == {6, 20}
    assert warehouse.read("topics/T").groupBy("half_queue_offset").count().where("count > 1").isEmpty()


@pytest.mark.slow
def test_vacuum_of_what_has_landed_and_was_rewritten(warehouse: Warehouse) -> None:
    """The rows are there, in other files than they landed in."""
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW)
    r.land(warehouse, [half(20)], ops("COMMIT", 6, 20), LATER, {QUEUE: LATER})
    for name in ("half_messages", "op_messages"):
        maintained(warehouse, name)
    r.run(warehouse, RULES, LATER)
    found = {row["queue_offset"]: row["decision"] for row in warehouse.read("decisions").where("run_id = 2").collect()}
    assert (found[6], found[20]) == ("COMMIT", "COMMIT")


def log_cleaned_up(warehouse: Warehouse, name: str) -> None:
    """Two months pass, and Delta's next checkpoint removes the commits of then."""
    path = warehouse.path(name)
    of_then = time.time() - 60 * 24 * 3600
    for file in Path(path, "_delta_log").iterdir():
        os.utime(file, (of_then, of_then))
    delta = warehouse.spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
    delta.clearCache()
    delta.forTable(warehouse.spark._jsparkSession, path).checkpoint()


@pytest.mark.parametrize(
    "limits",
    [pytest.param(reading.FEW, marks=pytest.mark.slow), pytest.param(BY_SPARK, marks=pytest.mark.thorough)],
    ids=["few", "by workers"],
)
def test_pins_of_so_long_ago_that_log_clean_up_removed_them(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, limits: Limits
) -> None:
    """Who follows, and decides nothing for a month, moves landing_progress alone; then a late message has landed."""
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW)
    for later in (1, 2):
        r.land(warehouse, [], [], LATER, {QUEUE: LATER + later})
    log_cleaned_up(warehouse, "landing_progress")
    assert not Path(warehouse.path("landing_progress"), "_delta_log", f"{0:020}.json").exists()
    monkeypatch.setattr(reading, "FEW", limits)
    warehouse = KernelWarehouse(warehouse.spark, warehouse.root)
    r.land(warehouse, [half(20)], ops("COMMIT", 6, 20), LATER, {QUEUE: LATER})
    r.run(warehouse, RULES, LATER)
    found = {row["queue_offset"]: row["decision"] for row in warehouse.read("decisions").where("run_id = 2").collect()}
    assert (found[6], found[20]) == ("COMMIT", "COMMIT")
    assert verify(warehouse, 2)[0].status == 0
    assert maintain(warehouse, Settings())[0].status == 0


@pytest.mark.slow
def test_a_topic_table_that_someone_removed_or_would_overwrite(warehouse: Warehouse) -> None:
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    rows = warehouse.read("topics/T")
    with pytest.raises(PySparkException, match="append"):
        rows.limit(1).write.format("delta").mode("overwrite").save(warehouse.path("topics/T"))
    shutil.rmtree(warehouse.path("topics/T"))
    r.land(warehouse, [half(20)], ops("COMMIT", 20), LATER, {QUEUE: LATER})
    r.run(warehouse, RULES, LATER, layout="per_topic")
    assert [row["half_queue_offset"] for row in warehouse.read("topics/T").collect()] == [20], "what is new goes on"
    missing = [each for each in verify(warehouse, 1)[1] if each.table == "topics/T"]
    assert {each.what for each in missing} == {"missing"}, "and --verify tells what is lost"


def restored(warehouse: Warehouse, name: str, version: int) -> None:
    table = f"delta.`{warehouse.path(name)}`"
    warehouse.spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('delta.appendOnly')")
    warehouse.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {version}")


@pytest.mark.slow
@pytest.mark.parametrize("store", [KernelWarehouse, SparkWarehouse])
def test_a_table_that_someone_restored(
    spark: SparkSession, tmp_path: Path, store: Callable[[SparkSession, str], Warehouse]
) -> None:
    """It keeps the record of what runs have written, and has lost the rows."""
    warehouse = store(spark, str(tmp_path / "warehouse"))
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    versions = {name: warehouse.version(name) for name in ("topics/T", "decisions")}
    r.land(warehouse, [half(20), half(21), half(22)], ops("COMMIT", 20), LATER, {QUEUE: LATER})
    r.run(warehouse, RULES, LATER, layout="per_topic")
    restored(warehouse, "topics/T", versions["topics/T"])
    r.land(warehouse, [], ops("COMMIT", 21), LATER + 1, {QUEUE: LATER + 1})
    request = Request(r.settings(RULES, layout="per_topic"), r.instant(LATER + 1))
    summary = reconcile(warehouse, request)
    assert "has lost what run 2 wrote" in summary.extra["failed_sinks"]["topics/T"]
    newest = warehouse.version("topics/T") - 1
    warehouse.spark.sql(f"RESTORE TABLE delta.`{warehouse.path('topics/T')}` TO VERSION AS OF {newest}")
    assert reconcile(warehouse, request).status == 0
    found = {row["half_queue_offset"] for row in warehouse.read("topics/T").collect()}
    assert {20, 21} <= found
    restored(warehouse, "decisions", versions["decisions"])
    with pytest.raises(LostRows, match="decisions has lost what run 4 wrote"):
        reconcile(warehouse, request)
