"""Several drivers at once on one warehouse: the same rows as one leaves, whoever wins."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event

import pyspark
import pytest
from halfop.runs.reconcile import Request, reconcile
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from programs.appending import TABLE
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support import rows as r
from support.crash import ended, job, script_of, stopped, woken
from support.kills import LATER, MAINTAIN, RESUME, SETTINGS, command, content, finished
from support.messages import KNOWN, NOW, RULES, half, ops
from support.places import PROGRAMS
from systems.broker.real_broker import compiled

Content = dict[str, Counter[str]]
pytestmark = pytest.mark.timeout(3600)


def copied(before: Path, name: str) -> Path:
    folder = before.with_name(name)
    shutil.copytree(before, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("drivers", [2, 4])
def test_drivers_that_nothing_locks_out(spark: SparkSession, before: Path, undisturbed: Content, drivers: int) -> None:
    """There is no lock, as on an object store: threads of one JVM, whose commits are atomic among each other. One
    that finds its run finished by another is content.
    """
    folder = copied(before, f"unlocked-{drivers}")

    def driver(_: int) -> int:
        return reconcile(KernelWarehouse(spark, str(folder)), Request(SETTINGS, r.instant(LATER))).status

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
@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_driver_that_wakes_up_when_another_has_finished_its_run(
    spark: SparkSession, before: Path, undisturbed: Content, at: int
) -> None:
    """No lock keeps the other out, as on an object store: what the sleeper still commits is there already."""
    folder = copied(before, f"asleep-{at}")
    sleeper = stopped(at, *command(folder), unlocked=True)
    other = finished(spark, folder)
    status, said = woken(sleeper)
    assert status == 0, said
    assert content(other) == undisturbed


@pytest.mark.slow
def test_a_driver_asleep_on_a_local_disk_keeps_the_lock(
    spark: SparkSession, before: Path, undisturbed: Content
) -> None:
    folder = copied(before, "asleep")
    sleeper = stopped(2, *command(folder), unlocked=False)
    assert ended(job(*command(folder)))[0] == 4
    assert woken(sleeper)[0] == 0
    assert content(finished(spark, folder)) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "how", "lost"),
    [
        ("io.delta.storage.HDFSLogStore", "unlocked", True),
        ("io.delta.storage.HDFSLogStore", "locked", False),
        ("halfop.LocalLogStore", "unlocked", False),
    ],
)
def test_two_processes_commit_on_a_local_disk(
    spark: SparkSession, tmp_path: Path, store: str, how: str, lost: bool
) -> None:
    """Delta's own commit there is a look and a rename that overwrites; here with time between the two."""
    jars = Path(str(pyspark.__file__)).parent / "jars"
    classes = compiled(PROGRAMS / "SlowRename.java", jars, tmp_path / "classes")
    folder = tmp_path / "warehouse"
    spark.createDataFrame([], "name STRING, n INT").write.format("delta").save(f"{folder}/{TABLE}")
    program = ("python", "tests/programs/appending.py", str(folder))
    writers = [script_of(*program, name, "3", how, store, SPARK_DIST_CLASSPATH=str(classes)) for name in ("one", "two")]
    for writer in writers:
        assert writer.stdout
        assert any(line == "ready\n" for line in writer.stdout)
    for writer in writers:
        assert writer.stdin
        writer.stdin.write("\n")
        writer.stdin.flush()
    told = "".join(writer.communicate()[0] for writer in writers)
    told_in = set(re.findall(r"^in: (\w+) (\d)$", told, re.MULTILINE))
    for checksum in (folder / TABLE / "_delta_log").glob(".*.crc"):  # of one commit beside the other
        checksum.unlink()
    found = {(row["name"], str(row["n"])) for row in spark.read.format("delta").load(f"{folder}/{TABLE}").collect()}
    assert len(told_in) == 6 or lost, told
    assert bool(told_in - found) == lost


class Beside:
    """Does one thing again and again in a thread of its own, until it is asked to stop, because all has landed."""

    def __init__(self, warehouse: Warehouse, all_landed: Event) -> None:
        self._warehouse, self._all_landed, self.lost = warehouse, all_landed, 0

    def again(self, work: Callable[[], object]) -> None:
        while not self._all_landed.is_set():
            work()

    def maintain(self, statement: str) -> None:
        """Delta refuses a maintainer that another overtook."""
        for name in ("half_messages", "op_messages", "decisions", "real_topics"):
            if self._warehouse.version(name) > 0:
                try:
                    self._warehouse.spark.sql(f"{statement} delta.`{self._warehouse.path(name)}`")
                except PySparkException:
                    self.lost += 1

    def run(self) -> None:
        assert reconcile(self._warehouse, Request(r.settings(RULES), r.instant(NOW + 1_000_000))).status == 0


@pytest.mark.slow
def test_runs_beside_landings_and_maintenance(warehouse: Warehouse) -> None:
    """Messages land and tables are rewritten and vacuumed while runs go on: every message is delivered once."""
    all_landed = Event()
    beside = Beside(warehouse, all_landed)
    tens = [range(n * 10, n * 10 + 10) for n in range(10)]
    r.land(warehouse, map(half, tens[0]), ops("COMMIT", *tens[0]), NOW, KNOWN)
    works = (beside.run, partial(beside.maintain, "OPTIMIZE"), partial(beside.maintain, "VACUUM"))
    with ThreadPoolExecutor(len(works)) as pool:
        threads = [pool.submit(beside.again, work) for work in works]
        try:
            for n, offsets in enumerate(tens[1:], 1):
                r.land(warehouse, map(half, offsets), ops("COMMIT", *offsets), NOW + n, KNOWN)
        finally:
            all_landed.set()
        for thread in threads:
            thread.result()
    beside.run()
    delivered = Counter(row["half_queue_offset"] for row in warehouse.read("real_topics").collect())
    assert delivered == Counter(range(100))


@pytest.mark.slow
def test_maintain_and_resume_beside_runs(spark: SparkSession, before: Path, undisturbed: Content) -> None:
    """They come before or after a run, or end with status 4; nothing that the run before wrote can be resumed twice."""
    folder = copied(before, "maintained")
    commands = [command(folder), [*MAINTAIN, "--warehouse", str(folder)], [*RESUME, "--warehouse", str(folder)]]
    for first in range(3):  # whoever starts first often has the lock when the others come
        in_turn = [*commands[first:], *commands[:first]]
        statuses = [ended(process)[0] for process in [job(*each) for each in (*in_turn, *in_turn)]]
        assert set(statuses) <= {0, 4}, statuses
        assert 0 in statuses
    warehouse = finished(spark, folder)
    delivered = Counter(row["half_queue_offset"] for row in warehouse.read("topics/T").collect())
    assert set(delivered.values()) == {1}
    wanted = undisturbed["topics/T"].total()
    assert delivered.total() == wanted
    resumed = Counter(row["queue_offset"] for row in warehouse.read("resumes").collect())
    assert set(resumed.values()) == {1}


@pytest.mark.slow
def test_drivers_that_wait(spark: SparkSession, before: Path, undisturbed: Content) -> None:
    folder = copied(before, "waiting")
    processes = [job(*command(folder), "--wait", "10m") for _ in range(3)]
    assert [ended(process)[0] for process in processes] == [0, 0, 0]
    assert content(finished(spark, folder)) == undisturbed
