"""A light generator of load for a gateway: transactions over many connections, each sent after the answer before it."""

from __future__ import annotations

import re
import selectors
import socket
import time
from dataclasses import dataclass, field

from halfop.rocketmq.frames import ONE_WAY, Frame
from halfop.rocketmq.names import TRANSACTION_PREPARED
from halfop.rocketmq.properties import packed
from halfop.rocketmq.requests import COMMIT_TYPE, EndTransaction, SendMessageV2

_OFFSETS = re.compile(rb'"msgId":"[0-9A-F]{16}([0-9A-F]{16})".*?"queueOffset":"(\d+)"')
_RECEIVED = 1 << 16
# as a client of 5.3.3 sends it
_PROPERTIES = {
    "KEYS": "key-1",
    "TRAN_MSG": "true",
    "UNIQ_KEY": "U" * 32,
    "WAIT": "true",
    "PGROUP": "load",
    "TAGS": "tag",
}


@dataclass
class Load:
    """The measure of a load: seconds from the send of each transaction's half message to its answer."""

    seconds: float = 0.0
    waited: list[float] = field(default_factory=list)
    refused: int = 0

    def percentile(self, part: float) -> float:
        """Milliseconds that this part of the transactions did not exceed."""
        ordered = sorted(self.waited)
        return round(ordered[min(int(len(ordered) * part), len(ordered) - 1)] * 1000, 2)

    @property
    def a_second(self) -> float:
        return len(self.waited) / self.seconds


class Generator:
    """Connections to an address, through which transactions run."""

    def __init__(self, address: str, connections: int, body: int = 200) -> None:
        host, _, number = address.rpartition(":")
        self._selector, self._sockets = selectors.DefaultSelector(), list[socket.socket]()
        for _ in range(connections):
            made = socket.create_connection((host, int(number)), 30)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(made, selectors.EVENT_READ)
            self._sockets.append(made)
        content = bytes(97 + n % 26 for n in range(body))
        self._sends = [_send(queue, content) for queue in range(4)]

    def run(self, transactions: int) -> Load:
        """Sends so many half messages, and commits each once its send is answered."""
        load, began, sent = Load(), dict[int, float](), 0
        start = time.perf_counter()
        for each in self._sockets[:transactions]:
            sent, began[each.fileno()] = sent + 1, time.perf_counter()
            each.sendall(self._sends[sent % 4])
        while len(load.waited) + load.refused < transactions:
            for key, _ in self._selector.select(30):
                one = self._sockets_of(key.fileobj)
                found = _OFFSETS.search(one.recv(_RECEIVED))
                now, frames = time.perf_counter(), b""
                if found is None:
                    load.refused += 1
                else:
                    load.waited.append(now - began[one.fileno()])
                    frames = _end(int(found[1], 16), int(found[2]))
                if sent < transactions:
                    sent, began[one.fileno()] = sent + 1, now
                    frames += self._sends[sent % 4]
                if frames:
                    one.sendall(frames)
        load.seconds = time.perf_counter() - start
        return load

    def close(self) -> None:
        self._selector.close()
        for each in self._sockets:
            each.close()

    @staticmethod
    def _sockets_of(found: object) -> socket.socket:
        assert isinstance(found, socket.socket)
        return found


def _send(queue: int, body: bytes) -> bytes:
    born, text = 1_795_394_985_362, packed(_PROPERTIES)
    header = SendMessageV2("load", "load", queue, TRANSACTION_PREPARED, born, 0, properties=text)
    return Frame(header.code, 0, 1, header.fields(), body=body).packed()


def _end(physical_offset: int, queue_offset: int) -> bytes:
    """The frame of a commit; its numbers have so many digits that it has always the same lengths."""
    return _END % (queue_offset, physical_offset)


def _end_form() -> bytes:
    header = EndTransaction("load", 0, 0, COMMIT_TYPE, msg_id="U" * 32, transaction_id="U" * 32)
    numbers = {"tranStateTableOffset": "Q" * 19, "commitLogOffset": "P" * 19}
    form = Frame(header.code, ONE_WAY, 1, header.fields() | numbers).packed()
    return form.replace(b"%", b"%%").replace(b"Q" * 19, b"%019d").replace(b"P" * 19, b"%019d")


_END = _end_form()
