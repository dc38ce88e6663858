"""Servers that speak RocketMQ's remoting protocol as badly as a test wants."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from halfop.rocketmq.frames import ANSWER, Frame, Splitter

# Serves one connection until it returns or the client goes away.
Script = Callable[["Peer"], None]


def frame(
    opaque: int, code: int = 0, body: bytes = b"", *, remark: str = "", flag: int = ANSWER, **fields: object
) -> bytes:
    texts = {name: str(value) for name, value in fields.items()}
    return Frame(code, flag, opaque, texts, remark, body).packed()


class Peer:
    """The server's end of a connection. `number` counts connections from 0."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        self._connection, self.number = connection, number
        self._splitter, self._came = Splitter(1 << 26), deque[Frame]()

    def requests(self) -> Iterator[Frame]:
        while True:
            while self._came:
                yield self._came.popleft()
            if not (data := self._connection.recv(1 << 16)):
                return
            self._came += self._splitter.feed(data)

    def request(self) -> Frame:
        return next(self.requests())

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """The address of a server that runs `script` for each connection, one after another."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, script), daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, script: Script) -> None:
    number = 0
    with suppress(OSError):  # the listener's end
        while True:
            connection = listener.accept()[0]
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection, suppress(OSError, StopIteration):
                script(Peer(connection, number))
            number += 1


def answering(answer: Callable[[Frame], bytes | Mapping[str, Any]]) -> Script:
    """Answers each request by `answer`: a body, or what `frame` takes."""

    def script(peer: Peer) -> None:
        for asked in peer.requests():
            told = answer(asked)
            peer.send(frame(asked.opaque, **({"body": told} if isinstance(told, bytes) else told)))

    return script
