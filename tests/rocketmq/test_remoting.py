"""The remoting client: what real brokers of both versions answer, and what no sane broker does."""

from __future__ import annotations

import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from halfop.ending.plan import ROLLBACK
from halfop.frame.errors import UsageError
from halfop.rocketmq.frames import read_json, signature
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.rocketmq.requests import GetMaxOffset
from halfop.rocketmq.wire import remote as remote_module
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.name_servers import BrokerAddress, NameServers, NoNameServer
from halfop.rocketmq.wire.remote import Remote
from halfop.rocketmq.wire.remoting import (
    ConnectionLost,
    Corrupt,
    Credentials,
    RefusedByBroker,
    RemotingSettings,
    Tls,
    TlsFailed,
    Unreachable,
)
from support.brokers.scripted import Peer, Script, answering, frame, serving
from support.ending_rows import Written, connected, delivered, end, originals, row_of
from support.places import DATA
from systems.broker.real_broker import Plan, RealBroker, broker

QUICK = RemotingSettings(connect_timeout=1, answer_timeout=0.3, give_up_after=0.6)
PATIENT = RemotingSettings(answer_timeout=5, give_up_after=20)


def asking(number: int) -> GetMaxOffset:
    return GetMaxOffset("t", number)


def asking_all(count: int) -> Iterator[GetMaxOffset]:
    return map(asking, range(count))


@pytest.fixture
def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def talking(script: Script, settings: RemotingSettings = PATIENT) -> Iterator[Remote]:
    with serving(script) as address, closing(Remote(address, settings)) as remote:
        yield remote


# ---- frames ----


def test_answers_in_any_order_reach_their_requests_in_order() -> None:
    def script(peer: Peer) -> None:
        requests = peer.requests()
        while True:
            batch = [next(requests) for _ in range(4)]
            for asked in reversed(batch):
                peer.send(frame(asked.opaque, offset=asked.fields["queueId"]))

    with talking(script, RemotingSettings(in_flight=4)) as remote:
        told = [(request.queue_id, answer.fields["offset"]) for request, answer in remote.stream(asking_all(4))]
    assert told == [(number, str(number)) for number in range(4)]


def test_no_more_requests_are_under_way_than_allowed() -> None:
    seen: list[str] = []

    def script(peer: Peer) -> None:
        requests = peer.requests()
        batch = [next(requests) for _ in range(3)]
        seen.extend(asked.fields["queueId"] for asked in batch)
        for asked in chain(batch, requests):
            peer.send(frame(asked.opaque))

    requests = asking_all(100)
    with talking(script, RemotingSettings(in_flight=3)) as remote:
        answers = remote.stream(requests)
        next(answers)
        assert seen == ["0", "1", "2"]
        assert next(requests) == asking(3)
        assert len(list(answers)) == 98


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b"HTTP/1.1 400 Bad RemotingRequest\r\nConnection: close\r\n\r\n", "frame of 1213486160 bytes"),
        (struct.pack(">II", 1 << 30, 20) + b" " * 20, "frame of 1073741824 bytes"),
        (struct.pack(">II", 10, 7) + b"{}     ", "frame of 10 bytes with a header of 7"),
        (struct.pack(">II", 24, 20 | 1 << 24) + b" " * 20, "a header that cannot be read"),  # in binary
        (struct.pack(">II", 7, 3) + b"abc", "a header that cannot be read: JSONDecodeError: b'abc'"),
        (struct.pack(">II", 14, 10) + b'{"code":0}', "a header that cannot be read"),
        (struct.pack(">II", 6, 2) + b"[]", "a header that cannot be read"),
        (struct.pack(">II", 6, 2) + b"\xff\xff", "a header that cannot be read"),
    ],
)
def test_what_is_no_frame_is_told_at_once(sent: bytes, problem: str) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(sent)
        list(peer.requests())  # until the client has closed

    with talking(script) as remote, pytest.raises(Corrupt) as raised:
        remote.ask(asking(0))
    assert problem in str(raised.value)
    assert str(raised.value).startswith(remote.address)


def test_what_nobody_asked_for_is_passed_over() -> None:
    def script(peer: Peer) -> None:
        asked = peer.request()
        peer.send(frame(7, code=40, flag=0))  # a request of the server's own
        peer.send(frame(asked.opaque, flag=0))
        peer.send(frame(asked.opaque + 1000))
        peer.send(frame(asked.opaque, body=b"yes"))

    with talking(script) as remote:
        assert remote.ask(asking(0)).body == b"yes"


