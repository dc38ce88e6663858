"""A way to a gateway that loses some answers: instead of a send's answer the client sees its connection end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from threading import Thread

from halfop.rocketmq.frames import Splitter


class Dropping:
    """Listens at `address`, passes all to and from `leads_to`, and drops every `nth` answer to a send."""

    def __init__(self, nth: int) -> None:
        self._nth, self._answers, self.dropped = nth, count(1), 0
        self._listening, free = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
        self.address, self.leads_to = (f"127.0.0.1:{each.getsockname()[1]}" for each in (self._listening, free))
        self._to = free.getsockname()
        free.close()
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._to, 10)
                server.settimeout(None)
                for work, pair in ((self._up, (client, server)), (self._down, (server, client))):
                    Thread(target=work, args=pair, daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with client, server, suppress(OSError):
            while data := client.recv(1 << 16):
                server.sendall(data)

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        splitter = Splitter(1 << 24)
        with client, server, suppress(OSError):
            while data := server.recv(1 << 16):
                if any(self._drops(frame.fields) for frame in splitter.feed(data)):
                    self.dropped += 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)

    def _drops(self, fields: dict[str, str]) -> bool:
        return "queueOffset" in fields and next(self._answers) % self._nth == 0


@contextmanager
def dropping(nth: int) -> Iterator[Dropping]:
    """A way that loses every nth answer to a send while the block runs."""
    way = Dropping(nth)
    try:
        yield way
    finally:
        way.close()
