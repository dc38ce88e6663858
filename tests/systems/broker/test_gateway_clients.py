"""Real producers of several versions against a gateway, in the closed loop of landing, rules and questions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from halfop.gateway.producer import Answer, Producer, Question
from halfop.rocketmq.frames import read_json
from halfop.rocketmq.requests import GetRouteinfo
from halfop.rocketmq.wire.name_servers import NameServers
from halfop.rocketmq.wire.remote import Remote
from halfop.rocketmq.wire.remoting import Credentials, RemotingSettings, Tls
from halfop.warehouse.kernel import KernelWarehouse
from support.brokers.dropping import dropping
from support.gateway.gateways import NAME, gateway
from support.places import DATA

from systems.broker.followed import asked, delivered, follow, options
from systems.broker.real_broker import Plan, RealClients, broker

pytestmark = pytest.mark.broker
TLS = DATA / "tls"
ACCOUNTS = """
accounts:
  - {accessKey: sender, secretKey: secret-of-sender, topicPerms: [orders=PUB]}
  - {accessKey: lander, secretKey: secret-of-lander, defaultTopicPerm: SUB}
"""
ONE_PORT = "-Dcom.rocketmq.sendMessageWithVIPChannel=false"  # else clients before 4.5.1 send to the port - 2
TLS_OF_CLIENTS = f"""tls.test.mode.enable=false
tls.client.authServer=true
tls.client.certPath={TLS}/client.pem
tls.client.keyPath={TLS}/client.key
tls.client.trustCertPath={TLS}/ca.pem
"""


@pytest.mark.parametrize("version", [4.3, 4, 5, "proxy"])
def test_transactions_end_as_their_producer_says(
    warehouse: KernelWarehouse, tmp_path: Path, version: float | str
) -> None:
    plans = [Plan("orders", answers) for answers in ("C", "R", "UC", "UR", "UUC") * 12]
    plans += [Plan("orders", "C", body=8192), Plan("orders", "UC", body=8192)]
    with (
        gateway(tmp_path / "gateway", *options(), warehouse=warehouse.root) as running,
        ThreadPoolExecutor(1) as pool,
    ):
        clients = RealClients(version, tmp_path, running.address, [ONE_PORT])
        sending = pool.submit(clients.produce, plans, linger=60)
        follow(warehouse, running.address, [sending])
        truths = sending.result()
        assert running.stop() == 0
    assert len(truths) == len(plans)
    committed = {truth.uniq for truth in truths if truth.answers.endswith("C")}
    assert len(committed) == 38
    assert delivered(warehouse, "orders") == Counter(committed)
    outcomes = Counter(row["outcome"] for row in warehouse.read("check_deliveries").collect())
    assert outcomes["SENT"] == outcomes["ANSWERED"] + outcomes["UNKNOWN"]
    assert outcomes["ANSWERED"] == 37


@pytest.mark.parametrize("version", [4, 5])
def test_real_clients_sign_all_and_speak_tls(
    warehouse: KernelWarehouse, tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "lander")  # a landing's tasks take their key from there
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "secret-of-lander")
    (tmp_path / "accounts.yml").write_text(ACCOUNTS)
    (tmp_path / "tls.properties").write_text(TLS_OF_CLIENTS)
    secured = {"certificate": "server.pem", "key": "server.key", "client_ca": "ca.pem"}
    given = [*options(), "--set", f"gateway.acl_file={tmp_path}/accounts.yml"]
    given += [part for name, file in secured.items() for part in ("--set", f"gateway.{name}={TLS}/{file}")]
    key = ("-DaccessKey=sender", "-DsecretKey=secret-of-sender")
    ours = Tls(f"{TLS}/ca.pem", f"{TLS}/client.pem", f"{TLS}/client.key", check_hostname=False)
    lander = RemotingSettings(credentials=Credentials.from_environment(), tls=ours)
    plans = [Plan("orders", answers) for answers in ("C", "R", "UC", "UR") * 5]
    with (
        gateway(tmp_path / "gateway", *given, warehouse=warehouse.root) as running,
        ThreadPoolExecutor(1) as pool,
    ):
        clients = RealClients(version, tmp_path, running.address, [f"-Dtls.config.file={tmp_path}/tls.properties"])
        sending = pool.submit(clients.produce, plans, linger=60, jvm=("-Dtls=true", *key))
        follow(warehouse, running.address, [sending], remoting=lander)
        committed = {truth.uniq for truth in sending.result() if truth.answers.endswith("C")}
        with pytest.raises(RuntimeError, match="no PUB on topic stock"):
            clients.produce([Plan("stock")], jvm=("-Dtls=true", *key))
    assert len(committed) == 10
    assert delivered(warehouse, "orders") == Counter(committed)


@pytest.mark.parametrize("version", [4, 5])
def test_real_name_servers_know_it_and_its_topics(tmp_path: Path, version: int) -> None:
    with broker(version, tmp_path / "broker") as other:
        given = ("--namesrv", other.namesrv, "--topics", "mine,too", "--set", "gateway.register_every=100ms")
        with gateway(tmp_path / "gateway", *given) as running:
            with closing(NameServers(other.namesrv, RemotingSettings())) as servers:
                until(lambda: (NAME, running.address) in {(each.name, each.address) for each in servers.brokers()})
            remote = Remote(other.namesrv, RemotingSettings())
            with closing(remote):
                found = remote.ask(GetRouteinfo("mine"))
            (queues,) = read_json(found.body)["queueDatas"]
            assert (queues["brokerName"], queues["writeQueueNums"], queues["perm"]) == (NAME, 4, 6)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end


def test_a_send_that_a_client_repeats_is_a_transaction_of_its_own(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    """As at a broker. Each fifth answer is lost: the client repeats the send, and is asked about the first one.

    4.9's client does not notice that its connection ended: it waits for its whole timeout, and repeats nothing.
    """
    plans = [Plan("orders", answers) for answers in ("C", "R", "C", "R") * 5]
    with dropping(5) as way, ThreadPoolExecutor(1) as pool:
        given = [*options(), "--set", f"gateway.advertise={way.address}"]
        with gateway(tmp_path / "gateway", *given, warehouse=warehouse.root, listen=way.leads_to):
            sending = pool.submit(RealClients(5, tmp_path, way.address).produce, plans, threads=1)
            truths = sending.result()
            rolled_back = {truth.uniq for truth in truths if truth.plan == "R"}

            def answer(question: Question) -> Answer:  # an end, which is one-way, can be lost with a connection, too
                return "ROLLBACK" if question.sent.transaction_id in rolled_back else "COMMIT"

            with Producer(way.address, "producers", answer):
                follow(warehouse, way.address, [sending])
    assert (len(truths), way.dropped) == (20, 4)
    halves = Counter(row["uniq_key"] for row in warehouse.read("half_messages").collect())
    twins = {uniq for uniq, number in halves.items() if number == 2}
    assert (sum(halves.values()), len(twins)) == (24, 4)
    assert set(halves) == {truth.uniq for truth in truths}
    # the first of two was never ended by the client, so it was asked about
    committed = Counter(truth.uniq for truth in truths if truth.plan == "C") + Counter(twins)
    assert delivered(warehouse, "orders") == committed


def mixed(topic: str) -> list[Plan]:
    """A thousand transactions: committed, rolled back, answered after some questions, and never."""
    answers = ["C"] * 600 + ["R"] * 200 + ["UC"] * 60 + ["UR"] * 60 + ["UUC"] * 40 + ["UUUU"] * 40
    return [Plan(topic, each, body=8192 if n % 10 == 0 else 100) for n, each in enumerate(answers)]


def test_two_thousand_mixed_transactions_of_both_versions(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    with (
        gateway(tmp_path / "gateway", *options(), warehouse=warehouse.root) as running,
        ThreadPoolExecutor(3) as pool,
    ):
        four, five, dying = (folder(tmp_path, version, running.address) for version in (4, 5, 5))
        sending = [
            pool.submit(each.produce, mixed(topic), linger=100, group=topic)
            for each, topic in ((four, "four"), (five, "five"))
        ]
        # it dies without a goodbye; another of its group answers
        assert len(dying.produce([Plan("dying", "UC")] * 20, halt=True, group="dying")) == 20
        sending.append(pool.submit(dying.produce, [], expect=20, linger=100, group="dying"))
        follow(warehouse, running.address, sending, 200)
        truths = [truth for each in sending for truth in each.result()]
    assert len(truths) == 2020
    committed = {t.uniq for t in truths if t.answers.endswith("C")}
    assert len(committed) == 1420
    assert sum((delivered(warehouse, topic) for topic in ("four", "five", "dying")), Counter()) == Counter(committed)
    given_up = {row["uniq_key"]: row["check_times"] for row in warehouse.read("trans_check_max_time").collect()}
    silent = {t.uniq: t.half_offset for t in truths if t.plan == "UUUU"}
    assert given_up == dict.fromkeys(silent, 3)
    questions = asked(warehouse)
    assert {questions[offset] for offset in silent.values()} == {3}
    # compressed by the client, and whole again in its listener
    assert {t.asked_bytes for t in truths if t.asked_bytes >= 0} == {100, 8192}


def folder(tmp_path: Path, version: int | str, address: str) -> RealClients:
    """Clients with a folder of their own."""
    home = tmp_path / f"clients-{len(list(tmp_path.iterdir()))}"
    home.mkdir()
    return RealClients(version, home, address)
