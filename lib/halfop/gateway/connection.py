"""A connection of a client: frames in, frames out, and the limits that keep one client from harming the others."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from halfop.gateway.accounts import Account
from halfop.rocketmq.frames import BadFrame, Frame, Splitter
from halfop.rocketmq.message import host_bytes

_log = logging.getLogger("halfop.gateway")


class House(Protocol):
    """The server of the connections."""

    max_frame: int
    unsent_bytes: int

    def now(self) -> float: ...

    def opened(self, channel: Channel) -> None: ...

    def handle(self, channel: Channel, request: Frame) -> None: ...

    def holds(self, channel: Channel, held: int) -> None: ...

    def writable(self, channel: Channel) -> None: ...

    def closed(self, channel: Channel, bad_frame: BadFrame | None) -> None: ...


class Channel(asyncio.Protocol):
    """One connection. `client` is the client's own id, or its address until it has given one."""

    def __init__(self, house: House) -> None:
        self._house, self._splitter = house, Splitter(house.max_frame)
        self.groups: set[str] = set()
        self.account: Account | None = None  # whose key signed the last request; none if clients need no key
        self.client, self.host, self.form = "", b"", 0
        self.heard = house.now()
        self.began: float | None = None
        self.held = 0  # bytes of a frame that has begun
        self.reads, self.reading = deque[Callable[[], bytes]](), 0  # reads that wait, and that are under way
        self._requests = deque[Frame]()  # that wait until the client has taken answers
        self._bad: BadFrame | None = None
        self._full = self._paused = False

    # ---- called by the loop ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's have no common class
        peer = transport.get_extra_info("peername")  # none if the client has disconnected meanwhile
        if peer is None:
            transport.abort()
            return
        self._house.opened(self)
        transport.set_write_buffer_limits(self._house.unsent_bytes)
        address, port, *_ = peer
        self.host, self.client = host_bytes(address, port), f"{address}:{port}"

    def data_received(self, data: bytes) -> None:
        self.heard = self._house.now()
        try:
            requests = self._splitter.feed(data)
        except BadFrame as error:
            self._bad = error
            self.close()
            return
        if not (held := self._splitter.held):
            self.began = None
        elif requests or self.began is None:
            self.began = self.heard
        self._requests += requests
        self._handle()
        if held != self.held:
            self._house.holds(self, held)

    def pause_writing(self) -> None:
        self._full = True
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        self._house.writable(self)
        self._handle()
        if self.is_open:
            self._paused = False
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._requests.clear()
        self.reads.clear()
        self._house.closed(self, self._bad)

    def _handle(self) -> None:
        """Handles requests as long as the client takes answers: few bytes of them may be answered with many."""
        while self._requests and self.is_open:
            request = self._requests.popleft()
            self.form = request.form
            self._house.handle(self, request)

    # ---- called by the house ----

    def may_send(self, topic: str) -> bool:
        """Returns whether the client may send to the topic, and so may see the messages of its group there."""
        return self.account is None or self.account.may("PUB", topic)

    @property
    def is_open(self) -> bool:
        """Whether a frame that is sent now will go out soon."""
        return not self._full and not self._transport.is_closing()

    def send(self, frame: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame)

    def close(self) -> None:
        """Drops the connection, with what has not been sent."""
        self._transport.abort()

    def finish(self) -> None:
        """Closes the connection once all is sent."""
        self._transport.close()
