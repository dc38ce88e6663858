"""reconcile killed for real, by SIGKILL before and after each of its commits: the next start leaves what an undisturbed
run leaves, row for row. `-m slow` takes every commit, the plain suite some."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp

import pytest
from halfop.runs.reconcile import Request, reconcile
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from support import rows as r
from support.crash import KILLED, commits, dying, ended, job, killed_after, seconds_of
from support.kills import LATER, MAINTAIN, RESUME, SETTINGS, UNLIKE_EACH_TIME, command, content, finished
from support.messages import QUEUE, half, ops
from support.seeds import SEED

AT_RANDOM = 8
MOST = 10  # kills of a job with many commits
pytestmark = pytest.mark.timeout(3600)


def killed_and_finished(spark: SparkSession, before: Path, when: str, number: int) -> Warehouse:
    folder = Path(mkdtemp(prefix=f"{when}-{number}-", dir=before.parent)) / "warehouse"
    shutil.copytree(before, folder)
    status, said = ended(dying(when, number, *command(folder)))
    assert status == KILLED, said
    return finished(spark, folder)


@pytest.mark.parametrize(("when", "number"), [pytest.param("after", 1, marks=pytest.mark.slow), ("before", 3)])
def test_killed_at_a_commit(
    spark: SparkSession, before: Path, undisturbed: dict[str, Counter[str]], when: str, number: int
) -> None:
    assert content(killed_and_finished(spark, before, when, number)) == undisturbed


@pytest.mark.slow
def test_killed_at_every_commit(spark: SparkSession, before: Path, undisturbed: dict[str, Counter[str]]) -> None:
    counted = before.with_name("counted")
    shutil.copytree(before, counted)
    number = commits(*command(counted))
    assert content(KernelWarehouse(spark, str(counted))) == undisturbed
    for when, at in [("before", 1), *(("after", at) for at in range(1, number + 1))]:
        assert content(killed_and_finished(spark, before, when, at)) == undisturbed, (when, at)


@pytest.mark.slow
def test_killed_at_any_moment(spark: SparkSession, before: Path, undisturbed: dict[str, Counter[str]]) -> None:
    chance, killed = random.Random(SEED), 0
    shutil.copytree(before, before.with_name("timed"))
    seconds = seconds_of(command(before.with_name("timed")))
    for number in range(AT_RANDOM):
        folder = before.with_name(f"random-{number}")
        shutil.copytree(before, folder)
        for _ in range(3):
            killed += killed_after(chance.uniform(0.2, 1) * seconds, command(folder))
        assert ended(job(*command(folder)))[0] == 0
        assert content(finished(spark, folder)) == undisturbed
    assert killed >= AT_RANDOM


# ---- maintain and resume ----

# versions of tables, and the wall clock
OF_ITS_OWN_TIME = {"runs": ("inputs", "inputs_before"), "decisions": ("resumed_at",), "rejected": ("detail",)}


@pytest.fixture(scope="module")
def two_runs(spark: SparkSession, before: Path) -> Path:
    folder = before.with_name("two-runs")
    shutil.copytree(before, folder)
    finished(spark, folder)
    return folder


def after_another_run(spark: SparkSession, folder: Path, job_command: list[str]) -> dict[str, Counter[str]]:
    """The tables when the job has been called again, and a third run has closed."""
    warehouse = KernelWarehouse(spark, str(folder))
    assert ended(job(*job_command, "--warehouse", str(folder)))[0] == 0
    r.land(warehouse, [half(30)], ops("COMMIT", 3, 30), LATER + 1, {QUEUE: LATER + 1_000_000})
    request = Request(SETTINGS, r.instant(LATER + 1_000_000), allow_future=True)
    assert reconcile(warehouse, request).status == 0
    found = content(warehouse, 3)
    for name, columns in OF_ITS_OWN_TIME.items():
        rows = warehouse.read(name).where("run_id <= 3").drop(*UNLIKE_EACH_TIME, *columns)
        found[name] = Counter(str(row) for row in rows.collect())
    landed = ("half_messages", "op_messages", "resumes")
    return found | {name: Counter({"rows": warehouse.read(name).count()}) for name in landed}


@pytest.mark.slow
@pytest.mark.parametrize("job_command", [MAINTAIN, RESUME], ids=["maintain", "resume"])
def test_maintain_and_resume_killed_at_their_commits(
    spark: SparkSession, two_runs: Path, job_command: list[str]
) -> None:
    def copied(name: str) -> Path:
        folder = two_runs.with_name(f"{job_command[0]}-{name}")
        shutil.copytree(two_runs, folder)
        return folder

    counted = copied("counted")
    number = commits(*job_command, "--warehouse", str(counted))
    wanted = after_another_run(spark, counted, job_command)
    for at in range(1, number + 1, -(-number // MOST)):
        folder = copied(str(at))
        status, said = ended(dying("after", at, *job_command, "--warehouse", str(folder)))
        assert status == KILLED, said
        assert after_another_run(spark, folder, job_command) == wanted, at
