"""The connections of a gateway, and the clocks that look after them."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from halfop.frame.errors import TransientError
from halfop.gateway.connection import Channel
from halfop.gateway.namesrv import NameServers
from halfop.gateway.producers import Producers
from halfop.gateway.refused import Refused
from halfop.gateway.service import Service
from halfop.gateway.tallies import Tallies
from halfop.rocketmq.codes import AnswerCode
from halfop.rocketmq.frames import BadFrame, Frame

_MOST_ROUTES = 100  # that are being asked for
_READS_AT_ONCE = 2  # of a connection
_PAUSE = 0.1  # seconds, after a connection that could not be accepted
_log = logging.getLogger("halfop.gateway")


@dataclass(frozen=True)
class Bounds:
    """The limits of one connection; times in seconds."""

    max_frame: int
    unsent_bytes: int
    begun_bytes: int
    connections: int
    frame_seconds: float
    idle_seconds: float


class House:
    """All connections. Everything here is called in the loop's thread."""

    def __init__(self, bounds: Bounds, producers: Producers, tallies: Tallies, upstream: NameServers | None) -> None:
        self._bounds, self._producers, self._tallies, self._upstream = bounds, producers, tallies, upstream
        self.max_frame, self.unsent_bytes = bounds.max_frame, bounds.unsent_bytes
        self.service: Service | None = None
        self.now = time.monotonic
        self._loop = asyncio.get_running_loop()
        self._channels: set[Channel] = set()
        self._entering: dict[Channel, asyncio.Task[None]] = {}  # until their TLS handshake is done
        self._readers = ThreadPoolExecutor(1, "gateway-reads")
        self._routes: set[asyncio.Task[None]] = set()
        self._begun = 0  # bytes of frames that have begun

    def __len__(self) -> int:
        return len(self._channels) + len(self._entering)

    # ---- of connections ----

    async def accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Takes clients' connections until it is cancelled. One has its place before its TLS handshake."""
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(listening)
            except OSError as error:
                _log.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(_PAUSE)
                continue
            if len(self) < self._bounds.connections:
                channel = Channel(self)
                self._entering[channel] = self._loop.create_task(self._enter(channel, accepted, tls))
            else:
                self._tallies.connections_refused += 1
                accepted.close()

    async def _enter(self, channel: Channel, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        patience = self._bounds.frame_seconds if tls else None
        try:
            await self._loop.connect_accepted_socket(lambda: channel, accepted, ssl=tls, ssl_handshake_timeout=patience)
        except OSError as error:  # ssl.SSLError is one
            _log.info("a connection ended before it began: %s", error)
        finally:
            self._entering.pop(channel, None)

    def opened(self, channel: Channel) -> None:
        self._entering.pop(channel, None)
        self._channels.add(channel)

    def holds(self, channel: Channel, held: int) -> None:
        """Notes the bytes that a channel holds of a frame; if all are too many, drops the channel that holds most."""
        self._begun += held - channel.held
        channel.held = held
        if self._begun > self._bounds.begun_bytes:
            largest = max(self._channels, key=lambda each: each.held)
            _log.info("connection of %s closed: frames have begun everywhere, its has most bytes", largest.client)
            self.holds(largest, 0)
            largest.close()

    def handle(self, channel: Channel, request: Frame) -> None:
        if self.service is not None:
            self.service.handle(channel, request)

    def closed(self, channel: Channel, bad_frame: BadFrame | None) -> None:
        self._channels.discard(channel)
        self._begun -= channel.held
        self._producers.remove(channel.groups, channel)
        if bad_frame is not None:
            self._tallies.bad_frames += 1
            _log.info("connection of %s closed: %s", channel.client, bad_frame)

    def look_after(self) -> None:
        """Drops connections that take too long for a frame, or are silent for too long."""
        now = self.now()
        for channel in list(self._channels):
            began = channel.began
            if began is not None and now - began > self._bounds.frame_seconds:
                _log.info("connection of %s closed: its frame took too long", channel.client)
                channel.close()
            elif now - channel.heard > self._bounds.idle_seconds:
                _log.info("connection of %s closed: it was silent for too long", channel.client)
                channel.close()

    def finish(self) -> None:
        """Closes all connections once their answers are sent."""
        for channel in list(self._channels):
            channel.finish()
        self._readers.shutdown(wait=False, cancel_futures=True)

    # ---- work that would hold up the loop ----

    def read(self, channel: Channel, request: Frame, read: Callable[[], bytes]) -> None:
        """Answers the request from another thread."""

        def work() -> bytes:
            try:
                return read()
            except Refused as error:
                return request.answer(error.code, remark=error.remark)
            except Exception:
                _log.exception("request %s of %s failed", request.code, channel.client)
                return request.answer(AnswerCode.SYSTEM_ERROR, remark="the gateway failed at it: its log says why")

        channel.reads.append(work)
        self.writable(channel)

    def writable(self, channel: Channel) -> None:
        """Begins reads that wait: few at a time, and none while the client takes no answers, which are long."""
        while channel.reads and channel.reading < _READS_AT_ONCE and channel.is_open:
            channel.reading += 1
            self._readers.submit(self._work, channel, channel.reads.popleft())

    def _work(self, channel: Channel, read: Callable[[], bytes]) -> None:
        frame = read()

        def done() -> None:
            channel.reading -= 1
            channel.send(frame)
            self.writable(channel)

        self._loop.call_soon_threadsafe(done)

    def route(self, channel: Channel, request: Frame, topic: str) -> bool:
        """Answers with the given name servers' route; False if there are none."""
        if self._upstream is None:
            return False
        if len(self._routes) >= _MOST_ROUTES:
            raise Refused(AnswerCode.SYSTEM_BUSY, "[OVERLOAD]too many routes are being asked for")
        task = self._loop.create_task(self._ask_route(self._upstream, channel, request, topic))
        self._routes.add(task)
        task.add_done_callback(self._routes.discard)
        return True

    async def _ask_route(self, upstream: NameServers, channel: Channel, request: Frame, topic: str) -> None:
        try:
            found = await upstream.route(topic)
            channel.send(request.answer(found.code, found.fields, found.remark, found.body))
        except TransientError as error:
            channel.send(request.answer(AnswerCode.SYSTEM_ERROR, remark=str(error)))
