"""A real broker and a real producer: what the producer did is every message's fate in our tables, store and live."""

from __future__ import annotations

import json
import logging
import random
import signal
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.names import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import RuleSettings, Settings
from halfop.settings.topics import TopicSettings
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from support.crash import ended, job, said_until
from support.seeds import SEED

from systems.broker.real_broker import Plan, RealBroker, Truth, broker
from systems.broker.tools import MqAdmin

LOG = logging.getLogger("halfop.test")
MESSAGES = 2_000
NO_LAG = timedelta(0)
pytestmark = pytest.mark.broker
Fate = tuple[str, int]  # the last decision, and how often it was delivered


def mixed(number: int, part: int = 0) -> list[Plan]:
    """Most are committed or rolled back at once, some when asked, some never; some bring their own immunity."""
    chance = random.Random(SEED + part)
    answers = ["C"] * 6 + ["R"] * 2 + ["UC", "UR", "UUC", "U"]
    return [
        Plan(chance.choice(["orders", "payments", "stock"]), chance.choice(answers), chance.choice([None] * 9 + [2]))
        for _ in range(number)
    ]


def reconciled(warehouse: KernelWarehouse, watch_for: timedelta = timedelta(days=7)) -> dict[str, Fate]:
    """The decisions by uniq_key, after one run."""
    second = timedelta(seconds=1)
    rules = RuleSettings(transaction_timeout=second, transaction_check_interval=second, watch_for=watch_for)
    settings = Settings(rules=rules, topics=TopicSettings(layout="single", decompress=False))
    summary = reconcile(warehouse, Request(settings, datetime.now(timezone.utc)))
    assert summary.status == 0, summary
    decided = warehouse.read("decisions").where(F.col("decision") != "SUPERSEDED")
    last = decided.groupBy("uniq_key").agg(F.max_by("decision", "run_id").alias("decision"))
    delivered = warehouse.read("real_topics").groupBy(F.col("transaction_id").alias("uniq_key")).count()
    rows = last.join(delivered, "uniq_key", "left").na.fill(0).collect()
    return {row["uniq_key"]: (row["decision"], row["count"]) for row in rows}


COMMITTED: set[Fate] = {("COMMIT", 1)}
ROLLED_BACK: set[Fate] = {("ROLLBACK", 0)}
OPEN: set[Fate] = {("DISCARD", 0), ("CHECK", 0), ("WAIT", 0)}  # or given up by the broker


def expected(truth: Sequence[Truth]) -> dict[str, set[Fate]]:
    """The fates that the producer's last answer allows."""
    ends = {"C": COMMITTED, "R": ROLLED_BACK, "U": OPEN}
    return {each.uniq: ends[each.answers[-1]] for each in truth}


def known_so_far(truth: Sequence[Truth]) -> dict[str, set[Fate]]:
    """The fates that are allowed while the broker is at work.

    A rollback is proved by what was not delivered, once all has landed. Until then its message is open or given up.
    """
    return {key: fates | OPEN if fates == ROLLED_BACK else fates for key, fates in expected(truth).items()}


def wrong(found: Mapping[str, Fate], wanted: Mapping[str, set[Fate]]) -> list[tuple[str, Fate | None, set[Fate]]]:
    return [(key, found.get(key), fates) for key, fates in wanted.items() if found.get(key) not in fates]


def real_topics(warehouse: KernelWarehouse) -> set[str]:
    """The messages that the broker itself delivered: some twice if it is busy, which the audit finds."""
    return {row["uniq_key"] for row in warehouse.read("final_messages").select("uniq_key").distinct().collect()}


def reasons_of(warehouse: KernelWarehouse, keys: Collection[str]) -> set[str]:
    """The reasons of the last decisions about these messages."""
    decided = warehouse.read("decisions").where((F.col("decision") != "SUPERSEDED") & F.col("uniq_key").isin(*keys))
    last = decided.groupBy("uniq_key").agg(F.max_by("reason", "run_id").alias("reason"))
    return {row["reason"] for row in last.collect()}


def from_store(warehouse: KernelWarehouse, running: RealBroker) -> None:
    land_store(warehouse, StoreRequest(str(running.store), "broker-a", NO_LAG), LOG)


