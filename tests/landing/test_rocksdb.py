"""Brokers that keep transactions in RocksDB: their ops name places in the log; half messages keep their own offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from halfop.columns.keys import Key
from halfop.ending.resolve import ResolveRequest, resolve
from halfop.ending.selection import Selection, plan
from halfop.frame.errors import InputRefused
from halfop.landing.again import again
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.names import ROCKSDB_QUEUES, ROCKSDB_TOPICS
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.rules.reasons import allowed
from halfop.settings.business import Resolution
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.upkeep import TableUpkeep
from model import reference as m
from support import rows as r
from support.brokers import store_writer as w
from support.brokers.played_broker import About, played
from support.brokers.stores import transactions
from support.messages import KNOWN, NOW, RULES, half

LOG = logging.getLogger("halfop.test")
QUICK = RemotingSettings(connect_timeout=1, answer_timeout=0.5, give_up_after=1.5)
HALF, OP = ROCKSDB_TOPICS
BROKER = "broker-a"
SETTINGS = "transRocksDBEnable=true\ntransactionCheckMax=15\ntransactionCheckInterval=30000\n"
WATCHED = m.Settings()
AT = w.BORN_MS + 10_000


def sent(store: w.Store, numbers: Sequence[int]) -> dict[int, int]:
    """Places of half messages as RocketMQ 5.5.1 parks them; in between are messages of other queues."""
    store.extend(w.Record("orders", queue_id=queue) for queue in range(4))
    places = {}
    for n in numbers:
        store.append(w.Record("others"))
        places[n] = store.append(w.half(n, topic=HALF))
    return places


def end(store: w.Store, places: dict[int, int], commit: Callable[[int], bool]) -> None:
    """Ends them as RocketMQ 5.5.1 does: a final message first, and one op each, whose body is a zero byte."""
    for n, place in places.items():
        if commit(n):
            store.append(w.final(n, place))
        named = {"REAL_TOPIC": "orders", "__transactionId__": f"{n:032X}", "TRANS_OFFSET": str(place), "TAGS": "d"}
        store.append(w.Record(OP, b"\0", named))


def land(warehouse: KernelWarehouse, store: w.Store, **more: object) -> None:
    request = StoreRequest(str(store.root), BROKER, timedelta(0), None, **more)  # type: ignore[arg-type]
    land_store(warehouse, request, LOG)


def pull(warehouse: KernelWarehouse, store: w.Store, **more: object) -> None:
    with played(store, about=About(at=AT, settings=SETTINGS)) as address:
        request = BrokerRequest(QUICK, timedelta(0), broker=address, **more)  # type: ignore[arg-type]
        assert land_broker(warehouse, request, LOG).status == 0


def fates(warehouse: KernelWarehouse, now: int = AT) -> dict[str, tuple[str, int, int]]:
    """The decision about each message by UNIQ_KEY, with its half key."""
    run_id = r.run(warehouse, WATCHED, now).run_id
    rows = warehouse.read("decisions").where(f"run_id = {run_id}").collect()
    return {row["uniq_key"]: (row["decision"], row["queue_id"], row["queue_offset"]) for row in rows}


def key(n: int) -> str:
    return f"{n:032X}"


@pytest.mark.parametrize("way", [land, pull])
@pytest.mark.parametrize("queues", [True, False], ids=["", "the log alone"])
def test_messages_end_as_their_producers_said(
    warehouse: KernelWarehouse, tmp_path: Path, way: Callable[..., None], queues: bool
) -> None:
    store = w.Store(tmp_path / "store", queues=queues)
    places = sent(store, range(6))
    end(store, {n: places[n] for n in (3, 0, 4, 1)}, lambda n: n % 2 == 0)
    way(warehouse, store)
    words = {0: "COMMIT", 1: "ROLLBACK", 3: "ROLLBACK", 4: "COMMIT", 2: "WAIT", 5: "WAIT"}
    assert fates(warehouse) == {key(n): (word, ROCKSDB_QUEUES, n) for n, word in words.items()}
    assert warehouse.rows("rejected") == []


@pytest.mark.thorough
@pytest.mark.parametrize("way", [land, pull])
def test_a_half_message_of_an_earlier_landing_is_found_by_its_place(
    warehouse: KernelWarehouse, tmp_path: Path, way: Callable[..., None]
) -> None:
    store = w.Store(tmp_path / "store")
    places = sent(store, range(4))
    way(warehouse, store)
    assert {word for word, *_ in fates(warehouse).values()} == {"WAIT"}
    store.extend(w.Record("others", b"x" * 1000) for _ in range(100))  # more than is read again
    end(store, {n: places[n] for n in (1, 2)}, lambda n: n == 2)
    way(warehouse, store)
    found = fates(warehouse, AT + 1)
    assert {n: found[key(n)][0] for n in range(4)} == {0: "WAIT", 1: "ROLLBACK", 2: "COMMIT", 3: "WAIT"}


def test_a_broker_that_changes_its_way(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """Each message is in one form, and is ended in that, whatever the way is by then: equal offsets do not meet."""
    store = w.Store(tmp_path / "store")
    classic = [store.append(w.half(n)) for n in range(3)]
    parked = sent(store, range(10, 13))
    store.append(w.final(0, classic[0]))
    store.append(w.op("0,1,"))
    end(store, {10: parked[10], 12: parked[12]}, lambda n: n == 12)
    transactions(store, range(20, 22))
    land(warehouse, store)
    pulled = KernelWarehouse(warehouse.spark, str(tmp_path / "pulled"))
    pull(pulled, store)
    words = {0: "COMMIT", 1: "ROLLBACK", 2: "WAIT", 20: "COMMIT", 21: "ROLLBACK"}
    wanted = {key(n): (word, 0, at) for at, (n, word) in enumerate(words.items())}
    words = {10: "ROLLBACK", 11: "WAIT", 12: "COMMIT"}
    wanted |= {key(n): (word, ROCKSDB_QUEUES, at) for at, (n, word) in enumerate(words.items())}
    assert fates(warehouse) == fates(pulled) == wanted


def test_a_broker_that_has_given_up_rocksdb_shows_commits_alone(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """Without transRocksDBEnable it writes no op about what is parked there, only the final message."""
    store = w.Store(tmp_path / "store")
    places = sent(store, range(2))
    store.append(w.final(0, places[0]))
    land(warehouse, store)
    found = fates(warehouse)
    assert (found[key(0)][0], found[key(1)][0]) == ("COMMIT", "WAIT")


@pytest.mark.thorough
def test_an_op_whose_half_message_has_not_landed_is_rejected_and_finds_it_later(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    """The broker deleted the half messages before the first landing, so of what followed them only a commit shows."""
    store = w.Store(tmp_path / "store", file_size=1 << 12)
    places = sent(store, range(2))
    store.extend(w.Record("others", b"x" * 1000) for _ in range(4))
    end(store, places, lambda n: n == 1)
    store.append(w.half(9, topic=HALF))
    first = sorted((store.root / "commitlog").iterdir())[0]
    lost = first.read_bytes()
    first.unlink()
    land(warehouse, store)
    assert set(fates(warehouse)) == {key(9)}
    rejected = [(row["reason"], row["half_offset"]) for row in warehouse.rows("rejected")]
    assert rejected == [("HALF_BEFORE_LANDING", None)] * 2
    assert all(
        f"text {place}," in " ".join(row["detail"] for row in warehouse.rows("rejected")) for place in places.values()
    )

    whole = KernelWarehouse(warehouse.spark, str(tmp_path / "whole"))
    first.write_bytes(lost)
    land(whole, store)
    rows = whole.read("half_messages").where("queue_offset < 2")
    warehouse.commit("half_messages", rows)
    store.append(w.Record("others"))
    first.unlink()
    land(warehouse, store)
    found = fates(warehouse, AT + 1)
    assert (found[key(0)][0], found[key(1)][0]) == ("WAIT", "COMMIT")
    placed = warehouse.read("op_messages").where("half_offset IS NOT NULL").collect()
    assert [(row["half_offset"], row["outcome"], row["body"]) for row in placed] == [(1, "COMMIT", str(places[1]))]


@pytest.mark.thorough
def test_late_ops_of_half_messages_that_maintain_removed_end_nothing(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    """A broker's op does not say how a message ended, and of one in RocksDB nobody knows the place any more."""
    store = w.Store(tmp_path / "store")
    place, parked = store.append(w.half(0)), sent(store, [1])
    store.extend([w.final(0, place), w.op("0")])
    end(store, parked, lambda n: True)
    land(warehouse, store)
    assert {word for word, *_ in fates(warehouse).values()} == {"COMMIT"}
    for name in ("half_messages", "op_messages", "final_messages"):
        TableUpkeep(warehouse, name).delete("true", {})
    store.extend(w.Record("others", b"x" * 1000) for _ in range(200))  # more than is read again
    store.append(w.op("0"))
    end(store, parked, lambda n: False)
    land(warehouse, store)
    assert fates(warehouse, AT + 1) == {}
    rejected = {(row["reason"], row["queue_id"], row["half_offset"]) for row in warehouse.rows("rejected")}
    assert rejected == {("NO_OUTCOME", 0, 0), ("HALF_BEFORE_LANDING", ROCKSDB_QUEUES, None)}
    assert "`maintain` removed it" in allowed("HALF_BEFORE_LANDING")