# ---- losses ----


def test_a_connection_cut_within_an_answer_is_made_again() -> None:
    def script(peer: Peer) -> None:
        for asked in peer.requests():
            answer = frame(asked.opaque, body=b"whole", offset=asked.fields["queueId"])
            if peer.number < 2 and asked.fields["queueId"] == "1":
                peer.send(answer[:-3])
                return
            peer.send(answer)

    with talking(script) as remote:
        told = [(answer.fields["offset"], answer.body) for _, answer in remote.stream(asking_all(5))]
    assert told == [(str(number), b"whole") for number in range(5)]


def slow(peer: Peer) -> None:
    list(peer.requests())


def trickling(peer: Peer) -> None:
    for byte in frame(peer.request().opaque):
        peer.send(bytes([byte]))
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.parametrize("script", [slow, trickling])
def test_no_answer_in_time_ends(script: Script) -> None:
    before = time.monotonic()
    with talking(script, QUICK) as remote:
        with pytest.raises(Unreachable, match=rf"{remote.address}: timed out \(GET_MAX_OFFSET\); gave up after 0.6 s"):
            remote.ask(asking(0))
        assert time.monotonic() - before < 2


@pytest.mark.long
def test_a_closed_port_ends(closed_port: str) -> None:
    with pytest.raises(Unreachable, match=f"{closed_port}: .*refused"):
        Remote(closed_port, QUICK).ask(asking(0))


