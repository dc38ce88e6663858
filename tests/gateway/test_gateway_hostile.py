"""A gateway among hostile clients: it lives, its memory stays, and a good client is served as before."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from halfop.gateway.producer import Producer, Refusal, StoredHalf
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC, RequestCode
from halfop.rocketmq.requests import COMMIT_TYPE, EndTransaction
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.remoting import RemotingSettings
from support.gateway.clients import nothing
from support.gateway.gateway_load import Generator, Load
from support.gateway.gateways import RunningGateway, gateway, pulled
from support.places import IMPORTS, PROGRAMS
from support.seeds import SEED

MOST_GROWTH = 64 << 20
PROBES = 1500  # transactions of a measure
CONTENT = bytes(97 + n % 26 for n in range(200))  # of the load's messages


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningGateway]:
    with gateway(tmp_path, "--set", "gateway.frame_time=2s") as found:
        yield found
        assert found.process.poll() is None
        assert found.stop() == 0
        assert "Traceback" not in found.log.read_text()


def connected(running: RunningGateway) -> socket.socket:
    host, _, number = running.address.rpartition(":")
    return socket.create_connection((host, int(number)), 10)


def p99_of_a_good_client(running: RunningGateway) -> float:
    with closing(Generator(running.address, 8)) as generator:
        load = generator.run(PROBES)
    assert load.refused == 0
    return load.percentile(0.99)


@dataclass
class Good:
    """A client's transactions on topic `good`: some that it has ended, and some that stay open."""

    producer: Producer
    committed: list[StoredHalf]
    rolled_back: list[StoredHalf]
    open: list[StoredHalf]

    @classmethod
    def made(cls, producer: Producer) -> Good:
        def sent(kind: str) -> list[StoredHalf]:
            return [producer.send("good", f"{kind}{n}".encode()) for n in range(20)]

        made = cls(producer, sent("committed"), sent("rolled back"), sent("open"))
        for kind, ended in (("COMMIT", made.committed), ("ROLLBACK", made.rolled_back)):
            for each in ended:
                producer.end_surely(each, kind)  # type: ignore[arg-type]
        return made

    @property
    def aims(self) -> list[tuple[int, int, str]]:
        """The places of all of them, at which others may aim."""
        found = (*self.committed, *self.rolled_back, *self.open)
        return [(each.queue_offset, each.physical_offset, "good") for each in found]


@dataclass
class Beside:
    """The view of a good client while a hostile one was at work, and the report of that one."""

    waited: list[float]
    report: dict[str, Any]

    @property
    def p99(self) -> float:
        return Load(waited=self.waited).percentile(0.99)


def attacked(running: RunningGateway, frames: int, aims: list[tuple[int, int, str]]) -> Beside:
    """A hostile client's frames from a process of its own, beside transactions of a good client."""
    given = {"address": running.address, "seed": SEED, "frames": frames, "aims": aims}
    environment = os.environ | IMPORTS
    command, waited = [sys.executable, str(PROGRAMS / "hostile_client.py")], list[float]()
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as hostile,
        closing(Generator(running.address, 8)) as generator,
    ):
        assert hostile.stdin
        hostile.stdin.write(json.dumps(given))
        hostile.stdin.close()
        assert hostile.stdout
        with ThreadPoolExecutor(1) as pool:
            said = pool.submit(hostile.stdout.read)
            while not said.done():
                load = generator.run(200)
                assert load.refused == 0
                waited += load.waited
            assert hostile.wait() == 0
            return Beside(waited, json.loads(said.result()))


def closed(running: RunningGateway) -> Counter[str]:
    """Connections that the gateway has closed for a bad frame, by what refused it: its own log shows them."""
    log = running.log.read_text()
    return Counter({"prefix": log.count("closed: a frame of "), "decoder": log.count("closed: a header ")})


