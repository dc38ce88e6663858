"""A store or a broker read by workers: the tables hold the same rows if Spark writes them, and joins find outcomes."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from halfop.columns.lives import Lives
from halfop.landing import staged
from halfop.landing.broker import land as broker
from halfop.landing.broker import messages
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.staged import BesideTables
from halfop.landing.store import land, new_part
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.batches import HALF
from halfop.rocketmq.names import HALF_TOPIC
from halfop.rocketmq.store import layout as layout_module
from halfop.rocketmq.wire.pull import QueueRange
from halfop.rocketmq.wire.remoting import Credentials, RemotingSettings
from halfop.warehouse import table_files
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from support.brokers import store_writer as w
from support.brokers.played_broker import About, played
from support.seeds import SEED

TABLES = ("half_messages", "final_messages", "broker_discards", "op_messages", "landing_progress")
LOG = logging.getLogger("halfop.test")
AT = 1_750_000_000_000_000
PROPERTIES = {
    "CHECK_IMMUNITY_TIME_IN_SECONDS": "20",
    "TRANSACTION_CHECK_TIMES": "3",
    "TRAN_PREPARED_QUEUE_OFFSET": "7",
    "REAL_QID": "none",
    "TAGS": "ü",
}


def a_half(chance: random.Random, n: int) -> w.Record:
    record = w.half(n, queue_id=chance.choice([0, 0, 1]), flag=n % 3)
    own = w.half(n).properties
    more = {name: value for name, value in PROPERTIES.items() if chance.random() < 0.1}
    record = replace(record, properties={**dict(own), **more}) if isinstance(own, dict) else record
    return replace(record, store_host=("fe80::2", 10911)) if chance.random() < 0.1 else record


def written(chance: random.Random, store: w.Store, first: int, count: int) -> None:
    """Transactions that end early or late, in this stretch or in another, or not at all; and what no broker writes."""
    open_ones: list[tuple[int, int, tuple[int, int]]] = []
    for n in range(first, first + count):
        record = a_half(chance, n)
        place = store.append(record)
        offset = store.next_offsets[w.HALF, record.queue_id] - 1
        open_ones.append((n, place, (record.queue_id, offset)))
        if chance.random() < 0.1:
            store.append(w.discard(n))
        if chance.random() < 0.4:
            chance.shuffle(open_ones)
            ends = [open_ones.pop() for _ in range(chance.randint(1, len(open_ones)))]
            committed = [each for each in ends if chance.random() < 0.6]
            op_first = chance.random() < 0.1
            write = write_gateways_ops if chance.random() < 0.3 else write_ops
            steps = [partial(write_finals, store, committed), partial(write, store, ends)]
            for step in reversed(steps) if op_first else steps:
                step()
    store.append(w.op("x,,-1,99999"))
    store.append(replace(w.op("5"), properties={"TAGS": "r"}))


def write_finals(store: w.Store, ended: list[tuple[int, int, tuple[int, int]]]) -> None:
    for n, place, _ in ended:
        store.append(w.final(n, place))


def write_ops(store: w.Store, ended: list[tuple[int, int, tuple[int, int]]]) -> None:
    for queue_id in (0, 1):
        if offsets := [offset for _, _, (queue, offset) in ended if queue == queue_id]:
            store.append(w.op("".join(f"{offset}," for offset in offsets), queue_id=queue_id))


def write_gateways_ops(store: w.Store, ended: list[tuple[int, int, tuple[int, int]]]) -> None:
    """Some of them say the opposite of what the final messages show."""
    for n, _, (queue_id, offset) in ended:
        store.append(replace(w.gateway_op(offset, "COMMIT" if n % 3 else "ROLLBACK"), queue_id=queue_id))


def land_store(warehouse: KernelWarehouse, store: w.Store) -> dict[str, int]:
    request = StoreRequest(str(store.root), "broker-a", timedelta(0))
    return land.land_store(warehouse, request, LOG).rows_written


def content(spark: SparkSession, warehouse: KernelWarehouse) -> dict[str, Counter[str]]:
    """All rows as Delta's own connector reads them."""
    found: dict[str, Counter[str]] = {}
    for name in TABLES:
        rows = spark.read.format("delta").load(warehouse.path(name)).collect()
        found[name] = Counter(str(sorted(row.asDict().items())) for row in rows)
    return found


