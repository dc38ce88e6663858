"""Real clients at a gateway: the producer that sent a half message is asked about it, and message traces are taken."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from halfop.gateway.producer import Producer, Refusal
from halfop.rocketmq.tool_requests import GetProducerConnectionList
from halfop.warehouse.kernel import KernelWarehouse
from support.gateway.clients import free, nothing, page
from support.gateway.gateways import gateway

from systems.broker.followed import delivered, follow, options
from systems.broker.other_clients import sender
from systems.broker.real_broker import Plan, RealClients, Truth
from systems.broker.test_gateway_clients import folder

pytestmark = pytest.mark.broker
PLANS = [Plan("orders", "UC")] * 20


def asked_clients(warehouse: KernelWarehouse) -> dict[int, set[str]]:
    """By half offset the names of the clients that got a question, as they stand after their addresses."""
    sent = warehouse.read("check_deliveries").where("outcome = 'SENT'").select("request_id", "client")
    rows = warehouse.read("check_requests").join(sent, "request_id").collect()
    found = defaultdict(set)
    for row in rows:
        found[row["tran_state_table_offset"]].add(re.sub(r"^.*@([a-z]+).*$", r"\1", row["client"]))
    return found


def group(onlooker: Producer) -> bytes:
    """The clients of the group, as mqadmin's producerConnection is told of them."""
    try:
        return onlooker.ask(GetProducerConnectionList("producers")).body
    except Refusal:  # none of them is there
        return b""


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("version", [4, 5, "proxy"])
def test_the_producer_that_sent_it_is_asked(
    warehouse: KernelWarehouse, tmp_path: Path, version: int | str, first: bool
) -> None:
    """One of three stays, one is started again under its id, one is gone; or all that are there are asked in turn."""
    given = [*options(), "--set", f"gateway.ask_sender_first={first}".lower()]
    with (
        gateway(tmp_path / "gateway", *given, warehouse=warehouse.root) as running,
        ThreadPoolExecutor(2) as pool,
    ):

        def clients(name: str) -> Callable[..., list[Truth]]:
            home = folder(tmp_path, version, running.address)
            return lambda plans, **other: home.produce(plans, jvm=[f"-Dinstance={name}"], **other)

        again, gone = (clients(name)(PLANS, halt=True) for name in ("again", "gone"))
        stays = pool.submit(clients("stays"), PLANS, linger=40, expect=1000)
        back = pool.submit(clients("again"), [], linger=40, expect=1000)
        with Producer(running.address, "onlooker", nothing) as onlooker:
            while b"stays" not in (there := group(onlooker)) or b"again" not in there:
                assert not stays.done(), there
        follow(warehouse, running.address, [stays, back])
        sent = {"stays": {each.half_offset for each in stays.result() if each.half_offset >= 0}}
    sent |= {"again": {each.half_offset for each in again}, "gone": {each.half_offset for each in gone}}
    found = asked_clients(warehouse)
    assert Counter(map(len, sent.values())) == Counter({20: 3})
    assert sum(delivered(warehouse, "orders").values()) == 60
    by_sender = {name: set().union(*(found[offset] for offset in offsets)) for name, offsets in sent.items()}
    both = {"stays", "again"}
    wanted: Mapping[str, set[str]] = {"stays": {"stays"}, "again": {"again"}, "gone": both}
    assert by_sender == (wanted if first else dict.fromkeys(wanted, both))


@pytest.mark.parametrize("version", [4, 5, "proxy"])
def test_a_java_producer_with_message_trace(warehouse: KernelWarehouse, tmp_path: Path, version: int | str) -> None:
    pages = f"127.0.0.1:{free()}"
    with (
        gateway(tmp_path / "gateway", *options(), "--metrics", pages, warehouse=warehouse.root) as running,
        ThreadPoolExecutor(1) as pool,
    ):
        clients = RealClients(version, tmp_path, running.address)
        sending = pool.submit(clients.produce, PLANS, linger=60, jvm=["-Dtrace=true"])
        follow(warehouse, running.address, [sending])
        assert traces(pages) > 0
        assert "refused" not in running.log.read_text()
    assert sum(delivered(warehouse, "orders").values()) == 20


@pytest.mark.parametrize("taken", [True, False])
def test_a_go_producer_with_message_trace(
    warehouse: KernelWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    """Where traces are not taken, clients are told to send none."""
    monkeypatch.setenv("ROCKETMQ_TRACE", "on")
    pages = f"127.0.0.1:{free()}"
    given = [*options(), "--metrics", pages, "--set", f"gateway.traces={taken}".lower()]
    plans = ["C"] * 15 + ["UC"] * 5
    with (
        gateway(tmp_path / "gateway", *given, warehouse=warehouse.root) as running,
        sender("go", tmp_path / "go", "orders", running.address, plans) as go,
        ThreadPoolExecutor(1) as pool,
    ):
        follow(warehouse, running.address, [pool.submit(go.wait_for, len(plans))])
        go.end()
        assert (traces(pages) > 0) == taken
        assert "refused" not in running.log.read_text()
    assert sum(delivered(warehouse, "orders").values()) == 20


def traces(pages: str) -> float:
    """How many batches of traces the gateway has taken."""
    (found,) = re.findall(r"^halfop_gateway_traces_total (\S+)$", page(pages, "metrics"), re.MULTILINE)
    return float(found)
