"""Clients other than Java's remoting one: by gRPC, with Apache's own proxy before a gateway, and Go's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from halfop.rocketmq.wire.remoting import Credentials, RemotingSettings
from halfop.warehouse.kernel import KernelWarehouse
from support.gateway.gateways import gateway

from systems.broker.followed import OPEN, asked, cycle, follow, options
from systems.broker.other_clients import Sender, proxy, sender
from systems.broker.real_broker import broker

pytestmark = pytest.mark.broker
MIXED = (["C"] * 12 + ["R"] * 4 + ["UC"] * 2 + ["UR", "UUC"]) * 25
CHECK_MAX = 3  # rules.transaction_check_max


def halves(warehouse: KernelWarehouse, topic: str) -> Counter[str]:
    rows = warehouse.read("half_messages").where(f"real_topic = '{topic}'").select("keys").collect()
    return Counter(row[0] for row in rows)


def delivered_keys(warehouse: KernelWarehouse, topic: str) -> Counter[str]:
    return Counter(row[0] for row in warehouse.read(f"topics/{topic}").select("keys").collect())


def check_all_as_meant(warehouse: KernelWarehouse, topic: str, producer: Sender, plans: Sequence[str] = MIXED) -> None:
    """Each half message has the fate that its producer means; a send that the producer believes lost is rolled back."""
    tries, stored = {each.key: each for each in producer.tries()}, halves(warehouse, topic)
    assert sum(each.sent for each in tries.values()) == len(plans)
    assert {key for key, each in tries.items() if each.sent} <= stored.keys() <= tries.keys()
    meant = {key: number for key, number in stored.items() if tries[key].sent and tries[key].plan.endswith("C")}
    assert delivered_keys(warehouse, topic) == meant


@pytest.mark.timeout(900)
def test_transactions_by_grpc_end_as_their_producers_mean(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """The proxy is killed, and started again, while both send.

    Python's client 5.1.2 hears no questions for minutes after that: it looks after its stream every 300 s. So its
    process is started again, too.
    """
    with (
        gateway(tmp_path / "gateway", *options(), warehouse=warehouse.root) as running,
        proxy(tmp_path / "proxy", running.address) as front,
        sender("java", tmp_path / "java", "by-java", front.endpoints, MIXED) as java,
        sender("python", tmp_path / "python", "by-python", front.endpoints, MIXED) as python,
        ThreadPoolExecutor(2) as pool,
    ):
        for each in (java, python):
            each.wait_for(100)
        front.kill()
        front.start()
        sending = [pool.submit(each.wait_for, len(MIXED)) for each in (java, python)]
        python.wait_for(len(MIXED))
        python.restart()
        follow(warehouse, running.address, sending, 300)
        for each in (java, python):
            each.end()
        assert running.stop() == 0
    check_all_as_meant(warehouse, "by-java", java)
    check_all_as_meant(warehouse, "by-python", python)
    assert warehouse.read("trans_check_max_time").count() == 0


def test_a_message_whose_producers_are_all_away_behind_a_proxy_is_not_discarded(
    warehouse: KernelWarehouse, tmp_path: Path
) -> None:
    with (
        gateway(tmp_path / "gateway", *options(), warehouse=warehouse.root) as running,
        proxy(tmp_path / "proxy", running.address) as front,
    ):
        with sender("java", tmp_path / "java", "orders", front.endpoints, ["UC"] * 5) as java:
            java.wait_for(5)
        taken_by_nobody = Counter[int]()
        while len(taken_by_nobody) < 5 or min(taken_by_nobody.values()) <= CHECK_MAX:
            decided = cycle(warehouse, running.address, OPEN)
            assert decided["CHECK"] + decided["WAIT"] == 5
            taken_by_nobody = asked(warehouse, "FAILED")
        assert asked(warehouse) == Counter()
        with (
            sender("java", tmp_path / "again", "orders", front.endpoints) as again,
            ThreadPoolExecutor(1) as pool,
        ):
            follow(warehouse, running.address, [pool.submit(again.wait_for, 0)])
    assert delivered_keys(warehouse, "orders") == Counter(f"java-{n}" for n in range(5))


def test_transactions_by_go_end_as_their_producer_means(
    warehouse: KernelWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It signs what it sends; its bodies are no ASCII, and every third is compressed."""
    (tmp_path / "accounts.txt").write_text(ACCOUNTS)
    given, plans = [*options(), "--set", f"gateway.acl_file={tmp_path}/accounts.txt"], MIXED[:200]
    with gateway(tmp_path / "gateway", *given, warehouse=warehouse.root) as running, ThreadPoolExecutor(1) as pool:
        sign_as(monkeypatch, "sender", "wrong")
        with sender("go", tmp_path / "stranger", "by-go", running.address, ["C"]) as stranger:
            stranger.end()
        assert stranger.tries() == []
        assert "its signature does not match" in running.log.read_text()
        sign_as(monkeypatch, "sender", "secret-of-sender")
        with sender("go", tmp_path / "go", "by-go", running.address, plans) as go:
            sign_as(monkeypatch, "lander", "secret-of-lander")
            lander = RemotingSettings(credentials=Credentials.from_environment())
            follow(warehouse, running.address, [pool.submit(go.wait_for, len(plans))], remoting=lander)
            go.end()
    check_all_as_meant(warehouse, "by-go", go, plans)
    outcomes = Counter(row["outcome"] for row in warehouse.read("check_deliveries").collect())
    assert outcomes["SENT"] == outcomes["ANSWERED"] + outcomes["UNKNOWN"] == 50
    for row in warehouse.read("topics/by-go").select("keys", "body").collect():
        times = 1 if int(row["keys"].removeprefix("go-")) % 3 else 1000
        assert bytes(row["body"]).decode() == f"订单 😀 {row['keys']}" * times
    stored = [len(row["body"]) for row in warehouse.read("half_messages").select("body").collect()]
    assert max(stored) < 20_000, "they came compressed"


