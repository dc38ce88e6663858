"""A gateway as a process: sends, ends, questions, reads, its limits, and its end."""

from __future__ import annotations

import json
import queue
import resource
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Event
from typing import cast

import pytest
from deltalake import DeltaTable
from halfop.frame.cli import main
from halfop.gateway.producer import Answer, Producer, Question, Refusal, StoredHalf
from halfop.jobs.gateway import JOB
from halfop.rocketmq.batches import half_batch
from halfop.rocketmq.frames import ANSWER, BINARY, JSON, ONE_WAY, Frame, Splitter
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC, AnswerCode, RequestCode
from halfop.rocketmq.record import chain
from halfop.rocketmq.requests import GetRouteinfo, Header, HeartBeat
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.name_servers import NameServers
from halfop.rocketmq.wire.remoting import Credentials, RefusedByBroker, RemotingSettings
from support.gateway.clients import SECONDS, Asked, asked, free, nothing, page, raw
from support.gateway.gateways import NAME, RunningGateway, gateway, pulled
from support.gateway.questions import ask_for, make_deliveries, outcomes


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway that a module's tests share: each has topics of its own."""
    options = ("--set", "gateway.look_every=100ms", "--set", "gateway.max_body=100000")
    with gateway(tmp_path_factory.mktemp("gateway"), *options) as found:
        yield found


@pytest.fixture(scope="module")
def producer(running: RunningGateway) -> Iterator[Producer]:
    with Producer(running.address, "group", nothing) as found:
        yield found


# ---- sends and ends ----


def test_a_committed_message_is_in_its_topic_and_a_rolled_back_one_is_not(
    running: RunningGateway, producer: Producer
) -> None:
    committed = producer.transaction("t1", b"yes", lambda sent: "COMMIT")
    rolled_back = producer.send("t1", b"no")
    producer.end_surely(rolled_back, "ROLLBACK")
    with asked(running.address) as broker:
        assert [each["body"] for each in pulled(broker, "t1")] == [b"yes"]
        halves = pulled(broker, HALF_TOPIC, first=committed.queue_offset)[:2]
        assert [each["UNIQ_KEY"] for each in halves] == [committed.transaction_id, rolled_back.transaction_id]
        ops = {each["body"]: each["END_OUTCOME"] for each in pulled(broker, OP_TOPIC)}
    assert ops[str(committed.queue_offset).encode()] == "COMMIT"
    assert ops[str(rolled_back.queue_offset).encode()] == "ROLLBACK"


def test_a_repeat_writes_nothing_and_the_opposite_delivers_nothing(running: RunningGateway, producer: Producer) -> None:
    with asked(running.address) as broker:
        sent = producer.send("t2", b"x")
        producer.end_surely(sent, "COMMIT")
        ops = broker.max_offset(OP_TOPIC, 0)
        producer.end_surely(sent, "COMMIT")
        assert broker.max_offset(OP_TOPIC, 0) == ops
        producer.end_surely(sent, "ROLLBACK")
        assert broker.max_offset(OP_TOPIC, 0) == ops + 1
        other = producer.send("t2", b"y")
        producer.end_surely(other, "ROLLBACK")
        producer.end_surely(other, "COMMIT")
        assert [each["body"] for each in pulled(broker, "t2")] == [b"x"]


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"physical_offset": 3}, "Find prepared transaction message failed"),
        ({"physical_offset": 1 << 50}, "Find prepared transaction message failed"),
        ({"queue_offset": 10**6}, "The transaction state table offset wrong"),
    ],
)
def test_an_end_that_names_no_half_message_is_refused(producer: Producer, wrong: dict[str, int], remark: str) -> None:
    sent = StoredHalf(**producer.send("t3", b"x")._asdict() | wrong)
    with pytest.raises(Refusal) as refused:
        producer.end_surely(sent, "COMMIT")
    assert (refused.value.code, refused.value.remark) == (AnswerCode.SYSTEM_ERROR, remark)


def test_another_groups_end_is_refused(running: RunningGateway, producer: Producer) -> None:
    sent = producer.send("t4", b"x")
    with Producer(running.address, "others", nothing) as other, pytest.raises(Refusal, match="producer group wrong"):
        other.end_surely(sent, "COMMIT")


