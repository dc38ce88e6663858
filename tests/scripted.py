"""Servers that speak RocketMQ's remoting protocol as badly as a test wants."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

# Serves one connection until it returns or the client goes away.
Script = Callable[["Peer"], None]


class Asked(NamedTuple):
    code: int
    opaque: int
    fields: dict[str, str]


def frame(
    opaque: int, code: int = 0, body: bytes = b"", *, remark: str | None = None, flag: int = 1, **fields: object
) -> bytes:
    header: dict[str, Any] = {"code": code, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 464}
    header |= {"remark": remark} if remark else {}
    header |= {"extFields": {name: str(value) for name, value in fields.items()}} if fields else {}
    text = json.dumps(header).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


class Peer:
    """The server's end of a connection. `number` counts connections from 0."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        self._connection, self._file, self.number = connection, connection.makefile("rb"), number

    def requests(self) -> Iterator[Asked]:
        while prefix := self._file.read(8):
            length, header_length = struct.unpack(">II", prefix)
            header = json.loads(self._file.read(header_length))
            self._file.read(length - 4 - header_length)
            yield Asked(header["code"], header["opaque"], header["extFields"])

    def request(self) -> Asked:
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
                peer = Peer(connection, number)
                with peer._file:
                    script(peer)
            number += 1


def answering(answer: Callable[[Asked], bytes | Mapping[str, Any]]) -> Script:
    """Answers each request by `answer`: a body, or what `frame` takes."""

    def script(peer: Peer) -> None:
        for asked in peer.requests():
            told = answer(asked)
            peer.send(frame(asked.opaque, **({"body": told} if isinstance(told, bytes) else told)))

    return script
