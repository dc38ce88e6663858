"""Half messages as frames of our own: from a host of the loopback network, and born by that host's clock."""

from __future__ import annotations

import socket
import time
from itertools import count

from halfop.rocketmq.frames import Frame, Splitter
from halfop.rocketmq.names import TRANSACTION_PREPARED, AnswerCode
from halfop.rocketmq.properties import packed
from halfop.rocketmq.requests import SendMessageV2

_NUMBERS = count(1)


def send(address: str, host: str, group: str, topic: str, number: int, *, ahead_ms: int = 0) -> None:
    """Sends so many half messages, which nobody ends."""
    broker, _, port = address.rpartition(":")
    with socket.create_connection((broker, int(port)), 30, source_address=(host, 0)) as made:
        for _ in range(number):
            made.sendall(_half(group, topic, int(time.time() * 1000) + ahead_ms))
            answer = _answer(made)
            assert answer.code == AnswerCode.SUCCESS, answer


def _half(group: str, topic: str, born: int) -> bytes:
    properties = {"TRAN_MSG": "true", "UNIQ_KEY": f"{next(_NUMBERS):032X}", "PGROUP": group}
    header = SendMessageV2(group, topic, 0, TRANSACTION_PREPARED, born, 0, properties=packed(properties))
    return Frame(header.code, 0, 1, header.fields(), body=b"sent as a frame").packed()


def _answer(made: socket.socket) -> Frame:
    splitter = Splitter(1 << 20)
    while not (found := splitter.feed(made.recv(1 << 16))):
        pass
    return found[0]
