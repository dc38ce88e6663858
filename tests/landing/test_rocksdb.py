"""A broker that keeps its transactions in RocksDB alone is refused by every job; one that writes both forms is not."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from halfop.columns.keys import Key
from halfop.ending.owner import Masters
from halfop.ending.resolve import ResolveRequest, resolve
from halfop.ending.selection import Selection, plan
from halfop.frame.errors import InputRefused
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.names import ROCKSDB_TOPICS, RequestCode
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.settings.business import Resolution
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.tables import NO_TABLE
from support import rows as r
from support.brokers import store_writer as w
from support.brokers.owning_broker import CONFIG, NAME, Owning
from support.brokers.played_broker import About, played
from support.brokers.scripted import answering, serving
from support.brokers.stores import transactions
from support.messages import KNOWN, NOW, RULES, half

LOG = logging.getLogger("halfop.test")
QUICK = RemotingSettings(connect_timeout=1, answer_timeout=0.5, give_up_after=1.5)
HALF, OP = ROCKSDB_TOPICS
BOTH = "transRocksDBEnable=true\ntransWriteOriginTransHalfEnable=true\n"
ALONE = "transRocksDBEnable=true\ntransWriteOriginTransHalfEnable=false\n"
REFUSED = "broker-a keeps its transactions in RocksDB alone.*\nset transWriteOriginTransHalfEnable=true"


def alone(store: w.Store, halves: str = HALF, ops: str = OP, number: int = 3) -> None:
    """Transactions as RocketMQ 5.5.1 writes them in that mode: all but the last one are rolled back."""
    places = [store.append(replace(w.half(n), topic=halves)) for n in range(number)]
    for n, place in enumerate(places[:-1]):
        properties = {"REAL_TOPIC": "orders", "__transactionId__": f"{n:032X}", "TRANS_OFFSET": str(place), "TAGS": "d"}
        store.append(w.Record(ops, b"\0", properties))


def land(warehouse: KernelWarehouse, store: w.Store) -> None:
    land_store(warehouse, StoreRequest(str(store.root), "broker-a", timedelta(0), None), LOG)


@pytest.mark.parametrize(
    ("number", "queues", "ops"),
    [(3, True, OP), (1, True, OP), (3, False, OP), (1, False, OP), (2, True, w.OP)],
    ids=["all", "no op yet", "no consume queues", "a half message of the log alone", "by the op alone"],
)
def test_a_store_is_refused_before_anything_lands(
    warehouse: KernelWarehouse, tmp_path: Path, number: int, queues: bool, ops: str
) -> None:
    store = w.Store(tmp_path / "store", queues=queues)
    transactions(store, range(2))
    alone(store, HALF if ops == OP else w.HALF, ops, number)
    with pytest.raises(InputRefused, match=REFUSED) as refused:
        land(warehouse, store)
    assert refused.value.exit_status == 3
    assert warehouse.version("half_messages") == warehouse.version(PROGRESS) == NO_TABLE


def test_a_part_that_came_after_a_sound_landing_is_refused(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    store = w.Store(tmp_path / "store")
    transactions(store, range(2))
    land(warehouse, store)
    before = warehouse.version(PROGRESS)
    alone(store)
    with pytest.raises(InputRefused, match=REFUSED):
        land(warehouse, store)
    assert warehouse.version(PROGRESS) == before


@pytest.mark.parametrize("settings", ["", BOTH, ALONE])
def test_a_running_broker(warehouse: KernelWarehouse, tmp_path: Path, settings: str) -> None:
    """The settings show it before the first message does; a broker that writes both forms lands."""
    store = w.Store(tmp_path / "store")
    transactions(store, range(2))
    if not settings:
        alone(store)
    with played(store, about=About(settings=settings)) as address:
        summary = land_broker(warehouse, BrokerRequest(QUICK, timedelta(seconds=1), broker=address), LOG)
    if settings == BOTH:
        assert (summary.status, summary.rows_written["half_messages"]) == (0, 2)
        return
    assert (summary.status, summary.rows_written) == (3, {})
    assert "broker-a keeps its transactions in RocksDB alone" in summary.extra["failed_brokers"]["broker-a"]


@pytest.mark.parametrize(("settings", "topic"), [(ALONE, None), ("", HALF), ("", OP)])
def test_nobody_is_asked_to_end_anything_there(settings: str, topic: str | None) -> None:
    there = Owning(2)
    if topic:
        there.put(replace(w.half(9), topic=topic))

    def script(asked):  # type: ignore[no-untyped-def]
        of_config = asked.code == RequestCode.GET_BROKER_CONFIG
        return {"body": (CONFIG.format(0) + settings).encode()} if of_config else there.answer(asked)

    with (
        serving(answering(script)) as address,
        pytest.raises(InputRefused, match="b keeps its transactions in RocksDB alone"),
        Masters(QUICK, broker=address).owner(NAME),
    ):
        pass


def test_what_an_earlier_version_has_landed_of_it_is_in_no_plan(warehouse: KernelWarehouse) -> None:
    """Its ops landed as garbage, so all messages that their producers rolled back seem to be open."""
    r.land(warehouse, [half(0)], [], NOW, KNOWN)
    assert r.run(warehouse, RULES, NOW).decisions == {"CHECK": {"TIMEOUT": 1}}
    key = Key(*(warehouse.read("decisions").collect()[0][name] for name in Key._fields))
    assert len(plan(warehouse, Selection("COMMIT", [key]))[1]) == 1
    query = "SELECT uniq_key AS key, 'COMMIT' AS outcome FROM open_transactions"
    settings = Resolution.model_validate({"query": query})
    assert len(resolve(warehouse, ResolveRequest({"g": settings}))[1].plan) == 1
    row = {"broker_name": key.broker_name, "topic": HALF, "queue_id": 0, "next_offset": 1}
    warehouse.commit(PROGRESS, [row])
    with pytest.raises(InputRefused, match="RocksDB alone"):
        plan(warehouse, Selection("COMMIT", [key]))
    with pytest.raises(InputRefused, match="RocksDB alone"):
        resolve(warehouse, ResolveRequest({"g": settings}))