def test_a_gateway_killed_under_a_go_producer_loses_nothing(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    folder, plans = tmp_path / "gateway", MIXED[:300]
    with (
        gateway(folder, *options(), warehouse=warehouse.root) as first,
        sender("go", tmp_path / "go", "by-go", first.address, plans) as go,
    ):
        go.wait_for(50)
        first.kill()
        with (
            gateway(folder, *options(), warehouse=warehouse.root, listen=first.address) as second,
            ThreadPoolExecutor(1) as pool,
        ):
            follow(warehouse, second.address, [pool.submit(go.wait_for, len(plans))], 300)
            go.end()
    assert any(not each.sent for each in go.tries()), "the kill was not noticed"
    check_all_as_meant(warehouse, "by-go", go, plans)
    assert warehouse.read("trans_check_max_time").count() == 0


@pytest.mark.timeout(900)
def test_two_proxies_before_one_gateway(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """A client that is away is answered for by one of its group at the other proxy.

    Proxies tell each other of consumers alone, by DefaultHeartBeatSyncerTopic: nothing is sent there.
    """
    with (
        gateway(tmp_path / "gateway", *options(), warehouse=warehouse.root) as running,
        proxy(tmp_path / "one", running.address) as one,
        proxy(tmp_path / "two", running.address) as two,
        sender("node", tmp_path / "node", "by-node", one.endpoints, MIXED) as node,
        sender("python", tmp_path / "python", "by-python", two.endpoints, MIXED[:100]) as python,
        sender("java", tmp_path / "java", "by-java", one.endpoints, ["UC"] * 20) as java,
        ThreadPoolExecutor(2) as pool,
    ):
        java.wait_for(20)
        java.kill()
        with sender("java", tmp_path / "again", "by-java", two.endpoints):
            sending = [pool.submit(node.wait_for, len(MIXED)), pool.submit(python.wait_for, 100)]
            follow(warehouse, running.address, sending, 300)
        for each in (node, python):
            each.end()
        assert "refused" not in running.log.read_text()
    check_all_as_meant(warehouse, "by-node", node)
    check_all_as_meant(warehouse, "by-python", python, MIXED[:100])
    check_all_as_meant(warehouse, "by-java", java, ["UC"] * 20)
    assert warehouse.read("trans_check_max_time").count() == 0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("cluster", ["halfop", "theirs"])
def test_a_proxy_beside_real_name_servers(warehouse: KernelWarehouse, tmp_path: Path, cluster: str) -> None:
    """It needs DefaultHeartBeatSyncerTopic in its cluster, and creates it at a broker, if one is there."""
    topics = "by-java" if cluster == "halfop" else "by-java,DefaultHeartBeatSyncerTopic"
    plans = MIXED[:40]
    with broker("proxy", tmp_path / "broker", {"brokerClusterName": cluster}) as other:
        given = ("--namesrv", other.namesrv, "--topics", topics, *options())
        with (
            gateway(tmp_path / "gateway", *given, warehouse=warehouse.root) as running,
            proxy(tmp_path / "proxy", other.namesrv) as front,
            sender("java", tmp_path / "java", "by-java", front.endpoints, plans) as java,
            ThreadPoolExecutor(1) as pool,
        ):
            follow(warehouse, running.address, [pool.submit(java.wait_for, len(plans))], 300)
            java.end()
    check_all_as_meant(warehouse, "by-java", java, plans)


ACCOUNTS = """
#UserName         #Password               #UserType               #UserStatus
proxy             secret-of-proxy         Super                   enable
sender            secret-of-sender        Normal                  enable
lander            secret-of-lander        Normal                  enable
#Subject          #PolicyType  #Resource               #Actions              #SourceIp                 #Decision
User:sender       Custom      Topic:by-*              [Pub]                 [127.0.0.0/8]             Allow
User:sender       Custom      Topic:by-nobody         [Pub]                 null                      Deny
User:lander       Custom      Topic:*                 [Sub, Get]            null                      Allow
User:lander       Custom      Group:TOOLS_CONSUMER    [Sub]                 null                      Allow
"""
# a proxy that lets its clients do what their accounts may, which it asks the gateway for
AUTH = "org.apache.rocketmq.auth"
CHECKS = {
    "enableAclRpcHookForClusterMode": True,
    "innerClientAuthenticationCredentials": '{"accessKey":"proxy","secretKey":"secret-of-proxy"}',
    "authenticationEnabled": True,
    "authenticationProvider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthenticationMetadataProvider",
    "authorizationEnabled": True,
    "authorizationProvider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthorizationMetadataProvider",
}


@pytest.mark.timeout(900)
def test_accounts_through_two_proxies(
    warehouse: KernelWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them, Node's and Java's, is killed and started again while all send."""
    (tmp_path / "accounts.txt").write_text(ACCOUNTS)
    given = [*options(), "--set", f"gateway.acl_file={tmp_path}/accounts.txt"]
    with (
        gateway(tmp_path / "gateway", *given, warehouse=warehouse.root) as running,
        proxy(tmp_path / "one", running.address, **CHECKS) as one,
        proxy(tmp_path / "two", running.address, **CHECKS) as two,
        ExitStack() as opened,
        ThreadPoolExecutor(3) as pool,
    ):

        def started(name: str, language: str, topic: str, *sent: str) -> Sender:
            endpoints = (two if language == "python" else one).endpoints
            return opened.enter_context(sender(language, tmp_path / name, topic, endpoints, sent))

        sign_as(monkeypatch, "sender", "wrong")
        stranger = started("stranger", "java", "by-java", "C")
        sign_as(monkeypatch, "sender", "secret-of-sender")
        outside = started("outside", "java", "by-nobody", "C")
        senders = {each: started(each, each, f"by-{each}", *MIXED) for each in ("java", "python", "node")}
        for each in senders.values():
            each.wait_for(50)
        one.kill()
        one.start()
        sign_as(monkeypatch, "lander", "secret-of-lander")  # a landing's tasks take their key from there
        lander = RemotingSettings(credentials=Credentials.from_environment())
        sending = [pool.submit(each.wait_for, len(MIXED)) for each in senders.values()]
        follow(warehouse, running.address, sending, 400, lander)
        for each in senders.values():
            each.end()
        for refused, why in ((stranger, "check signature failed"), (outside, "has no permission")):
            assert (refused.tries(), why in refused.said()) == ([], True)
    for language, each in senders.items():
        check_all_as_meant(warehouse, f"by-{language}", each)


def sign_as(monkeypatch: pytest.MonkeyPatch, key: str, secret: str) -> None:
    """Gives what is started from now on these keys."""
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", key)
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", secret)