def test_a_body_that_is_too_long_is_refused_and_the_connection_lives(producer: Producer) -> None:
    with pytest.raises(Refusal) as refused:
        producer.send("t5", b"x" * 100_001)
    assert refused.value.code == AnswerCode.MESSAGE_ILLEGAL
    assert producer.send("t5", b"x" * 100_000).topic == "t5"


class Unknown(Header):
    code = cast(RequestCode, 9999)


class SendBatch(Header):
    code = RequestCode.SEND_BATCH_MESSAGE


def test_requests_that_it_does_not_know_are_refused(producer: Producer) -> None:
    with pytest.raises(Refusal) as refused:
        producer.ask(Unknown())
    assert refused.value.code == AnswerCode.NOT_SUPPORTED


def test_batches_are_refused(producer: Producer) -> None:
    with pytest.raises(Refusal, match="a batch") as refused:
        producer.ask(SendBatch(), b"x")
    assert refused.value.code == AnswerCode.NO_PERMISSION


def test_a_heartbeat_that_cannot_be_read_is_refused(producer: Producer) -> None:
    nested = b"[" * 1000 + b"]" * 1000
    for body in (b"x", b"[]", b'{"clientID":%s}' % nested, b'{"producerDataSet":[{"groupName":%s}]}' % nested):
        with pytest.raises(Refusal, match="a heartbeat that cannot be read"):
            producer.ask(HeartBeat(), body)


# ---- routes and reads ----


