"""A Spark standalone cluster with two workers on this machine, of which one dies in the middle of a run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from support.brokers import store_writer as w
from support.brokers.stores import transactions
from support.crash import ended, job
from support.kills import content

from systems.cluster.clusters import Cluster, waited

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
HALVES = 3_000


def has_opened(warehouse: Path) -> re.Match[str] | None:
    opened = warehouse / "runs" / "_delta_log" / f"{1:020d}.json"
    return re.search("OPENED|add", opened.read_text()) if opened.exists() else None


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, workers=2)
    yield cluster
    cluster.close()


def test_a_worker_dies_in_the_middle_of_a_run(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    store = w.Store(tmp_path / "store", file_size=1 << 22)
    transactions(store, range(HALVES))
    now = "2026-01-01T00:00:00Z"
    on_cluster = ["--master", cluster.url, "--conf", "spark.executor.memory=512m", "--conf", "spark.task.maxFailures=8"]
    warehouse = ["--warehouse", str(tmp_path / "cluster")]
    status, said = ended(job(*on_cluster, "land", "store", "--path", str(store.root), *warehouse))
    assert status == 0, said
    shutil.copytree(tmp_path / "cluster", tmp_path / "alone")
    running = job(*on_cluster, "reconcile", "--now", now, *warehouse)
    waited(lambda: has_opened(tmp_path / "cluster"), running)
    assert any(cluster.work(1).glob("app-*/*/stderr")), "it has an executor for the application"
    cluster.kill_worker(1)
    status, said = ended(running)
    assert status == 0, said
    status, said = ended(job("reconcile", "--now", now, "--warehouse", str(tmp_path / "alone")))
    assert status == 0, said
    alone, together = (KernelWarehouse(spark, str(tmp_path / name)) for name in ("alone", "cluster"))
    assert together.read("topics/orders").count() == HALVES // 2
    assert content(together) == content(alone)