@pytest.mark.long
def test_a_long_wait_is_said_once(
    closed_port: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a wrong address `follow` stood silent for a minute."""
    servers = NameServers(closed_port, QUICK)
    with pytest.raises(Unreachable):
        servers.brokers()
    assert not caplog.records, "a hiccup"
    monkeypatch.setattr(remote_module, "_SAID_FROM", 0.1)
    with pytest.raises(Unreachable):
        servers.brokers()
    (said,) = caplog.messages
    assert re.fullmatch(rf"{closed_port}: .*refused.*; trying again for up to [01] s", said)


@pytest.mark.long
def test_a_busy_server_is_asked_again() -> None:
    codes = chain([2, 14, 215, 0], repeat(2))
    with talking(answering(lambda asked: {"code": next(codes), "remark": "system busy"}), QUICK) as remote:
        assert remote.ask(asking(0)).code == 0
        with pytest.raises(Unreachable, match="code 2: system busy; gave up"):
            remote.ask(asking(0))


def test_a_broker_that_cannot_describe_itself_yet_is_asked_again() -> None:
    """4.9.7 answers so in its first seconds."""
    failing = {
        "code": 1,
        "remark": "java.util.NoSuchElementException, java.util.LinkedList.getFirst",
    }
    table = b'{"table":{"bootTimestamp":"1750000000000","runtime":"[ 0 days, 0 hours, 0 minutes, 1 seconds ]"}}'
    answers: Iterator[Mapping[str, Any]] = chain([failing, failing], repeat({"body": table}))
    with serving(answering(lambda asked: next(answers))) as address, closing(Broker(address, QUICK)) as asked:
        assert asked.clock().shown == 1_750_000_001_000_000


def test_a_refusal_tells_who_what_and_why() -> None:
    script = answering(lambda asked: {"code": 26, "remark": "no such group"})
    with talking(script) as remote, pytest.raises(RefusedByBroker) as raised:
        remote.ask(asking(3))
    expected = f"{remote.address} answered GET_MAX_OFFSET (topic t, queueId 3) with code 26: no such group"
    assert (str(raised.value), raised.value.code) == (expected, 26)


# ---- name servers ----


CLUSTER = (
    b'{"brokerAddrTable":{"b":{"brokerAddrs":{1:"10.0.0.2:10911",2:"10.0.0.3:10911"},"brokerName":"b","cluster":"c"}}}'
)


def test_name_servers_are_tried_in_turn(closed_port: str) -> None:
    with (
        serving(slow) as silent,
        serving(answering(lambda asked: CLUSTER)) as good,
        closing(NameServers(f"{closed_port};{silent};{good}", QUICK)) as servers,
    ):
        # the group has no master now
        assert servers.brokers() == [BrokerAddress("b", "c", "10.0.0.2:10911", is_master=False)]


def test_a_name_server_that_answers_wrongly_hides_no_other(closed_port: str) -> None:
    def garbage(peer: Peer) -> None:
        for _ in peer.requests():
            peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with (
        serving(answering(lambda asked: b"[]")) as unsound,
        serving(answering(lambda asked: {"code": 1, "remark": "no rights"})) as refusing,
        serving(garbage) as another,
        serving(answering(lambda asked: CLUSTER)) as good,
    ):
        bad = f"{unsound};{refusing};{another}"
        with closing(NameServers(f"{bad};{good}", QUICK)) as servers:
            assert [each.name for each in servers.brokers()] == ["b"]
        with closing(NameServers(bad, QUICK)) as servers, pytest.raises(NoNameServer) as failed:
            servers.brokers()
        assert not failed.value.transient
        with closing(NameServers(f"{bad};{closed_port}", QUICK)) as servers, pytest.raises(Unreachable) as lost:
            servers.brokers()
    for said in (str(failed.value), str(lost.value)):
        assert f"{unsound}: sent a body without a sound brokerAddrTable" in said
        assert f"{refusing} answered GET_BROKER_CLUSTER_INFO with code 1: no rights" in said
        assert f"{another}: " in said
    assert f"{closed_port}: " in str(lost.value)


@pytest.mark.long
def test_no_name_server_ends(closed_port: str) -> None:
    with pytest.raises(Unreachable, match="refused"):
        NameServers(f"{closed_port};{closed_port}", QUICK).brokers()


NO_ADDRESSES = ["", ";", "localhost", "localhost:", ":9876", "localhost:x", "a:1;b", "localhost:99876", "localhost:0"]
NO_ADDRESSES += ["a..b:9876", f"{'x' * 64}:9876", f"localhost:{'9' * 5000}"]  # idna and int() raise for these


@pytest.mark.parametrize("addresses", NO_ADDRESSES)
def test_what_is_no_address_is_refused(addresses: str) -> None:
    with pytest.raises(UsageError, match="expected host:port") as refused:
        NameServers(addresses, QUICK)
    assert repr(addresses.rpartition(";")[2] or addresses) in str(refused.value)


NO_BROKERS = [
    b'{"brokerAddrTable":[]}',
    b'{"brokerAddrTable":{"b":{"brokerAddrs":{},"cluster":"c"}}}',
    b'{"brokerAddrTable":{"b":{"brokerAddrs":{"x":"h:1"},"cluster":"c"}}}',
    b'{"brokerAddrTable":{"b":[]}}',
    b"[" * 200_000,
]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'{"other":1}', b"\xff", *NO_BROKERS])
def test_a_body_that_is_none(body: bytes) -> None:
    with (
        serving(answering(lambda asked: body)) as address,
        closing(NameServers(address, PATIENT)) as servers,
        pytest.raises(Corrupt, match="body without a sound brokerAddrTable"),
    ):
        servers.brokers()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{0:"h:1"}}', {"a": {"0": "h:1"}}),
        ('{"a":{0:"h:1" , -12 : 2}}', {"a": {"0": "h:1", "-12": 2}}),
        (r'{"{1:":"x,2:\"{3:",4:[5,6]}', {"{1:": 'x,2:"{3:', "4": [5, 6]}),
        ('{"a":[{0:1},{1:2}]}', {"a": [{"0": 1}, {"1": 2}]}),
        ('{"plain":true}', {"plain": True}),
    ],
)
def test_fastjson(text: str, value: object) -> None:
    assert read_json(text.encode()) == value


# ---- requests that change something ----


def test_what_changes_something_is_sent_once() -> None:
    seen: list[str] = []

    def script(peer: Peer) -> None:
        for asked in peer.requests():
            seen.append(asked.fields["queueId"])
            if len(seen) == 3:
                return
            peer.send(frame(asked.opaque, 2))

    with talking(script, RemotingSettings(in_flight=2)) as remote:
        told = [
            ConnectionLost if isinstance(answer, ConnectionLost) else answer.code
            for _, answer in remote.stream_once(asking_all(9))
        ]
        assert told == [2, 2, ConnectionLost, ConnectionLost], (
            "busy is an answer, and two were under way; the others were not sent"
        )
        assert seen == ["0", "1", "2"]


def test_without_a_connection_nothing_is_sent(closed_port: str) -> None:
    assert list(Remote(closed_port, QUICK).stream_once(asking_all(2))) == []


# ---- who asks ----


def test_the_signature_is_that_of_rocketmqs_own_test() -> None:
    # AclSignerTest signs "RocketMQ" with 12345678; here that is made of values in the order of their names, and a body.
    signed = Credentials("Rocket", "12345678").signed({"Z": "M", "a": ""}, b"Q")
    assert signed == {"Z": "M", "a": "", "AccessKey": "Rocket", "Signature": "IUc8rrO/0gDch8CjObLQsW2rsiA="}
    with_token = Credentials("R", "12345678", "etM").signed({"A": "", "B": "ock"}, b"Q")
    assert (with_token["SecurityToken"], with_token["Signature"]) == ("etM", signed["Signature"])


def test_the_mark_of_a_query_by_unique_key_is_signed_by_newer_clients_alone() -> None:
    marked = Credentials("R", "12345678").signed({"key": "k", "_UNIQUE_KEY_QUERY": "true"})
    plain = Credentials("R", "12345678").signed({"key": "k"})
    assert marked == {**plain, "_UNIQUE_KEY_QUERY": "true"}
    signed = [signature(b"12345678", {"key": "k", "_UNIQUE_KEY_QUERY": "true"}, b"", version) for version in (399, 400)]
    assert signed == [signature(b"12345678", {"key": key}, b"", 400) for key in ("k", "truek")]


def test_credentials_from_the_environment() -> None:
    full = {"ROCKETMQ_ACCESS_KEY": "a", "ROCKETMQ_SECRET_KEY": "s", "ROCKETMQ_SECURITY_TOKEN": "t"}
    credentials = Credentials.from_environment(full)
    assert credentials == Credentials("a", "s", "t")
    assert "s'" not in repr(credentials)
    assert Credentials.from_environment({}) is None
    with pytest.raises(UsageError, match="only one of"):
        Credentials.from_environment({"ROCKETMQ_ACCESS_KEY": "a"})


def test_tls_files_that_cannot_be_used(tmp_path: Path) -> None:
    for tls in (Tls(ca_file=str(tmp_path / "none")), Tls(certificate=str(TLS / "ca.pem"), key=str(TLS / "client.key"))):
        with pytest.raises(UsageError, match="cannot use the TLS files"):
            Remote("h:1", RemotingSettings(tls=tls))


# ---- real ones ----


@pytest.fixture(params=["broker4", "broker5"])
def real(request: pytest.FixtureRequest) -> RealBroker:
    found: RealBroker = request.getfixturevalue(request.param)
    return found


@pytest.mark.broker
def test_what_a_real_cluster_tells_of_itself(real: RealBroker) -> None:
    topic = f"told-{time.time_ns()}"
    real.produce([Plan(topic), Plan(topic, "R")])
    with closing(NameServers(real.namesrv, PATIENT)) as servers, closing(Broker(real.address, PATIENT)) as asked:
        assert servers.brokers() == [BrokerAddress("broker-a", "DefaultCluster", real.address, is_master=True)]
        topics = asked.topics()
        assert topics[topic] == 4
        assert topics.get(HALF_TOPIC, 1) == 1, "4.9 enters it in its table at its first check"
        assert (OP_TOPIC in topics) == (real.version == 5)
        assert asked.min_offset(HALF_TOPIC, 0) == 0
        assert asked.max_offset(HALF_TOPIC, 0) >= 2
        assert sum(asked.max_offset(topic, queue) for queue in range(4)) == 1
        assert (asked.min_offset("no-such-topic", 0), asked.max_offset("no-such-topic", 0)) == (0, 0)


TLS = DATA / "tls"
TLS_CONFIG = f"""tls.test.mode.enable=false
tls.server.need.client.auth=require
tls.server.authClient=true
tls.server.certPath={TLS}/server.pem
tls.server.keyPath={TLS}/server.key
tls.server.trustCertPath={TLS}/ca.pem
tls.client.authServer=true
tls.client.certPath={TLS}/client.pem
tls.client.keyPath={TLS}/client.key
tls.client.trustCertPath={TLS}/ca.pem
"""
OURS = Tls(str(TLS / "ca.pem"), str(TLS / "client.pem"), str(TLS / "client.key"))
KEYS = Credentials("halfop-key", "halfop-secret")
ACL = """accounts:
- accessKey: halfop-key
  secretKey: halfop-secret
  admin: true
"""
ACCOUNT = '{"username":"halfop-key","password":"halfop-secret"}'
PROVIDERS = "org.apache.rocketmq.auth.authentication.provider"
WHO: dict[int, dict[str, object]] = {
    4: {"aclEnable": True},
    5: {
        "authenticationEnabled": True,
        "authenticationProvider": f"{PROVIDERS}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{PROVIDERS}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": ACCOUNT,
        "innerClientAuthenticationCredentials": '{"accessKey":"halfop-key","secretKey":"halfop-secret"}',
    },
}


@pytest.fixture(scope="module", params=[4, 5])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    """Only with TLS, only with a client's certificate, only with a key."""
    home = tmp_path_factory.mktemp("secured")
    jvm = ["-Dtls.server.mode=enforcing", f"-Dtls.config.file={home}/conf/tls.properties"]
    files = {"conf/tls.properties": TLS_CONFIG, "conf/plain_acl.yml": ACL}
    with broker(request.param, home, WHO[request.param], jvm, files) as running:
        yield running


def max_offset(address: str, credentials: Credentials | None, tls: Tls | None, seconds: float = 10) -> int:
    settings = RemotingSettings(give_up_after=seconds, credentials=credentials, tls=tls)
    with closing(Broker(address, settings)) as asked:
        return asked.max_offset(HALF_TOPIC, 0)


@pytest.mark.broker
def test_keys_and_certificates(secured: RealBroker) -> None:
    options = ["-DaccessKey=halfop-key", "-DsecretKey=halfop-secret", "-Dtls=true"]
    truths = secured.produce([Plan("secured")] * 3, jvm=options)
    assert max_offset(secured.address, KEYS, OURS) == len(truths) == 3
    with closing(NameServers(secured.namesrv, RemotingSettings(tls=OURS))) as servers:
        assert [each.name for each in servers.brokers()] == ["broker-a"]


@pytest.mark.broker
@pytest.mark.parametrize(
    ("credentials", "why"),
    [
        (Credentials("halfop-key", "wrong"), "(?i)check signature failed"),
        (Credentials("wrong", "halfop-secret"), "wrong"),
        (None, "(?i)accesskey|username"),
    ],
)
def test_a_wrong_key_is_refused(secured: RealBroker, credentials: Credentials | None, why: str) -> None:
    with pytest.raises(RefusedByBroker, match=why):
        max_offset(secured.address, credentials, OURS)


@pytest.mark.broker
@pytest.mark.parametrize(
    ("tls", "error", "why"),
    [
        (Tls(certificate=OURS.certificate, key=OURS.key), TlsFailed, "CERTIFICATE_VERIFY_FAILED"),
        (Tls(ca_file=OURS.ca_file), TlsFailed, "(?i)bad certificate"),
        (None, Unreachable, "does it expect TLS"),
    ],
)
def test_without_the_right_certificates_nothing_is_told(
    secured: RealBroker, tls: Tls | None, error: Any, why: str
) -> None:
    with pytest.raises(error, match=why):
        max_offset(secured.address, KEYS, tls, seconds=1)


@pytest.mark.broker
def test_transactions_end_with_keys_and_certificates_alone(secured: RealBroker, tmp_path: Path) -> None:
    options = ["-DaccessKey=halfop-key", "-DsecretKey=halfop-secret", "-Dtls=true"]
    secured.produce([Plan("ended", "U"), Plan("ended", "U"), Plan("other", "C")], jvm=options)
    ours = RemotingSettings(give_up_after=10, credentials=KEYS, tls=OURS)
    with connected(secured, ours) as there:
        one, two = originals(there, "ended")
        endings = Written(tmp_path / "endings")
        with pytest.raises(RefusedByBroker, match=r"(?i)check signature failed"):
            end(secured, [row_of(one)], endings, settings=replace(ours, credentials=Credentials("halfop-key", "x")))
        with pytest.raises(TlsFailed):
            end(secured, [row_of(one)], endings, settings=replace(ours, tls=Tls()))
        assert endings.rows == [], "nothing was sent"
        if secured.version == 4:  # over TLS it answers look-ups of messages without their bodies
            with pytest.raises(Corrupt):
                end(secured, [row_of(one), row_of(two, ROLLBACK)], endings, settings=ours)
            assert not delivered(there, "ended"), "nothing was sent"
            return
        end(secured, [row_of(one), row_of(two, ROLLBACK)], endings, settings=ours, namesrv=True)
        assert endings.states() == {"VERIFIED": 2}
        assert delivered(there, "ended") == {one["uniq_key"]: 1}


@pytest.mark.broker
def test_a_name_that_the_certificate_lacks(secured: RealBroker) -> None:
    address = secured.address.replace("127.0.0.1", "localhost")
    with pytest.raises(TlsFailed, match="localhost"):
        max_offset(address, KEYS, OURS)
    assert max_offset(address, KEYS, Tls(OURS.ca_file, OURS.certificate, OURS.key, check_hostname=False)) >= 0
    assert max_offset(address, KEYS, Tls(None, OURS.certificate, OURS.key, verify=False)) >= 0