def test_it_is_its_own_name_server(running: RunningGateway, producer: Producer) -> None:
    route = json.loads(producer.ask(GetRouteinfo("not-yet")).body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": running.address}
    assert route["queueDatas"][0]["writeQueueNums"] == 4
    with closing(NameServers(running.address, RemotingSettings())) as servers:
        (known,) = servers.brokers()
    assert (known.name, known.address, known.is_master) == (NAME, running.address, True)
    with pytest.raises(Refusal) as refused:
        producer.ask(GetRouteinfo("no topic"))
    assert refused.value.code == AnswerCode.TOPIC_NOT_EXIST


def test_another_number_of_queues_is_one_of_all_its_topics(tmp_path: Path) -> None:
    for queues, readable in ((8, 8), (4, 8)):
        with (
            gateway(tmp_path, "--set", f"gateway.queues={queues}") as running,
            Producer(running.address, "group", nothing) as producer,
        ):
            producer.send("t", b"x")
            (found,) = json.loads(producer.ask(GetRouteinfo("t")).body)["queueDatas"]
            assert (found["writeQueueNums"], found["readQueueNums"]) == (queues, readable)


def test_its_clock_moves_when_it_is_quiet(running: RunningGateway) -> None:
    with asked(running.address) as broker:
        assert broker.role() == (NAME, False, True, None)
        before = broker.clock().shown
        assert abs(before / 1e6 - time.time()) < 3
        end = time.monotonic() + 5
        while broker.clock().shown == before:
            assert time.monotonic() < end


def test_offsets_by_time(running: RunningGateway, producer: Producer) -> None:
    sent = producer.transaction("t6", b"x", lambda sent: "COMMIT")
    with asked(running.address) as broker:
        assert broker.offset_at(HALF_TOPIC, 0, int(time.time() * 1000) + 10_000) > sent.queue_offset
        assert broker.offset_at(HALF_TOPIC, 0, 0) == 0
        assert broker.topics()["t6"] == 4


# ---- questions ----


QUICK = ("--set", "gateway.look_every=50ms", "--set", "rules.transaction_check_interval=3s")


def test_questions_are_asked_and_answers_noted(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    make_deliveries(warehouse)
    silent, asking = Asked("UNKNOWN"), Asked("COMMIT")
    with gateway(tmp_path, *QUICK, warehouse=str(warehouse)) as running:
        with Producer(running.address, "silent", silent) as one, Producer(running.address, "quick", asking) as two:
            first, second = one.send("orders", b"first"), two.send("orders", b"second", {"own": "value"})
            ids = [ask_for(warehouse, first, "silent", 1), ask_for(warehouse, second, "quick", 2)]
            elsewhere = ask_for(warehouse, second, "quick", 9, broker_name="other")
            question = asking.questions.get(timeout=SECONDS)
            assert question.sent == second
            assert (question.body, question.properties["own"]) == (b"second", "value")
            assert silent.questions.get(timeout=SECONDS).sent == first
            found = outcomes(warehouse, lambda rows: len(rows) == 4)
            assert sorted(found) == sorted(
                [(ids[0], "SENT"), (ids[0], "UNKNOWN"), (ids[1], "SENT"), (ids[1], "ANSWERED")]
            )
            assert elsewhere not in dict(found)
            old = ask_for(warehouse, first, "silent", 3, requested_at=datetime.now(timezone.utc) - timedelta(minutes=1))
            lone = one.send("orders", b"third")
            nobody = ask_for(warehouse, lone, "nobody", 4)
            ended = ask_for(warehouse, second, "quick", 5)
            found = outcomes(warehouse, lambda rows: len(rows) == 7)[4:]
            assert set(found) == {(old, "SUPERSEDED"), (ended, "SUPERSEDED"), (nobody, "NO_PRODUCER")}
        with asked(running.address) as broker:
            assert [each["body"] for each in pulled(broker, "orders")] == [b"second"]


@pytest.mark.parametrize("form", [JSON, BINARY])
def test_a_client_is_known_by_its_send_and_asked_as_a_broker_asks(tmp_path: Path, form: int) -> None:
    """4.9's first heartbeat comes after its first send."""
    warehouse = tmp_path / "warehouse"
    make_deliveries(warehouse)
    packed = "TRAN_MSG\x01true\x02UNIQ_KEY\x01U1\x02PGROUP\x01group\x02TAGS\x01red\x02"
    fields = {"a": "group", "b": "orders", "c": "TBW102", "d": "4", "e": "2", "f": "4", "g": "9", "h": "7", "i": packed}
    with gateway(tmp_path, *QUICK, warehouse=str(warehouse)) as running, raw(running.address) as client:
        splitter = Splitter(1 << 20)
        client.sendall(Frame(RequestCode.SEND_MESSAGE_V2, 0, 5, fields, body=b"body", form=form).packed())
        answer = one_frame(client, splitter)
        assert (answer.code, answer.flag, answer.opaque, answer.form) == (AnswerCode.SUCCESS, ANSWER, 5, form)
        number = int(running.address.rpartition(":")[2])
        message_id = f"7F000001{number:08X}{0:016X}"
        said = {"msgId": message_id, "queueId": "2", "queueOffset": "0", "transactionId": "U1"}
        assert answer.fields == said | {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        ask_for(warehouse, StoredHalf("orders", "U1", 0, 0), "group", 1)
        question = one_frame(client, splitter)
        assert (question.code, question.flag) == (RequestCode.CHECK_TRANSACTION_STATE, ONE_WAY)
        assert question.form == form
        named = {"topic": "orders", "bname": NAME, "tranStateTableOffset": "0", "commitLogOffset": "0"}
        assert question.fields == named | {"msgId": "U1", "transactionId": "U1", "offsetMsgId": message_id}
        (record,) = half_batch(chain(question.body).records).to_pylist()
        assert (record["body"], record["flag"], record["uniq_key"]) == (b"body", 7, "U1")
        assert chain(question.body).records.topics()[0].as_py() == b"orders"


def one_frame(client: socket.socket, splitter: Splitter) -> Frame:
    while not (found := splitter.feed(client.recv(1 << 16))):
        pass
    (frame,) = found
    return frame


def test_a_restart_asks_again_only_what_was_not_sent(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    make_deliveries(warehouse)
    options = (*QUICK[:2], "--set", "rules.transaction_check_interval=1h")
    with gateway(tmp_path, *options, warehouse=str(warehouse)) as running:
        asking = Asked("UNKNOWN")
        with Producer(running.address, "group", asking) as before:
            first, second = before.send("orders", b"1"), before.send("orders", b"2")
            known = ask_for(warehouse, first, "group", 1)
            outcomes(warehouse, lambda rows: rows == [(known, "SENT"), (known, "UNKNOWN")])
        later = ask_for(warehouse, second, "group", 2)
        assert running.stop() == 0
    with gateway(tmp_path, *options, warehouse=str(warehouse)) as running:
        with Producer(running.address, "group", asking):
            outcomes(warehouse, lambda rows: (later, "UNKNOWN") in rows)
        assert [asking.questions.get_nowait().sent for _ in range(2)] == [first, second]
        assert asking.questions.empty()


# ---- limits, accounts and TLS ----


def test_a_frame_that_takes_too_long_and_a_silent_client_are_dropped(tmp_path: Path) -> None:
    options = ("--set", "gateway.frame_time=500ms", "--set", "gateway.idle_time=3s")
    with gateway(tmp_path, *options) as running, raw(running.address) as slow, raw(running.address) as silent:
        slow.sendall(struct.pack(">II", 1000, 100) + b"{")
        began = time.monotonic()
        assert slow.recv(1) == b""
        assert time.monotonic() - began < 2.9
        assert silent.recv(1) == b""


def test_what_fails_by_the_clock_is_tried_again(tmp_path: Path) -> None:
    with gateway(tmp_path, "--set", "gateway.frame_time=500ms") as running:
        running.store.rename(tmp_path / "elsewhere")  # so that nobody can tell how full its disk is
        wait_until(lambda: "No such file" in running.log.read_text())
        with raw(running.address) as slow:
            slow.sendall(struct.pack(">II", 1000, 100) + b"{")
            assert slow.recv(1) == b""
        assert running.log.read_text().count("Traceback") == 1


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_lengths_are_judged_before_anything_is_kept(running: RunningGateway, producer: Producer) -> None:
    for prefix in (struct.pack(">II", 0x7FFFFFFF, 100), b"GET / HTTP/1.1\r\n"):
        with raw(running.address) as hostile:
            hostile.sendall(prefix)
            assert hostile.recv(1) == b""
    assert producer.send("t7", b"x").topic == "t7"


def test_there_are_no_more_connections_than_allowed(tmp_path: Path) -> None:
    with (
        gateway(tmp_path, "--set", "gateway.max_connections=2") as running,
        raw(running.address),
        Producer(running.address, "group", nothing) as good,
        raw(running.address) as third,
    ):
        assert third.recv(1) == b""
        assert good.send("t", b"x").topic == "t"


def test_connections_that_are_reset_at_once_take_no_room(tmp_path: Path) -> None:
    with gateway(tmp_path, "--set", "gateway.max_connections=20") as running:
        for _ in range(200):  # as a load balancer's probes do
            with raw(running.address) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with Producer(running.address, "group", nothing) as good:
            assert good.send("t", b"x").topic == "t"
        assert "Traceback" not in running.log.read_text()


def test_too_few_open_files_for_one_connection_are_refused() -> None:
    code = """import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
from halfop.gateway.door import room_for
room_for(1000)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert "may open only 512 files, a gateway needs 512 and more: raise `ulimit -n`" in done.stderr


@pytest.mark.parametrize(("soft", "hard", "room"), [(64, 5000, 1000), (64, 1000, 488), (1600, 2000, 1000)])
def test_there_are_as_many_connections_as_the_process_may_open_files(soft: int, hard: int, room: int) -> None:
    code = f"""import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from halfop.gateway.door import room_for
print(room_for(1000), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.split() == [str(room), str(max(soft, room + 512))]
    assert ("raise `ulimit -n`" in done.stderr) == (room < 1000)


def test_a_client_that_takes_no_answers_is_read_no_further(tmp_path: Path) -> None:
    with gateway(tmp_path, "--set", "gateway.unsent_bytes=10000") as running, raw(running.address) as hostile:
        hostile.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        hostile.settimeout(1)
        question = Frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, 0, 1, {"topic": "t"}).packed()
        with pytest.raises(TimeoutError):
            hostile.sendall(question * 1_000_000)
        with Producer(running.address, "group", nothing) as good:
            assert good.send("t", b"x").topic == "t"


@pytest.mark.parametrize(
    ("code", "fields", "times"),
    [
        (RequestCode.PULL_MESSAGE, {"consumerGroup": "c", "maxMsgNums": "1", "sysFlag": "4", "queueOffset": "0"}, 60),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}, 60),
        (RequestCode.GET_ALL_TOPIC_CONFIG, {}, 400),
    ],
)
def test_answers_are_made_as_they_are_taken(tmp_path: Path, code: int, fields: dict[str, str], times: int) -> None:
    """A client asks by few bytes for many, and takes none of them for a while."""
    topics = [f"{n:0100d}" for n in range(1000)]
    with (
        gateway(tmp_path, "--set", f"gateway.topics={','.join(topics)}") as running,
        Producer(running.address, "group", nothing) as good,
    ):
        good.send(topics[0], bytes(2 << 20))
        before = running.memory
        clients = [raw(running.address) for _ in range(4)]
        for each in clients:
            each.sendall(Frame(code, 0, 1, fields | {"topic": HALF_TOPIC, "queueId": "0"}).packed() * times)
        assert max(after_a_send(running, good, topics[0]) for _ in range(100)) - before < 64 << 20
        splitter, answers = Splitter(8 << 20), list[Frame]()
        while len(answers) < times:
            answers += splitter.feed(clients[0].recv(1 << 20))
        assert {each.code for each in answers} == {AnswerCode.SUCCESS}
        for each in clients:
            each.close()


def test_frames_that_begin_and_never_end_take_only_so_much(tmp_path: Path) -> None:
    part = struct.pack(">II", 1 << 20, 100) + bytes(1_000_000)
    with (
        gateway(tmp_path, "--set", "gateway.begun_bytes=5500000") as running,
        ExitStack() as opened,
    ):
        slow = [opened.enter_context(raw(running.address)) for _ in range(12)]
        with Producer(running.address, "group", nothing) as good:
            for each in slow:
                each.sendall(part)
            assert good.send("t", bytes(500_000)).topic == "t"
            for each in slow:
                each.setblocking(False)
            wait_until(lambda: sum(map(is_closed, slow)) >= 7)
            assert good.send("t", bytes(500_000)).topic == "t"
        assert sum(map(is_closed, slow)) <= 8, "the others keep their time"


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def after_a_send(running: RunningGateway, producer: Producer, topic: str) -> int:
    """The bytes that the gateway has in memory then."""
    producer.send(topic, b"x")
    return running.memory


def test_too_much_that_is_open_refuses_sends(tmp_path: Path) -> None:
    with (
        gateway(tmp_path, "--set", "gateway.open_messages=1") as running,
        Producer(running.address, "group", nothing) as producer,
    ):
        sent = producer.send("t", b"x")
        with pytest.raises(Refusal) as refused:
            producer.send("t", b"x")
        assert refused.value.code == AnswerCode.SYSTEM_BUSY
        producer.end_surely(sent, "COMMIT")
        assert producer.send("t", b"x").topic == "t"


def test_a_full_disk_refuses_sends_and_takes_ends(tmp_path: Path) -> None:
    pages_at = f"127.0.0.1:{free()}"
    with gateway(tmp_path) as running, Producer(running.address, "group", nothing) as producer:
        sent = producer.send("t", b"x")
        assert running.stop() == 0
    with (
        gateway(tmp_path, "--set", "gateway.disk_percent=1", "--metrics", pages_at) as running,
        Producer(running.address, "group", nothing) as producer,
    ):
        wait_until(lambda: status_of(pages_at) == 503)
        with pytest.raises(Refusal, match="disk is full") as refused:
            producer.send("t", b"x")
        assert refused.value.code == AnswerCode.SERVICE_NOT_AVAILABLE
        producer.end_surely(sent, "COMMIT")
        assert "halfop_gateway_disk_full 1.0" in page(pages_at, "metrics")


def status_of(pages: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{pages}/healthz", timeout=SECONDS) as found:
            return int(found.status)
    except urllib.error.HTTPError as error:
        return error.code


NAMES_THREADS = """import sys, threading
from halfop.frame.cli import run_job
from halfop.jobs.gateway import JOB
start = threading.Thread.start
def named(thread):
    print(f"a thread: {thread.name}", file=sys.stderr, flush=True)
    start(thread)
threading.Thread.start = named
run_job(JOB)
"""


def test_a_slave_is_read_alone(tmp_path: Path) -> None:
    (job := tmp_path / "names_threads.py").write_text(NAMES_THREADS)
    with gateway(tmp_path, job=job) as running, Producer(running.address, "group", nothing) as producer:
        sent = producer.send("t", b"x")
        wait_until(lambda: "a thread: gateway-tables" in running.log.read_text())
        assert running.stop() == 0
    with (
        gateway(tmp_path, "--role", "slave", job=job) as running,
        Producer(running.address, "group", nothing) as producer,
    ):
        with pytest.raises(Refusal, match="a slave takes no messages") as refused:
            producer.send("t", b"x")
        assert refused.value.code == AnswerCode.SYSTEM_BUSY
        with pytest.raises(Refusal, match="end transaction is forbidden") as refused:
            producer.end_surely(sent, "COMMIT")
        assert refused.value.code == AnswerCode.SLAVE_NOT_AVAILABLE
        with asked(running.address) as broker:
            assert broker.role().is_slave
            assert [each["body"] for each in pulled(broker, HALF_TOPIC)] == [b"x"]
        assert running.stop() == 0
        # this one writes check_deliveries, and removes files of the log
        assert "a thread: gateway-tables" not in running.log.read_text()


ACCOUNTS = """
accounts:
  - {accessKey: sender, secretKey: secret-of-sender, topicPerms: [orders=PUB]}
  - {accessKey: lander, secretKey: secret-of-lander, defaultTopicPerm: SUB}
"""


def test_accounts_may_do_what_they_may(tmp_path: Path) -> None:
    (tmp_path / "accounts.yml").write_text(ACCOUNTS)
    with gateway(tmp_path, "--set", f"gateway.acl_file={tmp_path}/accounts.yml") as running:
        keys = {name: Credentials(name, f"secret-of-{name}") for name in ("sender", "lander")}
        with Producer(running.address, "group", nothing, keys["sender"]) as sender:
            sent = sender.send("orders", b"x")
            with pytest.raises(Refusal, match="no PUB on topic other"):
                sender.send("other", b"x")
            with (
                Producer(running.address, "group", nothing, keys["lander"]) as lander,
                pytest.raises(Refusal, match="no PUB on topic orders"),
            ):
                lander.end_surely(sent, "ROLLBACK")
            sender.end_surely(sent, "COMMIT")
        for credentials in (None, Credentials("sender", "wrong"), Credentials("nobody", "x")):
            with pytest.raises(Refusal, match="no account"):
                Producer(running.address, "group", nothing, credentials)
        with closing(Broker(running.address, RemotingSettings(credentials=keys["lander"]))) as broker:
            assert [each["body"] for each in pulled(broker, "orders")] == [b"x"]
        with (
            closing(Broker(running.address, RemotingSettings(credentials=keys["sender"]))) as broker,
            pytest.raises(RefusedByBroker, match="no GET on topic"),
        ):
            pulled(broker, HALF_TOPIC)


def test_a_producer_that_answers_nothing_is_noted_if_it_may_end_the_message(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    make_deliveries(warehouse)
    (tmp_path / "accounts.yml").write_text(ACCOUNTS)
    keys = {name: Credentials(name, f"secret-of-{name}") for name in ("sender", "lander")}
    interval, accounts = "rules.transaction_check_interval=1h", f"gateway.acl_file={tmp_path}/accounts.yml"
    options = (*QUICK[:2], "--set", interval, "--set", accounts)
    held, answered = queue.Queue[Question](), Event()

    def hold(question: Question) -> Answer:
        held.put(question)
        assert answered.wait(SECONDS)
        return "UNKNOWN"

    with (
        gateway(tmp_path, *options, warehouse=str(warehouse)) as running,
        Producer(running.address, "group", hold, keys["sender"]) as sender,
        Producer(running.address, "group", nothing, keys["lander"]) as lander,
    ):
        sent = sender.send("orders", b"x")
        asked_for = ask_for(warehouse, sent, "group", 1)
        held.get(timeout=SECONDS)
        lander.end(sent, "UNKNOWN", from_check=True)
        lander.heartbeat()  # by then it has come
        answered.set()
        outcomes(warehouse, lambda rows: rows == [(asked_for, "SENT"), (asked_for, "UNKNOWN")])
        rows = DeltaTable(warehouse / "check_deliveries").to_pyarrow_table().sort_by("at").to_pylist()
        assert rows[0]["client"] == rows[1]["client"], "it was the one that was asked"


def test_only_who_may_send_to_a_topic_is_asked_about_its_messages(tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    make_deliveries(warehouse)
    (tmp_path / "accounts.yml").write_text(ACCOUNTS)
    keys = {name: Credentials(name, f"secret-of-{name}") for name in ("sender", "lander")}
    options = (*QUICK, "--set", f"gateway.acl_file={tmp_path}/accounts.yml")
    curious, asking = Asked("COMMIT"), Asked("UNKNOWN")
    with gateway(tmp_path, *options, warehouse=str(warehouse)) as running:
        with Producer(running.address, "group", nothing, keys["sender"]) as gone:
            sent = gone.send("orders", b"for its own group's eyes")
        with Producer(running.address, "group", curious, keys["lander"]):
            lone = ask_for(warehouse, sent, "group", 1)
            outcomes(warehouse, lambda rows: rows == [(lone, "FAILED")])
            with Producer(running.address, "group", asking, keys["sender"]):
                ask_for(warehouse, sent, "group", 2)
                assert asking.questions.get(timeout=SECONDS).sent == sent
    assert curious.questions.empty()


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--listen", "0.0.0.0:0"), "anybody there could send"),
        # a signature has no nonce: who reads a request can repeat it
        (("--listen", "0.0.0.0:0", "--set", "gateway.acl_file=accounts.yml"), "read signed requests and repeat them"),
        (("--listen", "0.0.0.0:0", "--set", "gateway.certificate=own.pem"), "anybody there could send"),
        (("--listen", "0.0.0.0:0", "--insecure"), "Give gateway.advertise=host:port"),
        (("--set", "gateway.certificate=missing.pem"), "expected readable PEM files"),
        (("--set", "gateway.key=missing.pem"), "need gateway.certificate"),
        (("--set", "gateway.acl_file=missing.yml"), "expected YAML with `accounts:`"),
        (("--namesrv", "127.0.0.1:1"), "give --topics"),
        (("--warehouse", "s3://bucket/warehouse"), "give it as s3a:"),
        (("--name", "a b"), "as a broker's name"),
        (("--listen", "127.0.0.1:99999"), "--listen 127.0.0.1:99999: expected a number below"),
        (("--metrics", "127.0.0.1:65536"), "gateway.metrics 127.0.0.1:65536: expected a number below"),
        (("--set", "gateway.advertise=[::1]:65536"), "gateway.advertise [::1]:65536: expected a number below"),
        (("--set", "gateway.file_size=65536"), "expected 4259840 or more"),
    ],
)
def test_what_it_refuses_at_its_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    given = ["--listen", "127.0.0.1:0", "--store", str(tmp_path / "store"), "--name", NAME, *options]
    assert main(JOB, given) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


@pytest.mark.usefixtures("logging_as_before")
def test_what_its_machine_does_not_give_leaves_no_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--listen", "127.0.0.1:0", "--store", str(tmp_path / "store"), "--name", NAME]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(JOB, [*given, "--metrics", f"127.0.0.1:{taken.getsockname()[1]}"]) == 2
    assert "give another address" in capsys.readouterr().err
    monkeypatch.setattr(resource, "getrlimit", lambda _: (512, 512))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    assert main(JOB, given) == 2
    assert "raise `ulimit -n`" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


# ---- its end ----


def test_it_stops_with_everything_answered_and_goes_on_where_it_was(tmp_path: Path) -> None:
    pages_at = f"127.0.0.1:{free()}"
    with gateway(tmp_path, "--metrics", pages_at) as running:
        with Producer(running.address, "group", nothing) as producer:
            sent = [producer.send("orders", b"x") for _ in range(10)]
            producer.end_surely(sent[0], "COMMIT")
            pages = page(pages_at, "metrics")
            assert "halfop_gateway_sends_total 10.0" in pages
            assert 'halfop_gateway_ends_total{end="COMMIT_ENDED"} 1.0' in pages
            assert "halfop_gateway_open 9.0" in pages
            assert page(pages_at, "healthz") == "ok\n"
        assert running.stop() == 0
        last = json.loads((tmp_path / "gateway.out").read_text().splitlines()[-1])
        assert (last["job"], last["sent"], last["open"]) == ("gateway", 10, 9)
    with gateway(tmp_path) as running, Producer(running.address, "group", nothing) as producer:
        for each in sent[1:]:
            producer.end_surely(each, "COMMIT")
        assert producer.send("orders", b"y").queue_offset == 10
        with asked(running.address) as broker:
            assert len(pulled(broker, "orders")) == 10


def test_no_spark_is_loaded() -> None:
    program = "import halfop.jobs.gateway, sys; print(sorted({'pyspark', 'py4j', 'delta'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
