"""A gateway in trouble: a slow disk, sends that are repeated, ten thousand connections."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from halfop.frame.errors import TransientError
from halfop.gateway.log.flusher import DISK_FAILED
from halfop.gateway.producer import Producer, Refusal, StoredHalf
from halfop.rocketmq.frames import Frame, Splitter
from halfop.rocketmq.names import HALF_TOPIC, TRANSACTION_PREPARED, AnswerCode, RequestCode
from halfop.rocketmq.properties import packed
from halfop.rocketmq.requests import SendMessageV2
from support.gateway.clients import asked, free, nothing, page
from support.gateway.gateway_load import Generator
from support.gateway.gateways import RunningGateway, gateway, pulled
from support.places import PROGRAMS

SLOW_DISK = PROGRAMS / "slow_disk.py"
MANY = 10_000
MOST_BYTES_EACH = 20_000


# ---- a slow disk ----


def test_a_slow_disk_is_answered_in_time_and_its_message_is_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = tmp_path / "slow"
    monkeypatch.setenv("SLOW_DISK", str(switch))
    options = ("--set", "gateway.flush_time=300ms")
    with (
        gateway(tmp_path, *options, job=SLOW_DISK) as running,
        Producer(running.address, "group", nothing) as producer,
    ):
        assert producer.send("orders", b"before").queue_offset == 0
        switch.touch()
        began = time.monotonic()
        late = answer_to_a_send(running, b"late")
        assert time.monotonic() - began < 1.5
        assert late.code == AnswerCode.FLUSH_DISK_TIMEOUT
        # a client rolls back what it names, without having done its local transaction
        sent = StoredHalf("orders", "L" * 32, int(late.fields["queueOffset"]), int(late.fields["msgId"][-16:], 16))
        with pytest.raises(Refusal, match="Find prepared"):  # it is not durable yet: it will be asked about
            producer.end_surely(sent, "ROLLBACK")
        switch.unlink()
        with asked(running.address) as broker:
            until(lambda: broker.max_offset(HALF_TOPIC, 0) == 2)
        producer.end_surely(sent, "ROLLBACK")
        assert producer.send("orders", b"after").queue_offset == 2
        with asked(running.address) as broker:
            assert [each["body"] for each in pulled(broker, HALF_TOPIC)] == [b"before", b"late", b"after"]
            assert pulled(broker, "orders") == []


def test_an_end_that_the_disk_has_not_is_not_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = tmp_path / "slow"
    monkeypatch.setenv("SLOW_DISK", str(switch))
    with (
        gateway(tmp_path, "--set", "gateway.flush_time=300ms", job=SLOW_DISK) as running,
        Producer(running.address, "group", nothing) as producer,
    ):
        sent = producer.send("orders", b"x")
        switch.touch()
        with pytest.raises(Refusal) as refused:
            producer.end_surely(sent, "COMMIT")
        assert refused.value.code == AnswerCode.FLUSH_DISK_TIMEOUT
        switch.unlink()
        with asked(running.address) as broker:
            until(lambda: broker.max_offset("orders", 0) == 1)
            producer.end_surely(sent, "COMMIT")
            assert [each["body"] for each in pulled(broker, "orders")] == [b"x"]


def test_no_time_passes_for_what_the_disk_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Landing takes all before the gateway's clock as known."""
    switch = tmp_path / "slow"
    monkeypatch.setenv("SLOW_DISK", str(switch))
    with gateway(tmp_path, "--set", "gateway.flush_time=100ms", job=SLOW_DISK) as running:
        switch.touch()
        before = time.time()
        assert answer_to_a_send(running, b"late").code == AnswerCode.FLUSH_DISK_TIMEOUT
        with asked(running.address) as broker:
            while not broker.max_offset(HALF_TOPIC, 0):
                shown = broker.clock().shown / 1e6
                there = broker.max_offset(HALF_TOPIC, 0)
                assert there or shown < before + 0.5, "it stands until the message can be read"
            assert time.time() > before + 1.5, "it took long"
            until(lambda: broker.clock().shown / 1e6 > before + 1.5)


