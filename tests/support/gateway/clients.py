"""What speaks to a gateway beside its producers: connections, reads, its pages; and answers to its questions."""

from __future__ import annotations

import queue
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager

from halfop.gateway.producer import Answer, Question
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.remoting import RemotingSettings

SECONDS = 20.0


def nothing(question: Question) -> Answer:
    """A producer that does not know how its transactions ended."""
    return "UNKNOWN"


class Asked:
    """A producer's memory of questions, and what it answers."""

    def __init__(self, answer: Answer = "COMMIT") -> None:
        self.answer, self.questions = answer, queue.Queue[Question]()

    def __call__(self, question: Question) -> Answer:
        self.questions.put(question)
        return self.answer


@contextmanager
def asked(address: str) -> Iterator[Broker]:
    """A client that reads, as it reads a broker."""
    with closing(Broker(address, RemotingSettings())) as broker:
        yield broker


def raw(address: str, source: str = "127.0.0.1") -> socket.socket:
    """A connection of which the test writes each byte; `source` is its own address."""
    host, _, number = address.rpartition(":")
    return socket.create_connection((host, int(number)), SECONDS, (source, 0))


def free() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def page(address: str, name: str) -> str:
    """The text of one of its pages."""
    with urllib.request.urlopen(f"http://{address}/{name}", timeout=SECONDS) as found:
        return str(found.read().decode())
