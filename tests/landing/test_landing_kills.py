"""Landing killed for real, by SIGKILL at each of its commits and at any moment: no row twice, none missing."""

from __future__ import annotations

import base64
import logging
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.files.land import FilesRequest, land_files
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import progress_rows
from pyspark.sql import SparkSession
from support.brokers import store_writer as w
from support.brokers.rewinds import kept, land
from support.brokers.stores import transactions
from support.crash import KILLED, commits, dying, ended, killed_after, seconds_of, stopped, woken
from support.json_lines import half, lines, op
from support.seeds import SEED
from systems.broker.real_broker import Plan, broker

TABLES = ("half_messages", "final_messages", "broker_discards", "op_messages")
AT_RANDOM = 6
LAG = timedelta(seconds=5)
LOG = logging.getLogger("halfop.test")
pytestmark = pytest.mark.timeout(2400)


def written(store: w.Store, numbers: range) -> None:
    store.append(w.discard(numbers[0]))
    transactions(store, numbers)


def content(warehouse: KernelWarehouse) -> dict[str, Counter[str]]:
    """All rows but for when they landed."""
    rows = {name: warehouse.read(name).drop("landed_at").collect() for name in TABLES}
    return {name: Counter(str(row) for row in found) for name, found in rows.items()}


def progress(warehouse: KernelWarehouse) -> set[tuple[object, ...]]:
    columns = ("broker_name", "topic", "queue_id", "next_offset", "first_offset")
    return {tuple(row[c] for c in columns) for row in progress_rows(warehouse)}


@pytest.fixture
def store(tmp_path: Path) -> w.Store:
    store = w.Store(tmp_path / "store")
    written(store, range(60))
    return store


def landing(store: w.Store, warehouse: Path) -> list[str]:
    return ["land", "store", "--path", str(store.root), "--warehouse", str(warehouse)]


def landed(spark: SparkSession, store: w.Store, folder: Path) -> KernelWarehouse:
    """The next start."""
    warehouse = KernelWarehouse(spark, str(folder))
    land_store(warehouse, StoreRequest(str(store.root), "broker-a", LAG), LOG)
    return warehouse


def fresh(tmp_path: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        yield tmp_path / f"warehouse-{number}"


@pytest.mark.slow
def test_a_store_s_landing_killed_at_every_commit(spark: SparkSession, tmp_path: Path, store: w.Store) -> None:
    """The log has grown when it is repeated."""
    folders = fresh(tmp_path)
    number = commits(*landing(store, next(folders)))
    assert number >= len(TABLES)
    killed = [next(folders) for _ in range(number)]
    for at, folder in enumerate(killed, 1):
        status, said = ended(dying("after", at, *landing(store, folder)))
        assert status == KILLED, said
    written(store, range(60, 80))
    undisturbed = next(folders)
    wanted = landed(spark, store, undisturbed)
    for at, folder in enumerate(killed, 1):
        found = landed(spark, store, folder)
        assert content(found) == content(wanted), f"killed behind commit {at}"
        assert progress(found) == progress(wanted), f"killed behind commit {at}"


@pytest.mark.slow
def test_a_new_life_killed_at_every_commit(spark: SparkSession, tmp_path: Path, store: w.Store) -> None:
    """The next landing ends in the same tables, whether it has the option again or finds the life accepted."""
    warehouse = landed(spark, store, tmp_path / "first")
    second = kept(tmp_path / "second", store, 70)
    written(second, range(100, 120))
    command = ["land", "store", "--path", str(second.root), "--accept-rewind", "--warehouse"]

    def copied(name: str) -> Path:
        return Path(shutil.copytree(warehouse.root, tmp_path / name))

    undisturbed = copied("undisturbed")
    number = commits(*command, str(undisturbed))
    wanted = KernelWarehouse(spark, str(undisturbed))
    for at in range(1, number + 1):
        folder = copied(f"killed-{at}")
        status, said = ended(dying("after", at, *command, str(folder)))
        assert status == KILLED, said
        found = KernelWarehouse(spark, str(folder))
        begun = any(row["life"] for row in progress_rows(found))
        assert land(found, second, accept=at % 2 == 0 or not begun).status == 0
        for of in (content, all_progress, lost_ranges):
            assert of(found) == of(wanted), f"killed behind commit {at}"


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 4])
def test_two_landings_that_accept_one_new_life(spark: SparkSession, tmp_path: Path, store: w.Store, at: int) -> None:
    """No lock keeps the other out, as on an object store: one wakes up when the other has landed all."""
    warehouse = landed(spark, store, tmp_path / "first")
    second = kept(tmp_path / "second", store, 70)
    written(second, range(100, 120))
    undisturbed = KernelWarehouse(spark, str(shutil.copytree(warehouse.root, tmp_path / "undisturbed")))
    land(undisturbed, second, accept=True)
    command = ["land", "store", "--path", str(second.root), "--accept-rewind", "--warehouse", warehouse.root]
    sleeper = stopped(at, *command, unlocked=True)
    land(warehouse, second, accept=True)
    status, said = woken(sleeper)
    assert status == 0, said
    assert content(warehouse) == content(undisturbed)
    assert all_progress(warehouse) == all_progress(undisturbed)
    assert set(lost_ranges(warehouse)) == set(lost_ranges(undisturbed))


def all_progress(warehouse: KernelWarehouse) -> Counter[str]:
    unlike = ("landed_at", "begun_at", "known_until")
    rows = [{name: cell for name, cell in row.items() if name not in unlike} for row in progress_rows(warehouse)]
    return Counter(str(sorted(row.items())) for row in rows)


