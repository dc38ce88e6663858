"""Where the first landing of a broker begins, and that it pulls no real topic as a whole."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from halfop.frame.errors import InputRefused, UsageError
from halfop.landing import progress
from halfop.landing.again import again
from halfop.landing.broker import messages
from halfop.landing.broker import request as request_module
from halfop.landing.broker.land import land_broker
from halfop.landing.broker.request import BrokerRequest, addresses, real_topics
from halfop.rocketmq.wire.name_servers import BrokerAddress
from halfop.rocketmq.wire.remoting import RemotingSettings
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import Settings
from halfop.warehouse.kernel import KernelWarehouse
from support import rows as r
from support.brokers import store_writer as w
from support.brokers.played_broker import About, played

LOG = logging.getLogger("halfop.test")
HOUR = 3_600_000
SETTINGS = RemotingSettings(give_up_after=5)
THERE = About(w.BORN_MS + 20_000)


def transactions(store: w.Store, numbers: range, at: int, topic: str = "orders") -> None:
    """Half messages, of which every second is committed, each with its op, all born and stored at one instant."""
    first = store.next_offsets.get(w.HALF_QUEUE, 0)
    places = [store.append(_half(n, topic, born_ms=at, store_ms=at)) for n in numbers]
    for n, place in zip(numbers, places, strict=True):
        if n % 2 == 0:
            store.append(w.final(n, place, topic=topic, store_ms=at + 1))
    store.append(w.op("".join(f"{first + i}," for i in range(len(numbers))), store_ms=at + 2))


def _half(n: int, topic: str, **more: object) -> w.Record:
    half = w.half(n, **more)
    assert isinstance(half.properties, Mapping)
    return replace(half, properties={**half.properties, "REAL_TOPIC": topic})


@pytest.fixture
def store(tmp_path: Path) -> w.Store:
    """Messages of an hour before, and a thousand without a transaction; then transactions of now."""
    store = w.Store(tmp_path / "store")
    transactions(store, range(10), w.BORN_MS - HOUR)
    for n in range(1000):
        store.append(w.Record("orders", queue_id=n % 4, store_ms=w.BORN_MS - HOUR // 2))
    transactions(store, range(10, 20), w.BORN_MS)
    return store


def landed(warehouse: KernelWarehouse, store: w.Store, about: About = THERE, **options: Any) -> dict[int, str]:
    """The last decisions of runs about the half messages that have landed."""
    with played(store, about=about) as address:
        summary = land_broker(warehouse, BrokerRequest(SETTINGS, timedelta(0), broker=address, **options), LOG)
    assert summary.status == 0, summary
    assert reconcile(warehouse, Request(Settings(), r.instant(w.BORN_MS + 30_000))).status == 0
    return {row["queue_offset"]: row["decision"] for row in warehouse.read("decisions").orderBy("run_id").collect()}


def first_offsets(warehouse: KernelWarehouse, of: str = "orders") -> set[int | None]:
    rows = progress.of_broker(warehouse, "broker-a")
    return {row.first_offset for (topic, _), row in rows.items() if topic == of}


def fates(*numbers: int) -> dict[int, str]:
    return {n: "ROLLBACK" if n % 2 else "COMMIT" for n in numbers}


@pytest.mark.parametrize(("given", "name"), [(None, "broker-b"), ("other", "other")])
def test_one_broker_lands_under_its_own_name_or_the_given_one(
    warehouse: KernelWarehouse, store: w.Store, given: str | None, name: str
) -> None:
    with played(store, about=THERE._replace(name="broker-b")) as address:
        request = BrokerRequest(SETTINGS, timedelta(0), broker=address, broker_name=given)
        assert land_broker(warehouse, request, LOG).status == 0
    assert {row["broker_name"] for row in warehouse.read("landing_progress").collect()} == {name}


@pytest.mark.thorough
def test_a_broker_that_may_have_landed_under_the_name_of_earlier_versions(
    warehouse: KernelWarehouse, store: w.Store
) -> None:
    assert landed(warehouse, store) == fates(*range(20))
    with played(store, about=THERE._replace(name="broker-b")) as address:
        request = BrokerRequest(SETTINGS, timedelta(0), broker=address)
        refused = land_broker(warehouse, request, LOG)
        assert refused.status == 3
        (said,) = refused.extra["failed_brokers"].values()
        assert "--broker-name broker-a if it is the same broker, --broker-name broker-b if it is another" in said
        assert land_broker(warehouse, replace(request, broker_name="broker-a"), LOG).rows_written == {}
        assert land_broker(warehouse, replace(request, broker_name="broker-b"), LOG).status == 0
        assert land_broker(warehouse, request, LOG).status == 0, "it has landed under its own name"


def test_all_of_a_broker(warehouse: KernelWarehouse, store: w.Store) -> None:
    assert landed(warehouse, store) == fates(*range(20))
    assert first_offsets(warehouse) == {0}


@pytest.mark.thorough
@pytest.mark.parametrize("option", [{"since": r.instant(w.BORN_MS)}, {"from_offset": 10}])
def test_what_a_broker_has_stored_since(warehouse: KernelWarehouse, store: w.Store, option: dict[str, Any]) -> None:
    """None of the real topic's messages between is pulled."""
    assert landed(warehouse, store, **option) == fates(*range(10, 20))
    assert min(first for first in first_offsets(warehouse) if first is not None) >= 250
    assert warehouse.version("rejected") == -1 or warehouse.read("rejected").isEmpty(), "nothing is lost"
    transactions(store, range(20, 24), w.BORN_MS + 10_000)
    assert landed(warehouse, store, **option) == fates(*range(10, 24)), "a later landing goes on where it was"


