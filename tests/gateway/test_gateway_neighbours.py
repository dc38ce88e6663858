"""A gateway among name servers, and behind TLS."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import ssl
import struct
import time
from collections.abc import Collection
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from halfop.frame.cli import main
from halfop.gateway.producer import Producer, Refusal
from halfop.jobs.gateway import JOB
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC, TRACE_TOPIC, AnswerCode, RequestCode
from halfop.rocketmq.requests import GetRouteinfo
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.remoting import RemotingSettings, Tls
from support.brokers.scripted import Peer, answering, frame, serving
from support.gateway.clients import free, nothing
from support.gateway.gateways import NAME, gateway
from support.places import DATA

TLS = DATA / "tls"
OTHERS = {"queueDatas": [{"brokerName": "broker-a", "perm": 6}], "brokerDatas": []}


def name_server(asked: list[Frame], theirs: Collection[str] = ("theirs",)) -> object:
    """A name server that knows topics of another broker's, and keeps what it is asked."""

    def answer(each: Frame) -> bytes | dict[str, object]:
        asked.append(each)
        if each.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return {}
        if each.fields["topic"] in theirs:
            return json.dumps(OTHERS).encode()
        return {"code": AnswerCode.TOPIC_NOT_EXIST, "remark": "no route of it"}

    return answering(answer)


def test_it_registers_gives_others_routes_and_unregisters(tmp_path: Path) -> None:
    asked, theirs_are = list[Frame](), ["theirs"]
    with serving(name_server(asked, theirs_are)) as address:  # type: ignore[arg-type]
        options = ("--namesrv", address, "--topics", "mine,too", "--set", "gateway.register_every=100ms")
        with gateway(tmp_path, *options) as running, Producer(running.address, "group", nothing) as producer:
            mine = json.loads(producer.ask(GetRouteinfo("mine")).body)
            assert mine["brokerDatas"][0]["brokerName"] == NAME
            theirs = producer.ask(GetRouteinfo("theirs"))
            assert json.loads(theirs.body) == OTHERS
            with pytest.raises(Refusal, match="no route of it"):
                producer.ask(GetRouteinfo("nobodys"))
            traces = json.loads(producer.ask(GetRouteinfo(TRACE_TOPIC)).body)
            assert traces["brokerDatas"][0]["brokerName"] == NAME, "it takes them where no broker does"
            theirs_are.append(TRACE_TOPIC)
            assert json.loads(producer.ask(GetRouteinfo(TRACE_TOPIC)).body) == OTHERS
            with pytest.raises(Refusal) as refused:
                producer.send("theirs", b"x")
            assert refused.value.code == AnswerCode.TOPIC_NOT_EXIST
            end = time.monotonic() + 10
            while [each.code for each in asked].count(RequestCode.REGISTER_BROKER) < 3:
                assert time.monotonic() < end
            assert running.stop() == 0
    told = [each for each in asked if each.code in (RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER)]
    assert told[-1].code == RequestCode.UNREGISTER_BROKER
    assert {each.fields["brokerName"] for each in told} == {NAME}
    assert {each.fields["brokerAddr"] for each in told} == {running.address}


def test_a_topic_that_it_serves_no_longer_is_not_registered(tmp_path: Path) -> None:
    asked: list[Frame] = []
    with serving(name_server(asked)) as address:  # type: ignore[arg-type]
        for topics in ("mine,too", "mine"):
            asked.clear()
            with gateway(tmp_path, "--namesrv", address, "--topics", topics) as running:
                end = time.monotonic() + 10
                while not (told := [each for each in asked if each.code == RequestCode.REGISTER_BROKER]):
                    assert time.monotonic() < end
                assert running.stop() == 0
            table = json.loads(told[0].body)["topicConfigSerializeWrapper"]["topicConfigTable"]
            assert table.keys() == {HALF_TOPIC, OP_TOPIC, NAME, "halfop", *topics.split(",")}
            assert [table[name]["perm"] for name in (NAME, "halfop", "mine")] == [4, 4, 6], "no producer sends there"


@pytest.mark.usefixtures("logging_as_before")
def test_one_name_server_that_can_be_reached_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Frame] = []
    nobody = f"127.0.0.1:{free()}"
    with serving(name_server(asked)) as address:  # type: ignore[arg-type]
        options = ("--namesrv", f"{nobody};{address}", "--topics", "mine")
        with gateway(tmp_path, *options) as running, Producer(running.address, "group", nothing) as producer:
            assert producer.send("mine", b"x").topic == "mine"
            theirs = producer.ask(GetRouteinfo("theirs"))
            assert json.loads(theirs.body) == OTHERS
            assert f"name server {nobody}" in running.log.read_text()
            assert running.stop() == 0
        given = ["--listen", "127.0.0.1:0", "--store", str(tmp_path / "store"), "--name", NAME]
        assert main(JOB, [*given, "--namesrv", f"{nobody};{address}", "--topics", "mine,theirs"]) == 2
        assert "topic theirs is served for writing by broker broker-a" in capsys.readouterr().err
        assert main(JOB, [*given, "--namesrv", nobody, "--topics", "mine"]) == 1
    assert RequestCode.REGISTER_BROKER in {each.code for each in asked}


def test_an_answer_that_cannot_be_read_ends_no_registering(tmp_path: Path) -> None:
    registered: list[int] = []

    def script(peer: Peer) -> None:
        for each in peer.requests():
            if each.code == RequestCode.REGISTER_BROKER:
                registered.append(each.opaque)
            is_first = len(registered) == 1 and each.code == RequestCode.REGISTER_BROKER
            peer.send(struct.pack(">II", 8, 4) + b"what" if is_first else frame(each.opaque))

    with serving(script) as address:
        options = ("--namesrv", address, "--topics", "mine", "--set", "gateway.register_every=100ms")
        with gateway(tmp_path, *options) as running:
            end = time.monotonic() + 10
            while len(registered) < 3:
                assert time.monotonic() < end
            assert f"name server {address}: a header that cannot be read" in running.log.read_text()