def lost_ranges(warehouse: KernelWarehouse) -> Counter[str]:
    rows = warehouse.read("rejected").where("kind = 'RANGE'").drop("rejected_at")
    return Counter(str(row) for row in rows.collect())


@pytest.mark.slow
def test_a_new_life_of_files_killed_at_every_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Its rows had landed before, under reused keys, so their file has; the call is repeated."""
    files = {n: lines(tmp_path / f"{n}.jsonl", *rows) for n, rows in FILES.items()}
    warehouse = KernelWarehouse(spark, str(tmp_path / "first"))
    for n in FILES:
        land_files(warehouse, FilesRequest([files[n]]), LOG)
    command = ["land", "files", "--accept-rewind", "--half", *files.values(), "--warehouse"]

    def copied(name: str) -> Path:
        return Path(shutil.copytree(warehouse.root, tmp_path / name))

    undisturbed = copied("undisturbed")
    number = commits(*command, str(undisturbed))
    wanted = KernelWarehouse(spark, str(undisturbed))
    assert [row["broker_name"] for row in wanted.rows("half_messages")].count("b~2") == 2
    for at in range(1, number + 1):
        folder = copied(f"killed-{at}")
        status, said = ended(dying("after", at, *command, str(folder)))
        assert status == KILLED, said
        found = KernelWarehouse(spark, str(folder))
        land_files(found, FilesRequest(list(files.values()), accept_rewind=True), LOG)
        assert set(content(found)["half_messages"]) == set(content(wanted)["half_messages"]), f"behind commit {at}"
        assert lost_ranges(found) == lost_ranges(wanted)
        assert progress(found) == progress(wanted)


FILES = {
    "old": [half(n) for n in range(3)],
    "new": [half(n, uniq_key=f"new {n}", store_timestamp=1_750_000_900_000 + n) for n in (1, 2)],
}


@pytest.mark.slow
def test_a_store_s_landing_killed_at_any_moment(spark: SparkSession, tmp_path: Path, store: w.Store) -> None:
    """One warehouse, killed again and again while the log grows."""
    chance = random.Random(SEED)
    warehouse, undisturbed = tmp_path / "killed", tmp_path / "undisturbed"
    seconds = seconds_of(landing(store, tmp_path / "timed"))
    killed = 0
    for n in range(AT_RANDOM):
        killed += killed_after(chance.uniform(0.2, 1) * seconds, landing(store, warehouse))
        written(store, range(60 + n * 10, 70 + n * 10))
    assert killed > 0
    assert content(landed(spark, store, warehouse)) == content(landed(spark, store, undisturbed))


@pytest.mark.slow
def test_a_landing_of_large_files_killed_at_every_commit(spark: SparkSession, tmp_path: Path) -> None:
    """So large that workers write the tables' files. Rows that have landed land again, which counts once."""
    body = base64.b64encode(bytes(3 << 20)).decode()
    files = lines(tmp_path / "h.jsonl", *(half(n, body=body) for n in range(3))), lines(tmp_path / "o.jsonl", op())
    folders = fresh(tmp_path)
    command = ["land", "files", "--half", files[0], "--op", files[1], "--warehouse"]
    undisturbed = next(folders)
    number = commits(*command, str(undisturbed))
    wanted = content(KernelWarehouse(spark, str(undisturbed)))
    assert wanted["half_messages"].total() == 3
    for at in range(1, number + 1):
        folder = next(folders)
        status, said = ended(dying("after", at, *command, str(folder)))
        assert status == KILLED, said
        warehouse = KernelWarehouse(spark, str(folder))
        land_files(warehouse, FilesRequest(files[:1], files[1:]), LOG)
        found = content(warehouse)
        assert {name: set(rows) for name, rows in found.items()} == {name: set(rows) for name, rows in wanted.items()}
        assert progress(warehouse) == progress(KernelWarehouse(spark, str(undisturbed))), f"killed behind commit {at}"
        assert not warehouse.files.folders(warehouse.path("_staging"))


@pytest.mark.broker
def test_a_broker_s_landing_killed_at_every_commit(spark: SparkSession, tmp_path: Path) -> None:
    """The broker has more when it is repeated: what was set out for lands first, then what is new."""
    folders = fresh(tmp_path)
    with broker(5, tmp_path / "broker") as running:
        plans = [Plan(f"topic-{n % 3}", "CRU"[n % 3]) for n in range(90)]
        running.produce(plans, linger=5)
        command = ["land", "broker", "--namesrv", running.namesrv, "--warehouse"]
        number = commits(*command, str(next(folders)))
        killed = [next(folders) for _ in range(number)]
        for at, folder in enumerate(killed, 1):
            status, said = ended(dying("after", at, *command, str(folder)))
            assert status == KILLED, said
        running.produce(plans, linger=30)
        time.sleep(LAG.total_seconds())  # the last op is in its topic
        request = BrokerRequest(RemotingSettings(), LAG, namesrv=running.namesrv)
        contents = []
        for folder in [next(folders), *killed]:
            warehouse = KernelWarehouse(spark, str(folder))
            assert land_broker(warehouse, request, LOG).status == 0
            contents.append(content(warehouse))
    for at, found in enumerate(contents[1:], 1):
        for name in TABLES:
            twice = [row for row, n in found[name].items() if n > 1]
            assert twice == [], f"{name}, killed behind commit {at}"
            missing = contents[0][name] - found[name]
            assert not missing, f"{name}, killed behind commit {at}: {sum(missing.values())} rows"
