"""On S3, by a local server: the rows of a local disk, driver deaths, several drivers, races lost for certain."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from halfop.landing.files.land import FilesRequest, land_files
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import Settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from support import rows as r
from support.crash import KILLED, dying, ended, job, script_of
from support.json_lines import T0, half, lines, op
from support.kills import command as local_command
from support.kills import content
from support.large_runs import ROWS, done, everything, landed_and_decided, write_backlog

from systems.s3.local_s3 import S3, jars, local_s3

Content = dict[str, Counter[str]]
LOG = logging.getLogger("halfop.test")
ANY_COMMIT = r".*/_delta_log/\d+\.json$"
ONE_IN_EACH_TABLE = r".*/_delta_log/(?=0*[1-9]\d*\.json$)"  # not the first
WRITE = "tests/systems/s3/write.py"
pytestmark = [pytest.mark.s3, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with local_s3() as running:
        yield running


def command(uri: str) -> list[str]:
    return [*local_command(Path()), "--warehouse", uri]  # the last counts


@pytest.fixture
def check(spark: SparkSession, undisturbed: Content, tmp_path: Path) -> Callable[[S3, str], None]:
    """That a warehouse is as an undisturbed run leaves it."""

    def check(s3: S3, name: str) -> None:
        assert content(downloaded(spark, s3, name, tmp_path)) == undisturbed

    return check


def downloaded(spark: SparkSession, s3: S3, name: str, folder: Path) -> Warehouse:
    return KernelWarehouse(spark, str(s3.download(name, folder)))


# ---- the jobs ----


def test_landed_and_reconciled_twice(
    spark: SparkSession, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jars are given as a user gives them."""
    monkeypatch.delenv("SPARK_DIST_CLASSPATH")
    local, uri = KernelWarehouse(spark, str(tmp_path / "local")), s3.uri("twice")
    for n in (0, 10):
        now, both = r.instant(T0 + 100_000 + n), [op(n + 1, f"{n},{n + 1}"), op(n + 2, f"{n + 2}", outcome="ROLLBACK")]
        halves = lines(tmp_path / f"in-{n}" / "h.jsonl", *(half(n + each) for each in range(10)))
        ops = lines(tmp_path / f"in-{n}" / "o.jsonl", *both)
        land_files(local, FilesRequest([halves], [ops]), LOG)
        reconcile(local, Request(Settings(), now))
        given = s3.upload(tmp_path / f"in-{n}", f"in-{n}")
        options = ["--jars", ",".join(jars())]
        files = ["--half", f"{given}/h.jsonl", "--op", f"{given}/o.jsonl"]
        done(*options, "land", "files", *files, "--warehouse", uri)
        done(*options, "reconcile", "--now", now.isoformat(), "--warehouse", uri)
    assert everything(downloaded(spark, s3, "twice", tmp_path / "found")) == everything(local)


def test_by_workers_with_a_key_that_only_hadoop_knows(
    spark: SparkSession, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("SPARK_DIST_CLASSPATH")
    given = write_backlog(tmp_path / "in")
    here, there = str(tmp_path / "local"), s3.uri("large")
    ways = [landed_and_decided(here, str(given)), landed_and_decided(there, s3.upload(given, "large-in"), *s3.options)]
    assert ways[0] == ways[1]
    assert ways[0][0].startswith("by workers")
    found = everything(downloaded(spark, s3, "large", tmp_path / "found"))
    assert found == everything(KernelWarehouse(spark, here))
    assert found["decisions"].total() == ROWS


@pytest.mark.parametrize(("when", "number"), [("before", 3), ("after", 5)])
def test_killed_at_a_commit(s3: S3, before: Path, check: Callable[[S3, str], None], when: str, number: int) -> None:
    name = f"{when}-{number}"
    uri = s3.upload(before, name)
    status, said = ended(dying(when, number, *command(uri)))
    assert status == KILLED, said
    done(*command(uri))
    check(s3, name)


@pytest.mark.parametrize("drivers", [2, 4])
def test_drivers_at_once(s3: S3, before: Path, check: Callable[[S3, str], None], drivers: int) -> None:
    """A driver that finds its run finished by another one ends with success."""
    name = f"drivers-{drivers}"
    uri = s3.upload(before, name)
    results = [ended(process) for process in [job(*command(uri)) for _ in range(drivers)]]
    for status, said in results:
        assert status == 0, said
    check(s3, name)


@pytest.mark.parametrize("fault", [("--rival", ONE_IN_EACH_TABLE), ("--unanswered", ANY_COMMIT)])
def test_no_commit_goes_through_at_once(
    spark: SparkSession, before: Path, undisturbed: Content, tmp_path: Path, fault: tuple[str, str]
) -> None:
    """Another's comes first, once in each table; or each is there, but its first answer is an error."""
    with local_s3(*fault) as s3:
        uri = s3.upload(before, "faults")
        done(*command(uri))
        found = content(downloaded(spark, s3, "faults", tmp_path))
    pinned_more_versions = {"runs"}
    for name in undisturbed.keys() - pinned_more_versions:
        assert found[name] == undisturbed[name], name


# ---- the log store ----


@pytest.mark.parametrize(
    ("store", "said", "lost"),
    [
        ("halfop.S3LogStore", "java.nio.file.FileAlreadyExistsException", False),
        ("io.delta.storage.S3SingleDriverLogStore", "written", True),
    ],
)
def test_a_commit_is_not_overwritten(tmp_path: Path, store: str, said: str, lost: bool) -> None:
    """A commit that comes between look and write; with Delta's own store it is lost, though it was acknowledged."""
    name = "00000000000000000001.json"
    with local_s3("--rival", ANY_COMMIT) as s3:
        status, told = ended(script_of("python", WRITE, store, s3.uri(f"table/_delta_log/{name}")))
        log = s3.download("table/_delta_log", tmp_path)
    assert (status, told.splitlines()[-1]) == (0, said)
    assert ((log / name).read_text() == "ours\n") == lost


def test_a_store_that_ignores_the_condition_is_refused(tmp_path: Path) -> None:
    """Before the first table is made; nothing is left there."""
    given = str(lines(tmp_path / "h.jsonl", half(0)))
    with local_s3("--unconditional") as s3:
        status, said = ended(job("land", "files", "--half", given, "--warehouse", s3.uri("unsafe")))
        assert (status, list(s3.download("", tmp_path / "found").rglob("*.json"))) == (2, [])
    assert "halfop.S3LogStore: 4 of 4 writers at once made the same commit" in said