@pytest.mark.parametrize(
    ("frames", "slack"),
    [
        (2_000, 200.0),  # other tests run beside it
        pytest.param(100_000, 20.0, marks=pytest.mark.slow),
    ],
)
def test_mutated_frames(tmp_path: Path, frames: int, slack: float) -> None:
    with gateway(tmp_path) as running, Producer(running.address, "good", nothing) as producer:
        good = Good.made(producer)
        before, start = p99_of_a_good_client(running), running.memory
        found = attacked(running, frames, good.aims)
        end, refused, fates = running.memory, closed(running), Counter(found.report["fates"])
        print(f"{frames} frames: {refused['decoder']} refused by the decoder, {dict(fates)}")
        print(f"besides, {refused['prefix']} refused by the length prefix")
        print(f"{start >> 20} MiB before, {end >> 20} after; p99 {before} ms alone, {found.p99} ms beside it")
        assert refused["decoder"] + fates.total() == frames, "each frame reached the decoder or the handlers"
        assert fates.total() > frames / 2, "most reached the handlers"
        assert refused["prefix"] > frames / 1000
        assert end - start < MOST_GROWTH
        assert found.p99 < 3 * before + slack
        until_committed(running, PROBES + len(found.waited))
        running.kill()
        assert "Traceback" not in running.log.read_text()
    with gateway(tmp_path) as running, Producer(running.address, "good", nothing) as producer:
        in_the_log(running, found.report)
        unchanged(running, producer, good, PROBES + len(found.waited))
        assert running.stop() == 0


def test_refused_requests_leave_nothing_in_memory(tmp_path: Path) -> None:
    unknown = EndTransaction("g", 0, 7, COMMIT_TYPE)
    with gateway(tmp_path) as running, Producer(running.address, "g", nothing) as producer:
        start = running.memory
        for _ in range(2_000):
            with pytest.raises(Refusal, match="Find prepared transaction message failed"):
                producer.ask(unknown, bytes(50_000))
        assert running.memory - start < 20 << 20


def until_committed(running: RunningGateway, transactions: int) -> None:
    """Waits for the commits of the load, which are sent one-way."""
    patience = time.monotonic() + 10
    with closing(Broker(running.address, RemotingSettings())) as broker:
        while sum(broker.max_offset("load", queue) for queue in range(4)) < transactions:
            assert time.monotonic() < patience


def in_the_log(running: RunningGateway, report: dict[str, Any]) -> None:
    """All that was acknowledged to the hostile client is there."""
    with closing(Broker(running.address, RemotingSettings())) as broker:
        keys = [each["UNIQ_KEY"] for each in pulled(broker, HALF_TOPIC)]
        ended = {int(each["body"]) for each in pulled(broker, OP_TOPIC)}
    assert report["sent"]
    assert [keys[offset] for offset, _ in report["sent"]] == [key for _, key in report["sent"]]
    assert report["ended"]
    assert set(report["ended"]) <= ended


def unchanged(running: RunningGateway, producer: Producer, good: Good, transactions: int) -> None:
    """The good client's transactions are as that has left them, and those that are open can be ended."""
    with closing(Broker(running.address, RemotingSettings())) as broker:
        loaded = [each["body"] for queue in range(4) for each in pulled(broker, "load", queue)]
        assert len(loaded) == transactions
        assert set(loaded) == {CONTENT}
        outcomes = {int(each["body"]): each["END_OUTCOME"] for each in pulled(broker, OP_TOPIC)}
        expected = (("COMMIT", good.committed), ("ROLLBACK", good.rolled_back), (None, good.open))
        assert all({outcomes.get(each.queue_offset) for each in of} == {kind} for kind, of in expected)
        for each in good.open:
            producer.end_surely(each, "COMMIT")
        bodies = Counter(each["body"] for queue in range(4) for each in pulled(broker, "good", queue))
    assert bodies == Counter(f"{kind}{n}".encode() for kind in ("committed", "open") for n in range(20))


@contextmanager
def trouble(running: RunningGateway) -> Iterator[None]:
    """Slow frames, lengths of 2 GiB, and peers that take nothing, while the block runs."""
    over = Event()

    def make() -> None:
        held: list[socket.socket] = []
        while not over.wait(0.005):
            one = connected(running)
            one.setblocking(False)
            held.append(one)
            with suppress(OSError):
                kind = len(held) % 3
                if kind == 0:
                    one.sendall(struct.pack(">II", 1_000_000, 1000) + b"{")
                elif kind == 1:
                    one.sendall(struct.pack(">II", 0x7FFFFFFF, 100) + b"x" * 1000)
                else:
                    one.sendall(Frame(RequestCode.GET_ALL_TOPIC_CONFIG, 0, 1, {}).packed() * 200)
            if len(held) > 600:
                held.pop(0).close()
        for each in held:
            each.close()

    thread = Thread(target=make)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_slow_frames_great_lengths_and_peers_that_take_nothing(running: RunningGateway) -> None:
    before, start = p99_of_a_good_client(running), running.memory
    with trouble(running):
        assert all(p99_of_a_good_client(running) < 3 * before + 20 for _ in range(5))
    assert running.memory - start < MOST_GROWTH
