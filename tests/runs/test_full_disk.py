"""Sinks that fail at the worst moment: a disk that fills up, a commit that another writer overtakes."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import local
from typing import Any

import pytest
from halfop.frame.errors import HalfopError
from halfop.runs.reconcile import Request, reconcile
from halfop.warehouse.delta_log import DeltaLog
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support import rows as r
from support.kills import LATER, SETTINGS, content, finished, prepare
from support.messages import QUEUE, half, ops

BODY = 100_000
KIB = 1_024
# A summary has a failed sink's first line only, in which Spark does not say why a task could not write.
NO_ROOM = re.compile(r"No space left on device|java\.io\.\w*Exception|org\.apache\.spark\.SparkException")


def landed(warehouse: Warehouse) -> None:
    prepare(warehouse)
    chance = random.Random(3)
    halves = [half(n, body=chance.randbytes(BODY)) for n in range(100, 140)]
    r.land(warehouse, halves, ops("COMMIT", *range(100, 140)), LATER, {QUEUE: LATER})


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    if told("mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", folder) is None:
        pytest.skip("only root may mount a file system")
    try:
        yield
    finally:
        told("umount", "-l", folder)


def resize(folder: Path, spare: int) -> None:
    """Leaves so many KiB free."""
    used = told("df", "--output=used", "-k", folder)
    assert used is not None
    assert told("mount", "-o", f"remount,size={int(used.split()[-1]) + spare}k", folder) is not None


def told(*command: str | Path) -> str | None:
    """The output of a command of the system; None if it failed."""
    ran = subprocess.run([str(shutil.which(command[0])), *command[1:]], capture_output=True, text=True, check=False)
    return None if ran.returncode else ran.stdout


def failures(warehouse: Warehouse) -> list[str]:
    """The errors of a run, at least one: where the disk is full decides whether it ends with one or names failed sinks.

    An error of any other kind is a fault of ours, and goes on to the test.
    """
    try:
        summary = reconcile(warehouse, Request(SETTINGS, r.instant(LATER)))
    except (OSError, PySparkException, Py4JJavaError, HalfopError) as error:
        return [str(error)]
    assert summary.status == 1
    assert summary.extra["failed_sinks"]
    return list(summary.extra["failed_sinks"].values())


@pytest.mark.slow
def test_a_disk_that_fills_up(spark: SparkSession, tmp_path: Path) -> None:
    """Wherever it is full, the run is finished when there is room again."""
    roomy, small = tmp_path / "roomy", tmp_path / "small"
    landed(KernelWarehouse(spark, str(roomy)))
    undisturbed = content(finished(spark, roomy))
    with small_disk(small):
        warehouse = KernelWarehouse(spark, str(small))
        landed(warehouse)
        said: list[str] = []
        for spare in (8, 64, 256, KIB, 3 * KIB):
            resize(small, spare)
            found = failures(KernelWarehouse(spark, str(small)))
            assert all(map(NO_ROOM.search, found)), spare
            said += found
        assert any("No space left on device" in line for line in said), "the pattern also fits other failures"
        resize(small, 256 * KIB)
        assert content(finished(spark, small)) == undisturbed


@pytest.mark.slow
def test_a_commit_that_is_overtaken(warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone changes a topic's table between a sink's look and its commit: that sink fails, and is made up for."""
    other = KernelWarehouse(warehouse.spark, str(tmp_path / "other"))
    for each in (warehouse, other):
        prepare(each)
    table, rivals, at_work = warehouse.path("topics/T"), ["halfop.test"], local()
    commit_files, begun = DeltaLog.commit_files, DeltaLog._begun

    def noted(log: DeltaLog, path: str, *given: Any) -> None:
        at_work.path = path
        commit_files(log, path, *given)

    def overtaken(*given: Any) -> Any:
        commit = begun(*given)
        if rivals and at_work.path == table:
            warehouse.spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('{rivals.pop()}' = 'x')")
        return commit

    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "commit_files", noted)
        patch.setattr(DeltaLog, "_begun", overtaken)
        summary = reconcile(warehouse, Request(SETTINGS, r.instant(LATER)))
    assert (summary.status, rivals) == (1, [])
    assert list(summary.extra["failed_sinks"]) == ["topics/T"]
    assert content(finished(warehouse.spark, Path(warehouse.root))) == content(finished(other.spark, Path(other.root)))
