"""Real brokers that lose the end of their log, are rebuilt empty, or let half messages escape to another broker."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from halfop.frame.errors import InputRefused
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import RuleSettings, Settings
from halfop.settings.topics import TopicSettings
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from support.brokers.rewinds import cut_off, land_running

from systems.broker.real_broker import Plan, RealBroker, broker

pytestmark = pytest.mark.broker
LOG = logging.getLogger("halfop.test")
NO_LAG = timedelta(0)
# nobody is asked, so that only the producer writes
QUIET: dict[str, object] = {"transactionTimeOut": 3_600_000}
Land = Callable[[KernelWarehouse, RealBroker, bool], None]


def from_store(warehouse: KernelWarehouse, running: RealBroker, accept: bool) -> None:
    land_store(warehouse, StoreRequest(str(running.store), "broker-a", NO_LAG, accept_rewind=accept), LOG)


def live(warehouse: KernelWarehouse, running: RealBroker, accept: bool) -> None:
    request = BrokerRequest(RemotingSettings(), NO_LAG, namesrv=running.namesrv, accept_rewind=accept)
    summary = land_running(warehouse, request)
    if summary.status:
        raise InputRefused(running.address, None, str(summary.extra["failed_brokers"]))


def decided(warehouse: KernelWarehouse) -> dict[str, tuple[str, str | None, int]]:
    """The decisions by UNIQ_KEY, after one run: the last decision, its reason, and how often it was delivered."""
    settings = Settings(rules=RuleSettings(), topics=TopicSettings(layout="single", decompress=False))
    assert reconcile(warehouse, Request(settings, datetime.now(timezone.utc))).status == 0
    rows = warehouse.read("decisions").where(F.col("decision") != "SUPERSEDED")
    last = rows.groupBy("uniq_key").agg(F.max_by(F.struct("decision", "reason"), "run_id").alias("last"))
    delivered = warehouse.read("real_topics").groupBy(F.col("transaction_id").alias("uniq_key")).count()
    found = last.join(delivered, "uniq_key", "left").na.fill(0, ["count"]).collect()
    return {row["uniq_key"]: (*row["last"], row["count"]) for row in found}


def place_of(warehouse: KernelWarehouse, uniq_key: str) -> int:
    rows = warehouse.read("half_messages").where(F.col("uniq_key") == uniq_key)
    return int(rows.agg(F.min("commit_log_offset")).collect()[0][0])


@pytest.mark.parametrize("land", [live, from_store])
@pytest.mark.parametrize("version", [5, 4])
def test_a_broker_that_lost_its_tail_goes_on(spark: SparkSession, tmp_path: Path, version: int, land: Land) -> None:
    warehouse = KernelWarehouse(spark, str(tmp_path / "warehouse"))
    with broker(version, tmp_path / "broker", QUIET) as running:
        kept = running.produce([Plan("orders", "C")] * 6 + [Plan("orders", "U")] * 3, linger=2)
        lost = running.produce([Plan("orders", "C")] * 4 + [Plan("orders", "U")] * 3, linger=2)
        land(warehouse, running, False)
        before = decided(warehouse)
        running.kill()
        cut_off(running.store, min(place_of(warehouse, each.uniq) for each in lost))
        running.restart()
        new = running.produce([Plan("orders", "C")] * 5 + [Plan("orders", "U")] * 2, linger=2)
        with pytest.raises(InputRefused, match="--accept-rewind"):
            land(warehouse, running, False)
        land(warehouse, running, True)
        after = decided(warehouse)
        newest = running.produce([Plan("orders", "C")] * 2, linger=2)
        land(warehouse, running, False)
        found = decided(warehouse)
    for each in kept + lost:
        if each.plan == "C":
            assert before[each.uniq][::2] == found[each.uniq][::2] == ("COMMIT", 1)
    assert {after[each.uniq] for each in lost if each.plan == "U"} == {("DISCARD", "LOST_BY_BROKER", 0)}
    assert {after[each.uniq][::2] for each in kept + new if each.plan == "U"} == {("WAIT", 0)}
    assert {found[each.uniq] for each in new + newest if each.plan == "C"} == {("COMMIT", "PRODUCER", 1)}
    assert len(found) == len(kept + lost + new + newest)


@pytest.mark.parametrize("land", [live, from_store])
@pytest.mark.parametrize("version", [5, 4])
def test_a_broker_rebuilt_empty_goes_on(spark: SparkSession, tmp_path: Path, version: int, land: Land) -> None:
    warehouse = KernelWarehouse(spark, str(tmp_path / "warehouse"))
    with broker(version, tmp_path / "broker", QUIET) as running:
        lost = running.produce([Plan("orders", "C")] * 4 + [Plan("orders", "U")] * 3, linger=2)
        land(warehouse, running, False)
        decided(warehouse)
        running.kill()
        shutil.rmtree(running.store)
        running.restart()
        new = running.produce([Plan("orders", "C")] * 5 + [Plan("orders", "U")] * 4, linger=2)
        with pytest.raises(InputRefused, match="--accept-rewind"):
            land(warehouse, running, False)
        land(warehouse, running, True)
        found = decided(warehouse)
    assert {found[each.uniq][::2] for each in lost + new if each.plan == "C"} == {("COMMIT", 1)}
    assert {found[each.uniq] for each in lost if each.plan == "U"} == {("DISCARD", "LOST_BY_BROKER", 0)}
    assert {found[each.uniq][::2] for each in new if each.plan == "U"} == {("WAIT", 0)}


ACTING: dict[str, object] = {"enableSlaveActingMaster": True, "enableRemoteEscape": True, "skipPreOnline": True}
ACTING |= {"brokerNotActiveTimeoutMillis": 3_000, "brokerHeartbeatInterval": 500, "brokerRole": "ASYNC_MASTER"}


def test_a_half_message_that_escapes_is_one_transaction(spark: SparkSession, tmp_path: Path) -> None:
    """The master dies; its slave sends what is open to the other master, where another producer answers the check."""
    warehouse = KernelWarehouse(spark, str(tmp_path / "warehouse"))
    with broker(5, tmp_path / "a", ACTING | QUIET) as first:
        slave: dict[str, object] = {"brokerId": 1, "brokerRole": "SLAVE", "namesrvAddr": first.namesrv}
        other: dict[str, object] = {"brokerName": "broker-b", "namesrvAddr": first.namesrv}
        with (
            broker(5, tmp_path / "slave", ACTING | QUIET | slave),
            broker(5, tmp_path / "b", ACTING | {"transactionTimeOut": 20_000} | other) as second,
        ):
            time.sleep(8)  # both masters have registered
            sent = first.produce([Plan("orders", "UC")] * 12 + [Plan("orders", "C")] * 4, halt=True)
            land_store(warehouse, StoreRequest(str(first.store), "broker-a", NO_LAG), LOG)
            open_there = {row["uniq_key"] for row in warehouse.read("half_messages").select("uniq_key").collect()}
            decided(warehouse)
            first.kill()
            time.sleep(15)
            first.produce([Plan("orders", "C")], linger=45, expect=20)
            land_store(warehouse, StoreRequest(str(second.store), "broker-b", NO_LAG), LOG)
    found = decided(warehouse)
    assert open_there, "some of them went to the first broker"
    assert {found[each.uniq][::2] for each in sent} == {("COMMIT", 1)}
    rows = warehouse.read("decisions").where("superseded_by_broker = 'broker-b' AND broker_name = 'broker-a'")
    moved = {row["uniq_key"] for row in rows.collect()}
    assert moved, "some were open, and escaped"
    assert moved <= open_there
