"""A gateway among hostile clients: it lives, its memory stays, and a good client is served as before."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest
from gateway_load import Generator
from gateways import RunningGateway, gateway
from halfop.gateway import codes
from halfop.gateway.frames import BINARY, JSON, written
from seeds import SEED

pytestmark = pytest.mark.slow
FRAMES = 100_000
MOST_GROWTH = 64 << 20


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningGateway]:
    with gateway(tmp_path, "--set", "gateway.frame_time=2s") as found:
        yield found
        assert found.process.poll() is None
        assert found.stop() == 0
        assert "Traceback" not in found.log.read_text()


def memory(running: RunningGateway) -> int:
    """Bytes that the process has in memory."""
    lines = Path(f"/proc/{running.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def connected(running: RunningGateway) -> socket.socket:
    host, _, number = running.address.rpartition(":")
    return socket.create_connection((host, int(number)), 10)


def p99_of_a_good_client(running: RunningGateway) -> float:
    with closing(Generator(running.address, 8)) as generator:
        load = generator.run(1500)
    assert load.refused == 0
    return load.percentile(0.99)


def valid(draw: random.Random) -> bytes:
    """A frame that a client might send."""
    packed = "TRAN_MSG\x01true\x02UNIQ_KEY\x01U\x02PGROUP\x01g\x02"
    send = {"a": "g", "b": "t", "c": "TBW102", "d": "4", "e": "0", "f": "4", "g": "1", "h": "0", "i": packed}
    end = {"producerGroup": "g", "tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8"}
    pull = {"topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "subscription": "*"}
    found = {
        codes.SEND_MESSAGE_V2: send,
        codes.END_TRANSACTION: end,
        codes.PULL_MESSAGE: pull,
        codes.HEART_BEAT: {},
        codes.GET_ROUTEINFO_BY_TOPIC: {"topic": "t"},
        codes.VIEW_MESSAGE_BY_ID: {"offset": "0"},
        codes.QUERY_CONSUME_QUEUE: {"topic": "t", "queueId": "0", "index": "0", "count": "9"},
        codes.SEARCH_OFFSET_BY_TIMESTAMP: {"topic": "t", "queueId": "0", "timestamp": "1"},
    }
    code = draw.choice(list(found))
    body = b'{"clientID":"c","producerDataSet":[{"groupName":"g"}]}'
    return written(code, draw.choice([0, 2]), draw.randrange(100), found[code], draw.choice([JSON, BINARY]), body=body)


def mutated(draw: random.Random) -> bytes:
    """Such a frame with some bytes changed, cut, doubled, or with another value in a field."""
    frame = bytearray(valid(draw))
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(frame))
        how = draw.randrange(5)
        if how == 0:
            frame[at] = draw.randrange(256)
        elif how == 1:
            del frame[at : at + draw.randrange(1, 9)]
            frame = frame or bytearray(b"x")
        elif how == 2:
            frame[at:at] = frame[at : at + draw.randrange(1, 40)]
        elif how == 3:
            frame[at : at + 4] = struct.pack(">i", draw.choice([-1, 0, 1, 2**31 - 1, -(2**31), 65536]))
        else:
            frame = frame.replace(b'"0"', draw.choice([b'"-1"', b'"99999999999999999999"', b'"x"', b"null", b"[]"]), 1)
    return bytes(frame)


def test_mutated_frames(running: RunningGateway) -> None:
    draw = random.Random(SEED)
    before = p99_of_a_good_client(running)
    sent, start = 0, memory(running)
    while sent < FRAMES:
        with connected(running) as hostile, suppress(OSError):
            hostile.settimeout(5)
            for _ in range(draw.randrange(1, 200)):
                sent += 1
                hostile.sendall(mutated(draw))
            hostile.shutdown(socket.SHUT_WR)
            while hostile.recv(1 << 16):
                pass
    assert memory(running) - start < MOST_GROWTH
    assert p99_of_a_good_client(running) < 3 * before + 20


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
                    one.sendall(written(codes.GET_ALL_TOPIC_CONFIG, 0, 1, {}, JSON) * 200)
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


def test_slow_frames_great_lengths_and_peers_that_take_nothing(running: RunningGateway) -> None:
    before, start = p99_of_a_good_client(running), memory(running)
    with trouble(running):
        assert all(p99_of_a_good_client(running) < 3 * before + 20 for _ in range(5))
    assert memory(running) - start < MOST_GROWTH