@pytest.mark.thorough
@pytest.mark.parametrize("way", [land, pull])
def test_ranges_land_again_by_the_numbers_of_the_tables(
    warehouse: KernelWarehouse, tmp_path: Path, way: Callable[..., None]
) -> None:
    store = w.Store(tmp_path / "store")
    end(store, sent(store, range(4)), lambda n: n % 2 == 0)
    way(warehouse, store)
    before = fates(warehouse)
    way(warehouse, store, again=(again(f"{BROKER}/{ROCKSDB_QUEUES}/1-2"),))
    assert warehouse.read("half_messages").count() == 6
    assert warehouse.read("op_messages").where("half_offset IS NULL OR outcome IS NULL").count() == 0
    assert fates(warehouse, AT + 1) == {}
    assert len(before) == 4


def test_a_running_broker_says_when_it_forgets(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """It asks 16 times in intervals of 30 s; another one is for the last answer."""
    store = w.Store(tmp_path / "store")
    sent(store, range(1))
    pull(warehouse, store)
    found = {row["topic"]: row["forgets_after"] for row in progress_rows(warehouse)}
    assert (found[HALF], found[w.HALF]) == (17 * 30_000_000, None)


def test_a_store_that_was_rebuilt_is_noticed_by_its_messages_in_rocksdb(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    store = w.Store(tmp_path / "store")
    sent(store, range(3))
    land(warehouse, store)
    other = w.Store(tmp_path / "other")
    sent(other, range(5, 9))
    with pytest.raises(InputRefused, match="KEY_REUSED"):
        land(warehouse, other)


@pytest.mark.thorough
def test_a_life_that_begins_in_rocksdb_owns_what_its_ops_name(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """The broker lost its log's end; ops of both lives' messages come in the new one."""
    store = w.Store(tmp_path / "store")
    places = sent(store, range(4))
    land(warehouse, store)
    fates(warehouse)
    after = w.Store(tmp_path / "after")
    stands = sent(after, range(2))
    new = sent(after, range(7, 11))
    end(after, stands | new, lambda n: n in (1, 8))
    assert {n: places[n] for n in stands} == stands
    land(warehouse, after, accept_rewind=True)
    found = fates(warehouse, AT + 1)
    words = {n: found[key(n)][0] for n in (0, 1, 2, 3, 7, 8, 9, 10)}
    lost = dict.fromkeys((2, 3), "DISCARD")
    assert words == {0: "ROLLBACK", 1: "COMMIT", 7: "ROLLBACK", 8: "COMMIT", 9: "ROLLBACK", 10: "ROLLBACK"} | lost


@pytest.mark.thorough
def test_what_an_earlier_version_has_landed_of_it_is_in_no_plan(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """Its ops landed as garbage, so all messages that their producers rolled back seem to be open."""
    r.land(warehouse, [half(0)], [], NOW, KNOWN)
    assert r.run(warehouse, RULES, NOW).decisions == {"CHECK": {"TIMEOUT": 1}}
    named = Key(*(warehouse.read("decisions").collect()[0][name] for name in Key._fields))
    assert len(plan(warehouse, Selection("COMMIT", [named]))[1]) == 1
    query = "SELECT uniq_key AS key, 'COMMIT' AS outcome FROM open_transactions"
    settings = Resolution.model_validate({"query": query})
    assert len(resolve(warehouse, ResolveRequest({"g": settings}))[1].plan) == 1
    row = {"broker_name": named.broker_name, "topic": HALF, "queue_id": 0, "next_offset": 1}
    warehouse.commit(PROGRESS, [row])
    with pytest.raises(InputRefused, match="an earlier version has landed b's"):
        plan(warehouse, Selection("COMMIT", [named]))
    with pytest.raises(InputRefused, match="an earlier version has landed b's"):
        resolve(warehouse, ResolveRequest({"g": settings}))
    store = w.Store(tmp_path / "store")
    with played(store, about=About(name="b")) as address:
        summary = land_broker(warehouse, BrokerRequest(QUICK, timedelta(0), broker=address), LOG)
    assert "an earlier version has landed b's" in summary.extra["failed_brokers"]["b"]


def test_a_body_of_a_zero_byte_in_the_other_op_topic_names_nothing(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    store = w.Store(tmp_path / "store")
    place = store.append(w.half(0))
    store.append(replace(w.op("\0"), properties={"TAGS": "d", "TRANS_OFFSET": str(place)}))
    land(warehouse, store)
    fates(warehouse)
    assert [row["reason"] for row in warehouse.rows("rejected")] == ["GARBAGE_OFFSET"]
