"""RocketMQ 5.5.1 with transactions in RocksDB: each as its producer meant it, in all three ways, by store and wire."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.names import ROCKSDB_QUEUES
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession

from systems.broker.real_broker import RealBroker, Truth, broker
from systems.broker.test_real_landing import (
    COMMITTED,
    LOG,
    NO_LAG,
    expected,
    from_store,
    live,
    mixed,
    real_topics,
    reconciled,
    wrong,
)

pytestmark = pytest.mark.broker
MESSAGES = 1_000
CLASSIC: dict[str, object] = {"transRocksDBEnable": False}
BOTH: dict[str, object] = {"transRocksDBEnable": True, "transWriteOriginTransHalfEnable": True}
ALONE: dict[str, object] = {"transRocksDBEnable": True, "transWriteOriginTransHalfEnable": False}
WAYS = (from_store, live)


def landed(spark: SparkSession, home: Path, running: RealBroker) -> list[KernelWarehouse]:
    """What has landed by each way."""
    warehouses = [KernelWarehouse(spark, str(home / way.__name__)) for way in WAYS]
    for way, warehouse in zip(WAYS, warehouses, strict=True):
        way(warehouse, running)
    return warehouses


def queues(warehouse: KernelWarehouse) -> dict[int, int]:
    """The number of half messages by queue; copies that a broker put back are not counted."""
    rows = warehouse.read("half_messages").where("properties['TRANSACTION_CHECK_TIMES'] IS NULL")
    return {row["queue_id"]: row["count"] for row in rows.groupBy("queue_id").count().collect()}


@pytest.mark.parametrize("way", [CLASSIC, BOTH, ALONE], ids=["classic", "both", "rocksdb alone"])
def test_every_fate_is_what_the_producer_did(spark: SparkSession, tmp_path: Path, way: Mapping[str, object]) -> None:
    with broker(5.5, tmp_path / "broker", way) as running:
        truth = running.produce(mixed(MESSAGES), linger=40)
        for warehouse in landed(spark, tmp_path, running):
            assert wrong(reconciled(warehouse), expected(truth)) == []
            assert real_topics(warehouse) == {each.uniq for each in truth if each.answers[-1] == "C"}
            of_queue = ROCKSDB_QUEUES if way is ALONE else 0
            assert set(queues(warehouse)) == {of_queue}, "one form, never both"
            assert queues(warehouse)[of_queue] >= MESSAGES


def test_consume_queues_in_rocksdb_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Only what checks a log against its consume queues is missing, and said."""
    with broker(5.5, tmp_path / "broker", {"storeType": "defaultRocksDB"}) as running:
        truth = running.produce(mixed(200), linger=40)
        store, by_wire = landed(spark, tmp_path, running)
        for warehouse in (store, by_wire):
            assert wrong(reconciled(warehouse), expected(truth)) == []
            assert real_topics(warehouse) == {each.uniq for each in truth if each.answers[-1] == "C"}
        said = land_store(store, StoreRequest(str(running.store), "broker-a", NO_LAG), LOG).notes
        assert [note for note in said if "consume queues in RocksDB" in note] != []


@pytest.mark.parametrize("way", [CLASSIC, BOTH, ALONE], ids=["classic", "both", "rocksdb alone"])
def test_kills_of_a_broker_lose_and_double_nothing_here(
    spark: SparkSession, tmp_path: Path, way: Mapping[str, object]
) -> None:
    """A broker that dies between a final message and its op asks again, and may deliver twice: we do not."""
    with broker(5.5, tmp_path / "broker", way) as running:
        truth: list[Truth] = []
        for part in range(3):
            truth += running.produce(mixed(300, part), linger=2, halt=part < 2)
            running.kill()
            running.restart()
            landed(spark, tmp_path, running)
        truth += running.produce([], linger=30, expect=sum(each.answers[-1] == "U" for each in truth))
        by_uniq = {each.uniq: each for each in truth}
        for warehouse in landed(spark, tmp_path, running):
            found = reconciled(warehouse)
            delivered = real_topics(warehouse)
            assert not [each for each in found.values() if each[1] > 1]
            assert {uniq for uniq, fate in found.items() if fate in COMMITTED} == delivered
            wanted = expected([each for each in by_uniq.values() if each.answers[-1] != "U"])
            assert wrong(found, wanted) == []


def test_a_change_of_way_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Messages are parked in one way and ended in another."""
    with broker(5.5, tmp_path / "broker", CLASSIC) as running:
        truth: dict[str, Truth] = {}
        for part, way in enumerate((CLASSIC, ALONE, BOTH, ALONE, CLASSIC)):
            running.stop()
            running.configure(way)
            running.start()
            plans = [
                each._replace(answers="UC" if n % 4 == 0 else each.answers) for n, each in enumerate(mixed(100, part))
            ]
            halted = running.produce(plans, halt=True)
            truth |= {each.uniq: each for each in halted}
            landed(spark, tmp_path, running)
        running.stop()
        running.configure(BOTH)  # both services ask about what is parked
        running.start()
        answered = running.produce([], linger=40, expect=len(truth))
        truth |= {each.uniq: each for each in answered}
        for warehouse in landed(spark, tmp_path, running):
            found = reconciled(warehouse)
            sure = [each for each in truth.values() if each.answers[-1] != "U"]
            assert wrong(found, expected(sure)) == []
            assert not [each for each in found.values() if each[1] > 1]
            assert set(queues(warehouse)) == {0, ROCKSDB_QUEUES}
