"""RocketMQ's own mqadmin against a gateway: what an operator types, and what is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from halfop.gateway.log.log import StoreForm
from halfop.gateway.producer import Producer
from halfop.rocketmq.message import host_bytes, message_id
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.rocketmq.wire.remoting import Credentials
from support.gateway.clients import nothing
from support.gateway.gateway_log import QUEUES, Waiting, uniq
from support.gateway.gateways import NAME, RunningGateway, gateway

from systems.broker.real_broker import Plan, RealClients, Truth
from systems.broker.tools import MqAdmin

pytestmark = pytest.mark.broker
FILE_SIZE = 128 << 10
REMOVED, KEPT = 600, 1


@dataclass
class Operated:
    """A gateway whose log has lost its first files, which had landed; a message of each fate; and mqadmin."""

    running: RunningGateway
    truths: dict[str, Truth]
    mqadmin: MqAdmin

    def id_at(self, place: int) -> str:
        host, _, number = self.running.address.rpartition(":")
        return message_id(host_bytes(host, int(number)), place)


@pytest.fixture(scope="module")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    folder = tmp_path_factory.mktemp("operated")
    removed_from(folder / "store")
    options = ["--set", f"gateway.file_size={FILE_SIZE}", "--set", "gateway.max_body=65536"]
    with gateway(folder, *options) as running:
        truths = RealClients(5, folder, running.address).produce([Plan("orders", each) for each in "CRU"])
        with Producer(running.address, "payers", nothing):
            yield Operated(running, {each.plan: each for each in truths}, MqAdmin(folder, running.address))


def removed_from(store: Path) -> None:
    """Makes a store of which files were removed after they had landed."""
    store.parent.mkdir(exist_ok=True)
    kept = Waiting(store, NAME, StoreForm(FILE_SIZE))
    for half in kept.halves(range(REMOVED)):
        kept.end(half, "COMMIT")
    queues = [(HALF_TOPIC, 0), (OP_TOPIC, 0), *(("orders", n) for n in range(QUEUES))]
    kept.log.expire({queue: kept.log.offsets(*queue).next for queue in queues}, 0)
    assert kept.log.record(0) is None
    kept.close()


def test_topics_and_their_offsets(operated: Operated) -> None:
    assert set(operated.mqadmin("topicList").split()) == {HALF_TOPIC, OP_TOPIC, "orders"}
    for topic, ends in ((HALF_TOPIC, REMOVED + 3), (OP_TOPIC, REMOVED + 2), ("orders", REMOVED + 1)):
        rows = [line.split() for line in operated.mqadmin("topicStatus", "-t", topic).splitlines()]
        queues = [row for row in rows if row and row[0] == NAME]
        assert sum(int(row[3]) for row in queues) == ends
        assert all(int(row[2]) > 0 for row in queues), "files were removed"
    assert "CODE: 17  DESC: topic[nobody] not exist" in operated.mqadmin("topicStatus", "-t", "nobody")


def test_producers_and_rates(operated: Operated) -> None:
    shown = operated.mqadmin("producerConnection", "-g", "payers", "-t", "orders")
    assert re.search(r"0001 .* 127\.0\.0\.1:\d+ +JAVA +V\d", shown)
    assert "the producer group[nobody] not exist" in operated.mqadmin(
        "producerConnection", "-g", "nobody", "-t", "orders"
    )
    status = operated.mqadmin("brokerStatus", "-b", operated.running.address)
    found = re.search(r"^putTps +: [\d.]+ [\d.]+ ([\d.]+)$", status, re.MULTILINE)
    assert found
    assert float(found[1]) > 0
    assert re.search(rf"halfop +{NAME} +0 +{operated.running.address} +halfop gateway", operated.mqadmin("clusterList"))
    assert f"brokerName = {NAME}" in re.sub(
        " +", " ", operated.mqadmin("getBrokerConfig", "-b", operated.running.address)
    )


@pytest.mark.parametrize(("plan", "flag", "outcome"), [("C", 8, None), ("R", 12, "ROLLBACK"), ("U", 4, "OPEN")])
def test_a_message_by_its_unique_key(operated: Operated, plan: str, flag: int, outcome: str | None) -> None:
    shown = operated.mqadmin("queryMsgByUniqueKey", "-t", "orders", "-i", operated.truths[plan].uniq)
    assert re.search(r"^Topic: +orders$", shown, re.MULTILINE)
    assert re.search(rf"^System Flag: +{flag}$", shown, re.MULTILINE)
    assert (f"END_OUTCOME={outcome}" in shown) is (outcome is not None)
    assert "Exception" not in shown


def test_messages_by_key_and_by_id(operated: Operated) -> None:
    ids = operated.mqadmin("queryMsgByKey", "-t", "orders", "-k", "key")
    assert all(truth.uniq in ids for truth in operated.truths.values())
    place = re.search(r"CommitLog Offset: +(\d+)", by_unique_key(operated, operated.truths["U"].uniq))
    assert place
    shown = operated.mqadmin("queryMsgById", "-t", "orders", "-i", operated.id_at(int(place[1])))
    assert f"UNIQ_KEY={operated.truths['U'].uniq}" in shown
    assert f"UNIQ_KEY={uniq(REMOVED - 1)}" in by_unique_key(operated, uniq(REMOVED - 1))
    half = "-t", HALF_TOPIC, "-b", NAME, "-i", "0", "-o", str(operated.truths["U"].half_offset)
    assert f"UNIQ_KEY={operated.truths['U'].uniq}" in operated.mqadmin("queryMsgByOffset", *half)


def by_unique_key(operated: Operated, key: str) -> str:
    return operated.mqadmin("queryMsgByUniqueKey", "-t", "orders", "-i", key)


def test_what_was_removed_is_not_merely_no_message(operated: Operated) -> None:
    assert f"it has landed: ask `explain {uniq(1)}`" in by_unique_key(operated, uniq(1))
    assert "it has landed: ask half_messages" in operated.mqadmin("queryMsgByKey", "-t", "orders", "-k", "k1")
    first = operated.id_at(0)
    assert f"it has landed: ask `explain {first}`" in operated.mqadmin("queryMsgById", "-t", "orders", "-i", first)


def test_consumers_are_sent_to_the_tables(operated: Operated) -> None:
    assert "a gateway has no consumers" in operated.mqadmin("consumerProgress", "-g", "readers")
    assert "Exception" not in operated.mqadmin("consumerProgress")


ACCOUNTS = """
#UserName         #Password               #UserType               #UserStatus
owner             secret-of-owner         Super                   enable
reader            secret-of-reader        Normal                  enable
#Subject          #PolicyType  #Resource               #Actions              #SourceIp                 #Decision
User:reader       Custom      Topic:orders            [Sub]                 null                      Allow
"""


def test_an_operator_with_a_key_sees_what_it_may(tmp_path: Path) -> None:
    """Tools newer than 4.9.3 sign a field of a search, too."""
    (tmp_path / "accounts").write_text(ACCOUNTS)
    owner, reader = (Credentials(name, f"secret-of-{name}") for name in ("owner", "reader"))
    with gateway(tmp_path / "gateway", "--set", f"gateway.acl_file={tmp_path}/accounts") as running:
        mqadmin = MqAdmin(tmp_path, running.address)
        with Producer(running.address, "payers", nothing, owner) as producer:
            sent = producer.send("orders", b"x")
        assert "no account of this gateway has signed the request" in mqadmin("topicList")
        mqadmin.signs(reader)
        found = mqadmin("queryMsgByUniqueKey", "-t", "orders", "-i", sent.transaction_id)
        assert "END_OUTCOME=OPEN" in found
        where = "-b", running.address
        assert "only an admin is shown an account" in mqadmin("getUser", *where, "-u", "owner")
        mqadmin.signs(owner)
        user, acl = mqadmin("getUser", *where, "-u", "reader"), mqadmin("getAcl", *where, "-s", "User:reader")
    assert re.search(r"^reader +secret-of-reader +Normal +enable", user, re.MULTILINE)
    assert re.search(r"^User:reader +Custom +TOPIC:orders +\[SUB\] ", acl, re.MULTILINE)
