"""halfop through Spark Connect: the store of Spark's public API, with a real server and the checkout's own calls."""

from __future__ import annotations

import json
import logging
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.files.land import FilesRequest, land_files
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.landing.table_rows import TABLES
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import progress_rows
from pyspark.sql import SparkSession
from support import json_lines as line
from support.brokers import store_writer as w
from support.brokers.played_broker import played
from support.brokers.stores import transactions
from support.json_lines import lines
from support.kills import command, content

from systems.connect.local_server import Server, local_server

pytestmark = [pytest.mark.connect, pytest.mark.timeout(3600)]
_KILLS = 4
LOG = logging.getLogger("halfop.test")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with local_server(tmp_path_factory.mktemp("server")) as running:
        yield running


_FILES, _STORE = "tests/landing/test_land_files.py::test", "tests/landing/test_land_store.py::test"
_NAMES = "tests/warehouse/test_catalog.py::test_tables_get_their_names_once"
_TAKEN = "tests/warehouse/test_catalog.py::test_a_name_that_is_taken_is_refused_and_the_others_are_given"


@pytest.mark.parametrize(
    "tests",
    [
        ["tests/warehouse/test_contract.py::TestBySpark"],
        ["tests/systems/connect/played.py"],
        [f"{_FILES}_skip_bad_rejects_each_bad_line_and_lands_the_rest", f"{_FILES}_parquet_lands_like_json"],
        [f"{_FILES}_a_file_lands_once_and_again_when_it_has_changed", f"{_FILES}_directories_globs_gzip_and_odd_names"],
        [f"{_FILES}_a_delta_table_and_a_file_of_two_kinds_are_refused", f"{_STORE}_a_killed_landing_is_made_up_for[4]"],
        [f"{_STORE}_skipping_loses_a_range_and_repair_finds_it"],
        ["tests/upkeep/test_resume.py::test_resumed_twice_and_ended_meanwhile"],
        [_NAMES, _TAKEN],
        ["tests/upkeep/test_maintain.py::test_a_deletion_that_dies_half_way_leaves_the_feed_off_and_no_row_out"],
    ],
    ids=["contract", "played", "files", "files once", "refused, killed", "damaged", "resume", "catalog", "maintain"],
)
def test_tests_in_a_session_of_the_server(server: Server, tests: list[str]) -> None:
    done = server.pytest(*tests)
    assert (done.returncode, "skipped" in done.stdout) == (0, False), done.stdout[-5000:] + done.stderr[-2000:]


def test_a_run_writes_what_one_by_files_writes(
    server: Server, spark: SparkSession, before: Path, undisturbed: dict[str, Counter[str]], tmp_path: Path
) -> None:
    """The first run of the warehouse was made by Delta Kernel: each store knows what the other has written."""
    folder = Path(shutil.copytree(before, tmp_path / "warehouse"))
    dry, done = (server.call(*command(folder), *more) for more in (["--dry-run"], []))
    assert (dry.returncode, done.returncode) == (0, 0), dry.stderr[-3000:] + done.stderr[-3000:]
    assert content(KernelWarehouse(spark, str(folder))) == undisturbed
    assert _last(dry)["decisions"] == _last(done)["decisions"]
    verified = server.call("reconcile", "--warehouse", str(folder), "--verify", str(_last(done)["run_id"]))
    assert (verified.returncode, _last(verified)["differences"]) == (0, 0), verified.stderr[-3000:]
    query = ("sql", "SELECT count(*) AS n FROM decisions", "--format", "csv")
    for call in (("report", "--out", str(tmp_path / "x.html")), ("audit",), query):
        done = server.call(*call, "--warehouse", str(folder))
        assert done.returncode == 0, done.stderr[-3000:]


def _last(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_each_source_lands_what_it_lands_by_files(server: Server, spark: SparkSession, tmp_path: Path) -> None:
    """The store's landing is killed at any moment, and called again; `follow` lands from a broker."""
    store = w.Store(tmp_path / "store")
    transactions(store, range(30))
    files = [lines(tmp_path / "h.jsonl", *map(line.half, range(20))), lines(tmp_path / "o.jsonl", line.op(0, "1,2,3"))]
    by_files, by_server = (KernelWarehouse(spark, str(tmp_path / name)) for name in ("by files", "by server"))
    land_files(by_files, FilesRequest(files[:1], files[1:]), LOG)
    land_store(by_files, StoreRequest(str(store.root), "broker-s", timedelta(0)), LOG)
    there = ("--warehouse", by_server.root)
    with played(store) as broker:
        land_broker(
            by_files, BrokerRequest(RemotingSettings(), timedelta(0), broker=broker, broker_name="broker-p"), LOG
        )
        done = server.call("land", "files", "--half", files[0], "--op", files[1], *there)
        assert done.returncode == 0, done.stderr[-3000:]
        by_store = ["land", "store", "--path", str(store.root), "--broker-name", "broker-s", *there]
        client = subprocess.Popen(server.job(*by_store), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(3, 15))
        client.kill()
        client.wait()
        done = server.call(*by_store)
        assert done.returncode == 0, done.stderr[-3000:]
        done = server.call("follow", "broker", "--broker", broker, "--broker-name", "broker-p", "--once", *there)
        assert done.returncode == 0, done.stderr[-3000:]
    assert landed(by_server) == landed(by_files)
    assert by_server.rows("decisions")


def landed(warehouse: KernelWarehouse) -> dict[str, Counter[str]]:
    """All rows that have landed but for their instants, and how far the queues have landed."""
    found = {name: Counter(map(str, warehouse.read(name).drop("landed_at").collect())) for name in TABLES.values()}
    columns = ("broker_name", "topic", "queue_id", "next_offset", "first_offset", "highest_offset", "source")
    return found | {"landing_progress": Counter(str([row[c] for c in columns]) for row in progress_rows(warehouse))}


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
    "resume --where true --broker h:1",
    "end --rollback --where true",
    "simulate --set transaction_timeout=30s",
    "examine",
    "erase --where true",
    "demo",
    "maintain --values orders",
)


@pytest.mark.parametrize("job", _OF_FILES)
def test_what_works_on_files_says_so(server: Server, tmp_path: Path, job: str) -> None:
    done = server.call(*job.split(), "--warehouse", str(tmp_path / "warehouse"))
    assert (done.returncode, "Spark Connect" in done.stderr) == (2, True), done.stderr[-3000:]