def kept_bounds(warehouse: KernelWarehouse) -> dict[str, tuple[int, set[str], Counter[str]]]:
    """The rows of each table, its columns with bounds, and the columns' nulls, as its log has them."""
    found = {}
    for name in TABLES[:-1]:
        stats = [json.loads(add["stats"]) for add in adds(Path(warehouse.path(name)) / "_delta_log")]
        bounded = {column for each in stats for column in each["minValues"]}
        nulls: Counter[str] = Counter()
        for each in stats:
            nulls.update(each["nullCount"])
        found[name] = (sum(each["numRecords"] for each in stats), bounded, nulls)
    return found


def adds(log: Path) -> Iterator[dict[str, Any]]:
    for commit in sorted(log.glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "add" in action:
                yield action["add"]


@pytest.mark.parametrize("rows_for_spark", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_workers_land_what_spark_writes_and_joins_settle(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_for_spark: bool
) -> None:
    """Two landings, cut into many stretches; `rows_for_spark`: and items that no stretch settles are too many to be
    read by this process. Where Spark writes the tables, each rollback that a stretch shows is looked up again."""
    monkeypatch.setattr(new_part, "layout", partial(layout_module.layout, size=3000))
    monkeypatch.setattr(layout_module, "BACK", 2000)
    monkeypatch.setattr(new_part, "_LITTLE", 0)
    monkeypatch.setattr(land, "next_instant", lambda _: AT)
    if rows_for_spark:
        monkeypatch.setattr(table_files, "_MOST_HERE", -1)
    store, chance = w.Store(tmp_path / "store", file_size=1 << 13), random.Random(SEED)
    here, there = KernelWarehouse(spark, str(tmp_path / "workers")), KernelWarehouse(spark, str(tmp_path / "spark"))
    for landing in range(2):
        written(chance, store, landing * 60, 60)
        counted = land_store(here, store)
        with monkeypatch.context() as patched:
            patched.setattr(new_part, "rollbacks_are_sure", lambda *_: False)
            written_by_spark(patched)
            assert land_store(there, store) == counted
        assert content(spark, here) == content(spark, there)
    assert kept_bounds(here) == kept_bounds(there)
    assert not list((tmp_path / "workers" / "_staging").iterdir()), "no file is left behind"


def written_by_spark(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(KernelWarehouse, "takes_files", lambda *_: False)


def land_broker(warehouse: KernelWarehouse, address: str) -> dict[str, int]:
    request = BrokerRequest(RemotingSettings(give_up_after=5), timedelta(0), broker=address)
    summary = broker.land_broker(warehouse, request, LOG)
    assert summary.status == 0, summary
    return summary.rows_written


@pytest.mark.parametrize(
    ("lacking", "landings"),
    [
        pytest.param(True, 1, marks=pytest.mark.thorough),
        pytest.param(True, 2, marks=pytest.mark.slow),
        pytest.param(False, 2, marks=pytest.mark.slow),
    ],
)
def test_workers_pull_what_spark_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: bool, landings: int
) -> None:
    """Landings of a broker that may lack some messages; each task pulls a few."""
    monkeypatch.setattr(messages, "_FEW", 0)
    monkeypatch.setattr(messages, "_OF_A_TASK", 25)
    store, chance = w.Store(tmp_path / "store"), random.Random(SEED)
    here, there = KernelWarehouse(spark, str(tmp_path / "workers")), KernelWarehouse(spark, str(tmp_path / "spark"))
    for landing in range(landings):
        monkeypatch.setattr(broker, "next_instant", lambda _, at=AT + landing: at)
        written(chance, store, landing * 60, 60)
        lost = {place for place, _ in store.records if chance.random() < 0.05} if lacking else set[int]()
        with played(store, lost, About(AT // 1000 - 60_000)) as address:
            counted = land_broker(here, address)
            with monkeypatch.context() as patched:
                written_by_spark(patched)
                assert land_broker(there, address) == counted
        assert content(spark, here) == content(spark, there)
    assert kept_bounds(here) == kept_bounds(there)


def test_no_task_has_credentials(warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[messages.PullShare] = []

    def in_workers(_: KernelWarehouse, shares: list[messages.PullShare], __: object) -> list[messages.PulledFiles]:
        seen.extend(shares)
        return []

    monkeypatch.setattr(staged, "in_workers", in_workers)
    settings = RemotingSettings(credentials=Credentials("access", "secret"))
    pulls = messages.Pulls(messages.Source(Lives("a"), "h:1", settings, AT), BesideTables(warehouse, "file:/x"), bool)
    pulls.pulled(HALF, [QueueRange(HALF_TOPIC, 0, 0, 100_000)])
    assert {share.settings.credentials for share in seen} == {None}
