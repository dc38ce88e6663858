"""Several drivers at once on one warehouse: the same rows as one leaves, whoever wins."""

from __future__ import annotations

import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import rows as r
from crash import ended, job
from halfop.runs.reconcile import Request, reconcile
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from test_kills import LATER, SETTINGS, before, command, content, finished, undisturbed

__all__ = ["before", "undisturbed"]  # fixtures
Content = dict[str, Counter[str]]
pytestmark = pytest.mark.timeout(3600)


def copied(before: Path, name: str) -> Path:
    folder = before.with_name(name)
    shutil.copytree(before, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("drivers", [2, 4])
def test_drivers_that_nothing_locks_out(spark: SparkSession, before: Path, undisturbed: Content, drivers: int) -> None:
    """As on an object store, where there is no lock: threads of one JVM, whose commits are atomic among each other. One
    that finds its run finished by another is content.
    """
    folder = copied(before, f"unlocked-{drivers}")

    def driver(_: int) -> int:
        return reconcile(Warehouse(spark, str(folder)), Request(SETTINGS, r.instant(LATER))).status

    with ThreadPoolExecutor(drivers) as pool:
        assert list(pool.map(driver, range(drivers))) == [0] * drivers
    assert content(finished(spark, folder)) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("drivers", [2, 4])
def test_drivers_on_a_local_disk(spark: SparkSession, before: Path, undisturbed: Content, drivers: int) -> None:
    """One has the warehouse's lock; the others end with status 4."""
    folder = copied(before, f"locked-{drivers}")
    statuses = [ended(process)[0] for process in [job(*command(folder)) for _ in range(drivers)]]
    assert set(statuses) <= {0, 4}
    assert 0 in statuses
    assert content(finished(spark, folder)) == undisturbed


@pytest.mark.slow
def test_drivers_that_wait(spark: SparkSession, before: Path, undisturbed: Content) -> None:
    folder = copied(before, "waiting")
    processes = [job(*command(folder), "--wait", "10m") for _ in range(3)]
    assert [ended(process)[0] for process in processes] == [0, 0, 0]
    assert content(finished(spark, folder)) == undisturbed