def live(warehouse: KernelWarehouse, running: RealBroker) -> None:
    summary = land_broker(warehouse, BrokerRequest(RemotingSettings(), NO_LAG, namesrv=running.namesrv), LOG)
    assert summary.status == 0, summary


@pytest.mark.parametrize("version", [5, 4])
def test_every_fate_is_what_the_producer_did(spark: SparkSession, tmp_path: Path, version: int) -> None:
    with broker(version, tmp_path / "broker") as running:
        truth = running.produce(mixed(MESSAGES), linger=30)
        for land in (from_store, live):
            warehouse = KernelWarehouse(spark, str(tmp_path / land.__name__))
            land(warehouse, running)
            found = reconciled(warehouse)
            assert wrong(found, expected(truth)) == [], land.__name__
            committed = {each.uniq for each in truth if each.answers[-1] == "C"}
            assert real_topics(warehouse) == committed, land.__name__
            reasons = {row["reason"] for row in warehouse.read("rejected").select("reason").collect()}
            assert reasons <= {"REDUNDANT"}, "a broker that is busy ends some of them twice, always alike"


def test_what_4_3_gives_up_is_discarded_by_watch_for(spark: SparkSession, tmp_path: Path) -> None:
    """4.3 has no discard topic: its check passes a message that was asked about too often, and only logs it.

    It shows op messages only after an operator has put their topic into its table of topics.
    """
    with broker(4.3, tmp_path / "broker", {"transactionCheckMax": 4}) as running:
        truth = running.produce(mixed(300), linger=30)
        silent = {each.uniq for each in truth if each.answers[-1] == "U"}
        with closing(Broker(running.address, RemotingSettings())) as asked:
            while asked.check_offset(HALF_TOPIC, 0) != asked.max_offset(HALF_TOPIC, 0):
                time.sleep(0.1)
            assert (len(silent) > 10, DISCARD_TOPIC in asked.topics()) == (True, False)
        # the newest record comes a check interval after theirs
        truth += running.produce([Plan("orders", "C", immunity=10, slow_ms=2_000)], linger=5)
        request = BrokerRequest(RemotingSettings(), NO_LAG, namesrv=running.namesrv)
        summary = land_broker(KernelWarehouse(spark, str(tmp_path / "live")), request, LOG)
        assert (summary.status, summary.extra["transient"]) == (1, False)
        assert f"shows {OP_TOPIC} only if its table of topics has it" in summary.extra["failed_brokers"]["broker-a"]
        there = ("-t", OP_TOPIC, "-r", "1", "-w", "1", "-p", "4")
        assert "success" in MqAdmin(tmp_path, running.namesrv)("updateTopic", "-b", running.address, *there)
        for land in (from_store, live):
            warehouse = KernelWarehouse(spark, str(tmp_path / land.__name__))
            land(warehouse, running)
            assert wrong(reconciled(warehouse), expected(truth)) == [], land.__name__
            assert reasons_of(warehouse, silent) == {"BROKER_ASKS"}, land.__name__
            assert real_topics(warehouse) == {each.uniq for each in truth if each.answers[-1] == "C"}, land.__name__

            found = reconciled(warehouse, watch_for=timedelta(seconds=1))
            discarded = {uniq: {("DISCARD", 0)} for uniq in silent}
            assert wrong(found, expected(truth) | discarded) == [], land.__name__
            assert reasons_of(warehouse, silent) == {"END_NOT_SEEN"}, land.__name__


def test_a_killed_broker_s_final_messages_prove_its_commits(spark: SparkSession, tmp_path: Path) -> None:
    """The ops of a batch in memory are lost; what was delivered is committed all the same, and once."""
    settings = {"transactionOpBatchInterval": 60_000, "transactionCheckInterval": 60_000}
    with broker(5, tmp_path / "broker", settings) as running:
        truth = running.produce([Plan("orders", "C")] * 300)
        running.kill()
        warehouse = KernelWarehouse(spark, str(tmp_path / "warehouse"))
        from_store(warehouse, running)
        found = reconciled(warehouse)
    assert wrong(found, expected(truth)) == []
    reasons = Counter(row["reason"] for row in warehouse.read("decisions").collect())
    assert reasons["FINAL"] > 0, reasons