def two_topics(tmp_path: Path) -> w.Store:
    """Transactions of `orders`, and of `others`, of which every second one is committed."""
    store = w.Store(tmp_path / "two")
    for topic in ("others", "orders"):
        for n in range(500):
            store.append(w.Record(topic, queue_id=n % 4, store_ms=w.BORN_MS - HOUR))
        transactions(store, range(10), w.BORN_MS, topic)
    return store


@pytest.mark.slow
@pytest.mark.parametrize("few", [pytest.param(20_000, id="here"), pytest.param(0, id="in workers")])
def test_only_some_real_topics(
    warehouse: KernelWarehouse, tmp_path: Path, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outcomes of a topic stay unknown as long as it is left out: a commit is no rollback."""
    monkeypatch.setattr(messages, "_FEW", few)
    store = two_topics(tmp_path)
    some: dict[str, Any] = {"topics": frozenset({"orders"})}
    for _ in range(2):
        found = landed(warehouse, store, **some)
        assert {found[n] for n in range(10)} == {"WAIT"}, "their ops have no outcome"
        assert {n - 10: found[n] for n in range(10, 20)} == fates(*range(10))
        transactions(store, range(20, 24), w.BORN_MS, "others")
    assert first_offsets(warehouse, "others") == {None}, "nothing of it was pulled"
    assert {"NO_OUTCOME"} <= {row["reason"] for row in warehouse.read("rejected").collect()}
    found = landed(warehouse, store)
    assert {n: found[n] for n in range(10)} == fates(*range(10)), "as soon as the topic is pulled"
    assert {n: found[n] for n in range(20, 28)} == {n: "ROLLBACK" if n % 2 else "COMMIT" for n in range(20, 28)}
    transactions(store, range(30, 34), w.BORN_MS, "others")
    transactions(store, range(34, 38), w.BORN_MS, "orders")
    found = landed(warehouse, store, **some)
    assert {found[n] for n in range(28, 32)} == {"WAIT"}, "left out again"
    assert landed(warehouse, store) == fates(*range(36))


def refusal(warehouse: KernelWarehouse, store: w.Store, about: About = THERE) -> str:
    """Why it does not land; a second try says the same."""
    said = []
    for _ in range(2):
        with played(store, about=about) as address:
            summary = land_broker(warehouse, BrokerRequest(SETTINGS, timedelta(0), broker=address), LOG)
            assert (summary.status, summary.extra["transient"]) == (3, False)
            said.append(summary.extra["failed_brokers"]["broker-a"].replace(address, "broker"))
    assert said[0] == said[1]
    return said[0]


PULL, MAX_OFFSET = 11, 30


@pytest.mark.parametrize("code", [PULL, pytest.param(MAX_OFFSET, marks=pytest.mark.slow)])
def test_a_topic_that_the_broker_refuses_is_left_out_and_lands_once_it_gives_it(
    warehouse: KernelWarehouse, tmp_path: Path, code: int
) -> None:
    store = w.Store(tmp_path / "two")
    store.extend(w.Record(topic, queue_id=3) for topic in ("secret", "orders"))  # so that all four queues are there
    transactions(store, range(4), w.BORN_MS, "secret")
    transactions(store, range(4, 8), w.BORN_MS)
    refusing = THERE._replace(refuses={(code, "secret")})
    said = refusal(warehouse, store, refusing)
    assert said.startswith("broker: answered ")
    assert f"(topic secret, queueId 0{', queueOffset 0' if code == PULL else ''}) with code 16" in said
    assert "ROCKETMQ_ACCESS_KEY is not set" in said
    assert "leave this topic out: --topics" in said
    found = landed(warehouse, store, refusing, topics=frozenset({"orders"}))
    assert found == dict.fromkeys(range(4), "WAIT") | fates(*range(4, 8))
    assert landed(warehouse, store, refusing, topics=frozenset({"orders"})) == found
    assert landed(warehouse, store) == fates(*range(8)), "what was left out is pulled from its beginning"


@pytest.mark.slow
def test_a_range_that_lands_again_rolls_back_nothing_of_a_topic_that_was_left_out(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    """Its queues have landed before, but not as far as the ops."""
    store = two_topics(tmp_path)
    assert landed(warehouse, store) == fates(*range(10)) | {n: fates(n)[n] for n in range(10, 20)}
    transactions(store, range(20, 24), w.BORN_MS, "others")
    some: dict[str, Any] = {"topics": frozenset({"orders"})}
    left_out = landed(warehouse, store, **some)
    assert {left_out[n] for n in range(20, 24)} == {"WAIT"}
    assert landed(warehouse, store, again=(again("broker-a/0/20-23"),)) == left_out
    assert landed(warehouse, store) == fates(*range(24))


@pytest.mark.slow
def test_a_message_that_has_rotted_at_its_broker_stops_no_other_topic(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    store = w.Store(tmp_path / "two")
    store.append(w.Record("orders", queue_id=3))
    place = store.append(_half(0, "rotten"))
    store.append(w.final(0, place, topic="rotten", body_crc=1))
    store.append(w.op("0,"))
    transactions(store, range(4, 8), w.BORN_MS)
    said = refusal(warehouse, store)
    assert said.startswith("broker: queue 0 of rotten: offset 0 does not match its CRC\n")
    assert "land store --skip-corrupt" in said
    found = landed(warehouse, store, topics=frozenset({"orders"}))
    assert found == {0: "WAIT"} | {n: "ROLLBACK" if n % 2 == 0 else "COMMIT" for n in range(1, 5)}


def test_topics_that_are_no_real_topics() -> None:
    for name in ("RMQ_SYS_TRANS_HALF_TOPIC", "orders,others"):
        with pytest.raises(UsageError, match="--topics"):
            real_topics(["orders", name])


def test_a_first_half_message_that_is_not_there_is_refused(warehouse: KernelWarehouse, store: w.Store) -> None:
    with played(store, about=THERE) as address:
        summary = land_broker(warehouse, BrokerRequest(SETTINGS, timedelta(0), broker=address, from_offset=20), LOG)
    assert summary.status == 3
    (said,) = summary.extra["failed_brokers"].values()
    assert "--from-offset 20: no half message is there" in said
    assert "ends at 20" in said


class KnownBrokers:
    """A name server that knows two clusters."""

    def __init__(self, *_: object) -> None: ...

    def brokers(self) -> list[BrokerAddress]:
        return [BrokerAddress(name, cluster, f"{name}:1", True) for name, cluster in (("a", "one"), ("b", "two"))]

    def close(self) -> None: ...


def test_only_brokers_of_one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "NameServers", KnownBrokers)
    whole = BrokerRequest(SETTINGS, timedelta(0), namesrv="n:1")
    assert [each.name for each in addresses(whole)] == ["a", "b"]
    two = BrokerRequest(SETTINGS, timedelta(0), namesrv="n:1", cluster="two")
    assert [each.name for each in addresses(two)] == ["b"]
    with pytest.raises(InputRefused, match="no broker of cluster three\nit knows one, two"):
        addresses(BrokerRequest(SETTINGS, timedelta(0), namesrv="n:1", cluster="three"))