@pytest.mark.parametrize("resets", [True, False])
def test_a_connection_that_a_name_server_ends_between_two_requests_is_made_again(tmp_path: Path, resets: bool) -> None:
    registered: list[int] = []

    def script(peer: Peer) -> None:
        for each in peer.requests():
            peer.send(frame(each.opaque))
            if each.code == RequestCode.REGISTER_BROKER:
                registered.append(peer.number)
                if len(registered) == 3:
                    continue
                time.sleep(0.1)  # so that the answer has come before the reset
                peer._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", resets, 0))
                return

    with serving(script) as address:
        options = ("--namesrv", address, "--topics", "mine", "--set", "gateway.register_every=500ms")
        with gateway(tmp_path, *options) as running:
            end = time.monotonic() + 10
            while len(registered) < 3:
                assert time.monotonic() < end
            assert running.stop() == 0
            assert f"name server {address}" not in running.log.read_text()
    assert registered == sorted(set(registered)), "each by a connection of its own"


@pytest.mark.usefixtures("logging_as_before")
def test_a_topic_that_another_broker_serves_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(name_server([])) as address:  # type: ignore[arg-type]
        given = ["--listen", "127.0.0.1:0", "--store", str(tmp_path / "store"), "--name", NAME, "--namesrv", address]
        assert main(JOB, [*given, "--topics", "mine,theirs"]) == 2
    assert "topic theirs is served for writing by broker broker-a" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


@pytest.mark.usefixtures("logging_as_before")
def test_another_broker_of_its_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = b'{"brokerAddrTable":{"%b":{"brokerAddrs":{0:"10.0.0.9:10911"},"brokerName":"x"}}}' % NAME.encode()
    known = answering(lambda each: table if each.code == RequestCode.GET_BROKER_CLUSTER_INFO else {})
    with serving(known) as address:
        given = ["--listen", "127.0.0.1:0", "--store", str(tmp_path / "store"), "--name", NAME, "--namesrv", address]
        assert main(JOB, [*given, "--topics", "mine"]) == 2
    assert f"a broker {NAME} is at 10.0.0.9:10911" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def certificate_of(address: str) -> bytes | None:
    """The certificate that the gateway shows now."""
    context = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
    context.check_hostname = False
    context.load_cert_chain(TLS / "client.pem", TLS / "client.key")
    with connection(address) as plain, context.wrap_socket(plain) as found:
        return found.getpeercert(binary_form=True)


def test_connections_are_encrypted_and_certificates_read_again(tmp_path: Path) -> None:
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    shutil.copy(TLS / "server.pem", certificate)
    shutil.copy(TLS / "server.key", key)
    options = (f"certificate={certificate}", f"key={key}", f"client_ca={TLS}/ca.pem")
    with gateway(tmp_path, *(part for each in options for part in ("--set", f"gateway.{each}"))) as running:
        ours = Tls(f"{TLS}/ca.pem", f"{TLS}/client.pem", f"{TLS}/client.key", check_hostname=False)
        with closing(Broker(running.address, RemotingSettings(tls=ours))) as broker:
            assert broker.role().is_gateway
        with (
            pytest.raises(Exception, match=r"TLS|closed"),
            closing(
                Broker(
                    running.address, RemotingSettings(give_up_after=0.1, tls=Tls(f"{TLS}/ca.pem", check_hostname=False))
                )
            ) as unknown,
        ):
            unknown.role()
        before = certificate_of(running.address)
        shutil.copy(TLS / "client.pem", certificate)
        shutil.copy(TLS / "client.key", key)
        running.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 10
        while (after := certificate_of(running.address)) == before:
            assert time.monotonic() < end
        shutil.copy(TLS / "server.pem", certificate)  # and not its key
        running.process.send_signal(signal.SIGHUP)
        while "the old ones stay" not in running.log.read_text():
            assert time.monotonic() < end
        assert certificate_of(running.address) == after


def encrypted(*settings: str) -> list[str]:
    """The options of a gateway with TLS."""
    given = (f"certificate={TLS}/server.pem", f"key={TLS}/server.key", *settings)
    return [part for each in given for part in ("--set", f"gateway.{each}")]


def test_handshakes_that_never_end_take_places_and_give_them_back(tmp_path: Path) -> None:
    seconds, places = 2, 5
    with (
        gateway(tmp_path, *encrypted(f"frame_time={seconds}s", f"max_connections={places}")) as running,
        ExitStack() as opened,
    ):
        theirs = Tls(f"{TLS}/ca.pem", check_hostname=False)
        good = opened.enter_context(closing(Broker(running.address, RemotingSettings(tls=theirs))))
        assert good.role().is_gateway
        began = time.monotonic()
        silent = [opened.enter_context(connection(running.address)) for _ in range(places - 1)]
        late = opened.enter_context(connection(running.address))
        assert late.recv(1) == b"", "there is no place"
        assert time.monotonic() - began < seconds, "at once"
        assert good.role().is_gateway, "one that was there before is served"
        assert [each.recv(1) for each in silent] == [b""] * len(silent)
        assert seconds - 0.5 < time.monotonic() - began < seconds + 5
        newcomer = opened.enter_context(closing(Broker(running.address, RemotingSettings(give_up_after=5, tls=theirs))))
        assert newcomer.role().is_gateway
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


def connection(address: str) -> socket.socket:
    host, _, number = address.rpartition(":")
    return socket.create_connection((host, int(number)), 20)
