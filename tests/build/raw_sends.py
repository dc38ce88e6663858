"""Half messages as frames of our own: from a host of the loopback network, and born by that host's clock."""

from __future__ import annotations

import socket
import struct
import time
from itertools import count

from halfop.gateway.frames import JSON, written
from halfop.rocketmq.wire.codes import RequestCode

_NUMBERS = count(1)


def send(address: str, host: str, group: str, topic: str, number: int, *, ahead_ms: int = 0) -> None:
    """Sends so many half messages, which nobody ends."""
    broker, _, port = address.rpartition(":")
    with socket.create_connection((broker, int(port)), 30, source_address=(host, 0)) as made:
        for _ in range(number):
            made.sendall(_half(group, topic, int(time.time() * 1000) + ahead_ms))
            answer = _answer(made)
            assert b'"code":0' in answer, answer


def _half(group: str, topic: str, born: int) -> bytes:
    properties = {"TRAN_MSG": "true", "UNIQ_KEY": f"{next(_NUMBERS):032X}", "PGROUP": group}
    packed = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    fields = {"a": group, "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "4"}
    fields |= {"g": str(born), "h": "0", "i": packed, "j": "0", "k": "false", "m": "false"}
    return written(RequestCode.SEND_MESSAGE_V2, 0, 1, fields, JSON, body=b"sent as a frame")


def _answer(made: socket.socket) -> bytes:
    (length,) = struct.unpack(">I", _received(made, 4))
    return _received(made, length)


def _received(made: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = made.recv(size - len(found))
        assert part, "the broker has closed the connection"
        found += part
    return found
