"""The connections of a gateway: frames in, frames out, and the limits that keep one client from harming the others."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, cast

from halfop.gateway.core.clients import Client
from halfop.gateway.core.effects import Counts, Read
from halfop.rocketmq.frames import FRAME_ROOM, BadFrame, Frame, Splitter
from halfop.rocketmq.message import host_bytes
from halfop.settings.gateway import GatewaySettings

_PAUSE = 0.1  # seconds, after a connection that could not be accepted
_log = logging.getLogger("halfop.gateway")


class Calls(NamedTuple):
    """The calls that connections make: for each request, when a client takes answers again, when one is lost."""

    handle: Callable[[Channel, Frame], None]
    writable: Callable[[Channel], None]
    left: Callable[[Client], None]


class Channel(asyncio.Protocol):
    """One connection."""

    def __init__(self, owner: Connections) -> None:
        self._owner, self._splitter = owner, Splitter(owner.max_frame)
        self.client = Client(b"", "")
        self.heard = time.monotonic()
        self.began: float | None = None
        self.held = 0  # bytes of a frame that has begun
        self.reads, self.reading = deque[Read](), 0  # reads that wait, and that are under way
        self._requests = deque[Frame]()  # that wait until the client has taken answers
        self._bad: BadFrame | None = None
        self._paused = False

    # ---- called by the loop ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's have no common class
        peer = transport.get_extra_info("peername")  # none if the client has disconnected meanwhile
        if peer is None:
            transport.abort()
            return
        self._owner.opened(self)
        transport.set_write_buffer_limits(self._owner.own.unsent_bytes)
        address, port, *_ = peer
        self.client.host, self.client.name = host_bytes(address, port), f"{address}:{port}"

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
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
            self._owner.holds(self, held)

    def pause_writing(self) -> None:
        self.client.is_open = False
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.client.is_open = not self._transport.is_closing()
        self._owner.calls.writable(self)
        self._handle()
        if self.is_open:
            self._paused = False
            self._transport.resume_reading()

    def eof_received(self) -> None:
        self.client.is_open = False

    def connection_lost(self, error: Exception | None) -> None:
        self._requests.clear()
        self.reads.clear()
        self._owner.closed(self, self._bad)

    def _handle(self) -> None:
        """Handles requests as long as the client takes answers: few bytes of them may be answered with many."""
        while self._requests and self.is_open:
            request = self._requests.popleft()
            self.client.form = request.form
            self._owner.calls.handle(self, request)

    # ---- called by the gateway ----

    @property
    def is_open(self) -> bool:
        """Whether a frame that is sent now will go out soon."""
        return self.client.is_open and not self._transport.is_closing()

    def send(self, frame: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame)

    def close(self) -> None:
        """Drops the connection, with what has not been sent."""
        self.client.is_open = False
        self._transport.abort()

    def finish(self) -> None:
        """Closes the connection once all is sent."""
        self.client.is_open = False
        self._transport.close()


class Connections:
    """All connections. Everything here is called in the loop's thread."""

    def __init__(self, own: GatewaySettings, counts: Counts, calls: Calls) -> None:
        self.own, self._counts, self.calls = own, counts, calls
        self.max_frame, self._room = own.max_body + FRAME_ROOM, own.max_connections
        self._frame_seconds, self._idle_seconds = own.frame_time.total_seconds(), own.idle_time.total_seconds()
        self._loop = asyncio.get_running_loop()
        self._channels: dict[Client, Channel] = {}
        self._entering: dict[Channel, asyncio.Task[None]] = {}  # until their TLS handshake is done
        self._begun = 0  # bytes of frames that have begun

    def __len__(self) -> int:
        return len(self._channels) + len(self._entering)

    def get(self, client: Client) -> Channel | None:
        """The client's connection; None if it has ended."""
        return self._channels.get(client)

    async def accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Takes clients' connections until it is cancelled. One has its place before its TLS handshake."""
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(listening)
            except OSError as error:
                _log.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(_PAUSE)
                continue
            if len(self) < self._room:
                channel = Channel(self)
                self._entering[channel] = self._loop.create_task(self._enter(channel, accepted, tls))
            else:
                self._counts.connections_refused += 1
                accepted.close()

    async def _enter(self, channel: Channel, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        patience = self._frame_seconds if tls else None
        try:
            await self._loop.connect_accepted_socket(lambda: channel, accepted, ssl=tls, ssl_handshake_timeout=patience)
        except OSError as error:  # ssl.SSLError is one
            _log.info("a connection ended before it began: %s", error)
        finally:
            self._entering.pop(channel, None)

    def look_after(self) -> None:
        """Drops connections that take too long for a frame, or are silent for too long."""
        now = time.monotonic()
        for channel in list(self._channels.values()):
            began = channel.began
            if began is not None and now - began > self._frame_seconds:
                _log.info("connection of %s closed: its frame took too long", channel.client.name)
                channel.close()
            elif now - channel.heard > self._idle_seconds:
                _log.info("connection of %s closed: it was silent for too long", channel.client.name)
                channel.close()

    def finish(self) -> None:
        """Closes all connections once their answers are sent."""
        for channel in list(self._channels.values()):
            channel.finish()

    # ---- called by channels ----

    def opened(self, channel: Channel) -> None:
        self._entering.pop(channel, None)
        self._channels[channel.client] = channel

    def holds(self, channel: Channel, held: int) -> None:
        """Notes the bytes that a channel holds of a frame; if all are too many, drops the channel that holds most."""
        self._begun += held - channel.held
        channel.held = held
        if self._begun > self.own.begun_bytes:
            largest = max(self._channels.values(), key=lambda each: each.held)
            name = largest.client.name
            _log.info("connection of %s closed: frames have begun everywhere, its has most bytes", name)
            self.holds(largest, 0)
            largest.close()

    def closed(self, channel: Channel, bad_frame: BadFrame | None) -> None:
        self._channels.pop(channel.client, None)
        self._begun -= channel.held
        self.calls.left(channel.client)
        if bad_frame is not None:
            self._counts.bad_frames += 1
            _log.info("connection of %s closed: %s", channel.client.name, bad_frame)