def test_more_than_it_may_hold_unflushed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switch, pages = tmp_path / "slow", f"127.0.0.1:{free()}"
    monkeypatch.setenv("SLOW_DISK", str(switch))
    options = ("--set", "gateway.unflushed_bytes=1", "--metrics", pages)
    with (
        gateway(tmp_path, *options, job=SLOW_DISK) as running,
        Producer(running.address, "group", nothing) as producer,
        ThreadPoolExecutor(1) as pool,
    ):
        switch.touch()
        pending = pool.submit(producer.send, "orders", b"x")
        until(lambda: "halfop_gateway_sends_total 1.0" in page(pages, "metrics"))
        assert answer_to_a_send(running, b"y").code == AnswerCode.SYSTEM_BUSY
        switch.unlink()
        assert pending.result().queue_offset == 0
        assert answer_to_a_send(running, b"y").code == AnswerCode.SUCCESS


def test_ends_that_the_disk_has_not_take_only_so_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A one-way COMMIT has no answer to wait for, and copies a body."""
    switch, pages, body = tmp_path / "slow", f"127.0.0.1:{free()}", bytes(100_000)
    monkeypatch.setenv("SLOW_DISK", str(switch))
    options = ("--set", "gateway.unflushed_bytes=200000", "--metrics", pages)
    with (
        gateway(tmp_path, *options, job=SLOW_DISK) as running,
        Producer(running.address, "group", nothing) as producer,
    ):
        sent = [producer.send("orders", body) for _ in range(12)]
        switch.touch()
        for each in sent:
            producer.end(each, "COMMIT")
        until(lambda: 'halfop_gateway_refusals_total{code="2",request="37"}' in page(pages, "metrics"))
        switch.unlink()
        for each in sent:
            until(partial(ended, producer, each))
        with asked(running.address) as broker:
            assert [len(each["body"]) for each in pulled(broker, "orders")] == [len(body)] * len(sent)
        metrics = page(pages, "metrics").splitlines()
    refused = next(line for line in metrics if line.startswith('halfop_gateway_refusals_total{code="2",request="37"}'))
    assert float(refused.split()[1]) >= len(sent) - 6, "twice 200,000 bytes, and what one append and one flush hold"


def ended(producer: Producer, sent: StoredHalf) -> bool:
    try:
        producer.end_surely(sent, "COMMIT")
    except Refusal as refused:
        return refused.code != AnswerCode.SYSTEM_BUSY
    return True


def test_what_it_has_taken_is_answered_when_it_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switch, pages = tmp_path / "slow", f"127.0.0.1:{free()}"
    monkeypatch.setenv("SLOW_DISK", str(switch))
    with (
        gateway(tmp_path, "--metrics", pages, job=SLOW_DISK) as running,
        Producer(running.address, "group", nothing) as producer,
        ThreadPoolExecutor(1) as pool,
    ):
        switch.touch()
        pending = pool.submit(producer.send, "orders", b"taken")
        until(lambda: "halfop_gateway_sends_total 1.0" in page(pages, "metrics"))
        running.process.terminate()
        until(lambda: "stopping" in running.log.read_text())
        with pytest.raises(Refusal) as refused:
            producer.send("orders", b"not taken")
        assert refused.value.code == AnswerCode.SERVICE_NOT_AVAILABLE
        assert pending.result().queue_offset == 0
        assert running.process.wait(10) == 0
    with gateway(tmp_path) as running, asked(running.address) as broker:
        assert [each["body"] for each in pulled(broker, HALF_TOPIC)] == [b"taken"]


def test_a_disk_that_fails_ends_it_and_nothing_more_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = tmp_path / "slow"
    monkeypatch.setenv("SLOW_DISK", str(switch))
    with gateway(tmp_path, job=SLOW_DISK) as running, Producer(running.address, "group", nothing) as producer:
        sent = [producer.send("orders", b"acknowledged") for _ in range(2)]
        producer.end_surely(sent[0], "COMMIT")
        switch.write_text("fail")
        for attempt in (lambda: producer.send("orders", b"never"), lambda: producer.end_surely(sent[1], "COMMIT")):
            with pytest.raises(TransientError, match=r"no answer|connection"):
                attempt()
        assert running.process.wait(10) == DISK_FAILED
        assert "the log cannot be written, so this process ends" in running.log.read_text()
    with gateway(tmp_path) as running, asked(running.address) as broker:
        assert [each["body"] for each in pulled(broker, "orders")] == [b"acknowledged"]
        assert [each["body"] for each in pulled(broker, HALF_TOPIC)][:2] == [b"acknowledged"] * 2


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def answer_to_a_send(running: RunningGateway, body: bytes) -> Frame:
    properties = packed({"TRAN_MSG": "true", "UNIQ_KEY": "L" * 32, "PGROUP": "group"})
    header = SendMessageV2("group", "orders", 0, TRANSACTION_PREPARED, 1, 0, properties=properties)
    with connected(running) as one:
        one.sendall(Frame(header.code, 0, 1, header.fields(), body=body).packed())
        splitter = Splitter(1 << 20)
        while not (found := splitter.feed(one.recv(1 << 16))):
            pass
    return found[0]


# ---- repeated sends ----


def test_a_repeated_send_is_a_transaction_of_its_own(tmp_path: Path) -> None:
    """As at a broker: a client that got no answer sends again with the same UNIQ_KEY, and ends what it got to know."""
    again = {"UNIQ_KEY": "A" * 32}
    with gateway(tmp_path) as running, Producer(running.address, "group", nothing) as producer:
        lost, known = (producer.send("orders", b"x", again) for _ in range(2))
        assert lost.transaction_id == known.transaction_id
        assert (lost.queue_offset, known.queue_offset) == (0, 1)
        producer.end_surely(known, "COMMIT")
        with asked(running.address) as broker:
            assert [each["UNIQ_KEY"] for each in pulled(broker, "orders")] == ["A" * 32]
        producer.end_surely(lost, "ROLLBACK")  # when it is asked about it
        with asked(running.address) as broker:
            assert [each["UNIQ_KEY"] for each in pulled(broker, "orders")] == ["A" * 32]


# ---- many connections ----


@contextmanager
def connected(running: RunningGateway) -> Iterator[socket.socket]:
    host, _, number = running.address.rpartition(":")
    with socket.create_connection((host, int(number)), 10) as one:
        yield one


@pytest.mark.slow
def test_ten_thousand_connections_and_not_one_more(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < MANY + 1_100:
        pytest.skip(f"this machine allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, hard))  # the gateway raises its own
    held: list[socket.socket] = []
    try:
        with gateway(tmp_path) as running:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            before = running.memory
            heartbeat = b'{"clientID":"c","producerDataSet":[{"groupName":"g"}]}'
            for _ in range(MANY - 9):
                held.append(socket.create_connection(address_of(running), 10))
                held[-1].sendall(Frame(RequestCode.HEART_BEAT, 0, 1, {}, body=heartbeat).packed())
            assert all(each.recv(4096) for each in held)
            each = (running.memory - before) / len(held)
            record_property("bytes_a_connection", round(each))
            assert each < MOST_BYTES_EACH, each
            with closing(Generator(running.address, 8)) as generator:
                assert generator.run(2_000).refused == 0
                with Producer(running.address, "good", nothing) as good:
                    assert good.send("orders", b"x").topic == "orders"
                    with connected(running) as one, suppress(ConnectionError):
                        assert one.recv(1) == b""
    finally:
        for each_socket in held:
            each_socket.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def address_of(running: RunningGateway) -> tuple[str, int]:
    host, _, number = running.address.rpartition(":")
    return host, int(number)
