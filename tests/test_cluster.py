"""A Spark standalone cluster with two workers on this machine, of which one dies in the middle of a run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import store_writer as w
from build.kills import content
from build.stores import transactions
from crash import ended, job, script_of
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
HALVES = 3_000
_SECONDS = 120.0
_CLASS = "org.apache.spark.deploy"
# A daemon says in its log, at INFO, where it is and that it has joined.
_LOG = """rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""


class Cluster:
    """Each daemon is a process group of its own, a worker's with its executors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "log4j2.properties").write_text(_LOG)
        self._daemons: list[tuple[subprocess.Popen[str], Path]] = []
        master = self._start("master", f"{_CLASS}.master.Master", "--host", "127.0.0.1", "--port", "0")
        self.url = self._said(master, re.compile(r"Starting Spark master at (spark://\S+)"))
        self._workers = [self._worker(number) for number in (1, 2)]

    def _worker(self, number: int) -> int:
        options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", str(self.work(number))]
        worker = self._start(f"worker-{number}", f"{_CLASS}.worker.Worker", *options, self.url)
        self._said(worker, re.compile("Successfully registered with (master)"))
        return worker

    def work(self, number: int) -> Path:
        return self._folder / f"work-{number}"

    def kill_worker(self, number: int) -> None:
        os.killpg(self._daemons[self._workers[number - 1]][0].pid, signal.SIGKILL)

    def close(self) -> None:
        for process, _ in self._daemons:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            ended(process)

    def _start(self, name: str, *command: str) -> int:
        log = self._folder / f"{name}.log"
        ports = ("--webui-port", "0")
        start = 'exec "$SPARK_HOME/bin/spark-class" "$@"'
        shell = ("bash", "-c", f"{start} >{log} 2>&1", "spark-class", command[0], *ports, *command[1:])
        process = script_of(*shell, LOG4J_CONFIGURATION_FILE=str(self._folder / "log4j2.properties"))
        self._daemons.append((process, log))
        return len(self._daemons) - 1

    def _said(self, daemon: int, what: re.Pattern[str]) -> str:
        process, log = self._daemons[daemon]
        found = waited(lambda: what.search(log.read_text()) if log.exists() else None, process)
        return found[1]


def waited(look: Callable[[], re.Match[str] | None], process: subprocess.Popen[str]) -> re.Match[str]:
    deadline = time.monotonic() + _SECONDS
    while (found := look()) is None:
        assert process.poll() is None, ended(process)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def has_opened(warehouse: Path) -> re.Match[str] | None:
    opened = warehouse / "runs" / "_delta_log" / f"{1:020d}.json"
    return re.search("OPENED|add", opened.read_text()) if opened.exists() else None


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
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
    alone, together = (Warehouse(spark, str(tmp_path / name)) for name in ("alone", "cluster"))
    assert together.read("topics/orders").count() == HALVES // 2
    assert content(together) == content(alone)
