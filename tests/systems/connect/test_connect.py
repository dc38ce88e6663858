"""halfop through Spark Connect: the store of Spark's public API, with a real server and the checkout's own calls."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from support.kills import command, content

from systems.connect.local_server import Server, local_server

pytestmark = [pytest.mark.connect, pytest.mark.timeout(3600)]
_KILLS = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with local_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.parametrize("tests", ["tests/warehouse/test_contract.py::TestBySpark", "tests/systems/connect/played.py"])
def test_tests_in_a_session_of_the_server(server: Server, tests: str) -> None:
    done = server.pytest(tests)
    assert (done.returncode, "skipped" in done.stdout) == (0, False), done.stdout[-5000:] + done.stderr[-2000:]


def test_a_run_writes_what_one_by_files_writes(
    server: Server, spark: SparkSession, before: Path, undisturbed: dict[str, Counter[str]], tmp_path: Path
) -> None:
    """The first run of the warehouse was made by Delta Kernel: each store knows what the other has written."""
    folder = Path(shutil.copytree(before, tmp_path / "warehouse"))
    done = server.call(*command(folder))
    assert done.returncode == 0, done.stderr[-3000:]
    assert content(KernelWarehouse(spark, str(folder))) == undisturbed
    query = ("sql", "SELECT count(*) AS n FROM decisions", "--format", "csv")
    for call in (("report", "--out", str(tmp_path / "x.html")), ("audit",), query):
        done = server.call(*call, "--warehouse", str(folder))
        assert done.returncode == 0, done.stderr[-3000:]


def test_two_clients_at_once(
    server: Server, spark: SparkSession, before: Path, undisturbed: dict[str, Counter[str]], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(before, tmp_path / "warehouse"))
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda _: server.call(*command(folder)), range(2)))
    assert [each.returncode for each in both] == [0, 0], [each.stderr[-3000:] for each in both]
    assert content(KernelWarehouse(spark, str(folder))) == undisturbed


def test_killed_anywhere_the_next_call_finishes(
    server: Server, spark: SparkSession, before: Path, undisturbed: dict[str, Counter[str]], tmp_path: Path
) -> None:
    """The server may go on with what a killed client has asked for."""
    began = time.monotonic()
    assert server.call(*command(Path(shutil.copytree(before, tmp_path / "timed")))).returncode == 0
    whole = time.monotonic() - began
    for number in range(_KILLS):
        folder = Path(shutil.copytree(before, tmp_path / f"killed-{number}"))
        client = subprocess.Popen(server.job(*command(folder)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0.2, 1) * whole)
        client.kill()
        client.wait()
        done = server.call(*command(folder))
        assert done.returncode == 0, done.stderr[-3000:]
        assert content(KernelWarehouse(spark, str(folder))) == undisturbed


_OF_FILES = (
    "land store --path .",
    "follow store --path . --once",
    "resume --where true",
    "end --rollback --where true",
    "simulate --set transaction_timeout=30s",
    "maintain",
    "examine",
    "demo",
    "reconcile --dry-run",
    "reconcile --verify 1",
)


@pytest.mark.parametrize("job", _OF_FILES)
def test_what_works_on_files_says_so(server: Server, tmp_path: Path, job: str) -> None:
    done = server.call(*job.split(), "--warehouse", str(tmp_path / "warehouse"))
    assert (done.returncode, "Spark Connect" in done.stderr) == (2, True), done.stderr[-3000:]
