"""A real broker over a gateway's store: it, its consumers and `land store` agree on every outcome."""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections import Counter
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from halfop.gateway.core.messages import End, Half, HalfMessage, Outcome, Topic
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.batches import half_batch
from halfop.rocketmq.names import HALF_TOPIC
from halfop.rocketmq.record import chain
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import Chunk, QueueRange, pull
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import RuleSettings, Settings
from halfop.settings.topics import TopicSettings
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from support.gateway.gateway_log import MIDDLE, TOPIC, Waiting, message
from support.seeds import SEED

from systems.broker.real_broker import RealBroker, broker

pytestmark = pytest.mark.broker
LOG = logging.getLogger("halfop.test")
MESSAGES, TOPICS = 2_000, (TOPIC, "payments", "stock")
SIZES = {"mappedFileSizeCommitLog": MIDDLE.file_size, "mappedFileSizeConsumeQueue": 20 * MIDDLE.queue_file_units}
Fates = dict[str, Outcome | None]


def a_message(chance: random.Random, n: int) -> HalfMessage:
    topic = chance.choice(TOPICS)
    given = message(n, bytes(chance.choice([5, 100, 300, 9_000])), REAL_TOPIC=topic)
    return given._replace(topic=topic, born_ms=int(time.time() * 1000) - 60_000)


def played(folder: Path, killed: bool) -> Fates:
    """Transactions with and without ends, some of which come twice or contradict; `killed`: nothing was closed."""
    chance, gateway = random.Random(SEED), Waiting(folder.with_name("gateway"), "broker-a", MIDDLE)
    for topic in TOPICS:
        gateway.log.put_topic(topic, Topic(4, 4))
    fates: Fates = {}
    open_halves: list[Half] = []
    for n in range(MESSAGES):
        half = gateway.log.append_half(a_message(chance, n))
        gateway.until(half.end)
        fates[half.uniq_key or ""] = None
        open_halves.append(half)
        if chance.random() < 0.3:
            chance.shuffle(open_halves)
            while len(open_halves) > 20:
                fates |= ended(gateway, chance, open_halves.pop())
    if not killed:
        gateway.close()
    shutil.copytree(gateway.log.folder, folder)
    assert (folder / "abort").exists() == killed
    return fates


def ended(gateway: Waiting, chance: random.Random, half: Half) -> Fates:
    outcomes: list[Outcome] = [chance.choice(("COMMIT", "COMMIT", "ROLLBACK"))]
    outcomes += [chance.choice(("COMMIT", "ROLLBACK"))] if chance.random() < 0.1 else []
    for outcome in outcomes:
        said = gateway.log.append_end(half, End(outcome, chance.random() < 0.3, half.group, half.uniq_key))
        gateway.until(said.end)
    return {half.uniq_key or "": outcomes[0]}


def decided(spark: SparkSession, folder: Path, store: Path) -> tuple[Fates, Counter[str]]:
    """The decisions and deliveries of a run over the store."""
    warehouse = KernelWarehouse(spark, str(folder))
    assert land_store(warehouse, StoreRequest(str(store), "broker-a", timedelta(0)), LOG).status == 0
    sources = {row["source"] for row in warehouse.read("op_messages").select("source").distinct().collect()}
    sources |= {row["source"] for row in warehouse.read("landing_progress").select("source").distinct().collect()}
    assert sources == {"GATEWAY"}
    settings = Settings(rules=RuleSettings(), topics=TopicSettings(layout="single", decompress=False))
    summary = reconcile(warehouse, Request(settings, datetime.now(timezone.utc)))
    assert summary.status == 0, summary
    rows = warehouse.read("decisions").select("uniq_key", "decision").collect()
    fates = {r["uniq_key"]: r["decision"] if r["decision"] in ("COMMIT", "ROLLBACK") else None for r in rows}
    delivered = warehouse.read("real_topics").select("transaction_id").collect()
    rejected = warehouse.read("rejected").where(F.col("reason") != "REDUNDANT").collect()
    assert {row["reason"] for row in rejected} == {"CONFLICT"}
    return fates, Counter(row["transaction_id"] for row in delivered)


def half_keys(running: RealBroker) -> list[str]:
    """The UNIQ_KEY of each message in the broker's half topic now, put-back copies too."""
    with closing(Broker(running.address, RemotingSettings())) as client:
        asked = QueueRange(HALF_TOPIC, 0, 0, client.max_offset(HALF_TOPIC, 0))
        chunks = [each for each in pull(client, asked) if isinstance(each, Chunk)]
    return [key for each in chunks for key in half_batch(chain(each.data).records)["uniq_key"].to_pylist()]


@pytest.mark.parametrize("killed", [False, True])
def test_all_agree_on_every_outcome(spark: SparkSession, tmp_path: Path, killed: bool) -> None:
    fates = played(tmp_path / "home" / "store", killed)
    committed = Counter({key for key, outcome in fates.items() if outcome == "COMMIT"})
    found, delivered = decided(spark, tmp_path / "warehouse", tmp_path / "home" / "store")
    assert found == fates
    assert delivered == committed
    still_open = {key for key, outcome in fates.items() if outcome is None}
    with broker(5, tmp_path / "home", SIZES) as running:
        consumed = running.consume(TOPICS, len(committed))
        assert Counter(each.uniq for each in consumed) == committed
        until = time.monotonic() + 60
        while not asked_again(running, still_open):
            assert time.monotonic() < until, "the broker's check service has not asked for all that is open"
            time.sleep(1)
        again = Counter(half_keys(running))
    assert {key for key, times in again.items() if times > 1} == still_open


def asked_again(running: RealBroker, still_open: set[str]) -> bool:
    again = Counter(half_keys(running))
    return all(again[key] > 1 for key in still_open)