def test_all_brokers_of_a_cluster_land_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    """One of them hangs later: the other lands all the same, and what the one had is made up for when it is back."""
    with (
        broker(5, tmp_path / "a") as first,
        broker(5, tmp_path / "b", {"brokerName": "broker-b", "namesrvAddr": first.namesrv}) as second,
    ):
        truth = first.produce(mixed(400), linger=15)
        warehouse = KernelWarehouse(spark, str(tmp_path / "warehouse"))
        live(warehouse, first)
        names = {row["broker_name"] for row in warehouse.read("half_messages").select("broker_name").collect()}
        assert names == {"broker-a", "broker-b"}, "the producer sends to both"
        assert wrong(reconciled(warehouse), expected(truth)) == []

        truth += first.produce(mixed(400, part=1), linger=15)
        second.signal(signal.SIGSTOP)
        hasty = RemotingSettings(connect_timeout=1, answer_timeout=1, give_up_after=3)
        before = warehouse.read("half_messages").where("broker_name = 'broker-a'").count()
        summary = land_broker(warehouse, BrokerRequest(hasty, NO_LAG, namesrv=first.namesrv), LOG)
        assert (summary.status, list(summary.extra["failed_brokers"])) == (1, ["broker-b"])
        after = warehouse.read("half_messages").where("broker_name = 'broker-a'").count()
        assert after > before, "it landed all the same"
        second.signal(signal.SIGCONT)
        live(warehouse, first)
        assert wrong(reconciled(warehouse), expected(truth)) == []


def test_landings_follow_a_broker_that_is_at_work(spark: SparkSession, tmp_path: Path) -> None:
    """Three landings in the middle of the load, each of what is new; at the end all is as if landed at once."""
    with broker(5, tmp_path / "broker") as running:
        store, by_wire = (KernelWarehouse(spark, str(tmp_path / name)) for name in ("store", "live"))
        truth: list[Truth] = []
        for part in range(3):
            truth += running.produce(mixed(300, part), linger=6)
            from_store(store, running)
            live(by_wire, running)
            for warehouse in (store, by_wire):
                reconciled(warehouse)
        for warehouse in (store, by_wire):
            keys = warehouse.read("half_messages").groupBy("queue_offset").count().where("count > 1")
            assert keys.count() == 0
            assert wrong(reconciled(warehouse), known_so_far(truth)) == []


def test_a_process_follows_a_broker_that_is_at_work(spark: SparkSession, tmp_path: Path) -> None:
    """Cycle after cycle until SIGTERM; what another call lands after it completes it as if all had landed at once."""
    warehouse, options = KernelWarehouse(spark, str(tmp_path / "warehouse")), ["--every", "1s"]
    for setting in ("landing.op_lag=0s", "topics.layout=single"):
        options += ["--set", setting]
    with broker(5, tmp_path / "broker") as running:
        source = ("follow", "broker", "--namesrv", running.namesrv, "--warehouse", warehouse.root)
        process = job(*source, *options)
        truth: list[Truth] = []
        landed = 0
        for part in range(3):
            truth += running.produce(mixed(100, part), linger=6)
            while landed < len(truth):
                cycle = json.loads(said_until(process, r'^\{"job": "follow"').splitlines()[-1])
                landed += cycle["landing"].get("rows_written", {}).get("half_messages", 0)
        process.terminate()
        status, said = ended(process)
        assert status == 0, said
        live(warehouse, running)
        assert wrong(reconciled(warehouse), known_so_far(truth)) == []
        keys = warehouse.read("half_messages").groupBy("queue_offset").count().where("count > 1")
        assert keys.count() == 0


@pytest.mark.parametrize("version", [5, 4, 4.3])
def test_a_broker_shows_its_time_and_role_and_finds_offsets_by_time(tmp_path: Path, version: float) -> None:
    with broker(version, tmp_path / "broker") as running:
        begun = time.time()
        running.produce([Plan("orders", "C")] * 20, linger=5)
        with closing(Broker(running.address, RemotingSettings())) as asked:
            before, clock = time.time(), asked.clock()
            assert before - 1.1 <= clock.shown / 1e6 <= time.time() <= clock.latest() / 1e6
            assert asked.role() == ("broker-a", False, False, None)
            end = asked.max_offset(HALF_TOPIC, 0)
            assert end == 20
            assert asked.offset_at(HALF_TOPIC, 0, int((begun - 60) * 1000)) == 0
            assert end - 1 <= asked.offset_at(HALF_TOPIC, 0, int((time.time() + 60) * 1000)) <= end
