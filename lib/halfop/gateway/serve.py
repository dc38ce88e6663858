"""A gateway from its start to SIGTERM: it opens its store, listens, and ends with everything answered."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import uvloop

from halfop.frame.errors import HalfopError, UsageError
from halfop.frame.summary import Summary
from halfop.gateway.accounts import read_accounts
from halfop.gateway.addresses import bound, host_bytes, resolved, shown
from halfop.gateway.asking import Asking, Manner
from halfop.gateway.connection import Channel
from halfop.gateway.frames import FRAME_ROOM
from halfop.gateway.house import Bounds, House
from halfop.gateway.log.log import Form, Log
from halfop.gateway.log.messages import Topic
from halfop.gateway.namesrv import NameServers
from halfop.gateway.pages import serve_pages
from halfop.gateway.producers import Producers
from halfop.gateway.questions import Asker
from halfop.gateway.reading import Broker
from halfop.gateway.safety import allow_connections, load_certificate, refuse_open, tls_context
from halfop.gateway.sends import Terms, is_legal
from halfop.gateway.service import Limits, Parts, Service
from halfop.gateway.tables import Tables
from halfop.gateway.tables import now as table_now
from halfop.gateway.tallies import Tallies
from halfop.gateway.upkeep import Upkeep
from halfop.gateway.waiting import Waiting
from halfop.rocketmq.wire.remoting import endpoint
from halfop.rocketmq.wire.security import Tls
from halfop.settings.model import Settings

_TICK, _LOOK = 0.1, 1.0
_NUMBERS = 1 << 16  # of addresses
_BACKLOG, _HANDSHAKE_SECONDS = 1024, 10.0
_log = logging.getLogger("halfop.gateway")


@dataclass(frozen=True)
class GatewayRequest:
    """The options of `gateway`: where it listens, its store and name, name servers, its role."""

    listen: str
    store: str
    name: str
    namesrv: str | None = None
    is_slave: bool = False
    insecure: bool = False


def serve(settings: Settings, request: GatewayRequest) -> Summary:
    """Serves producers until SIGTERM or SIGINT; returns what was done."""
    host, number = endpoint(request.listen)
    refuse_open(host, settings.gateway, request.insecure)
    if not is_legal(request.name):
        raise UsageError(f"--name {request.name}: expected letters, digits, %, |, _ and -, as a broker's name")
    if request.namesrv and not settings.gateway.topics:
        raise UsageError("--namesrv needs the topics that the gateway is to serve: give --topics T,…")
    if number >= _NUMBERS:
        raise UsageError(f"--listen {request.listen}: expected a number below {_NUMBERS}")
    tls = tls_context(settings.gateway)
    allow_connections(settings.gateway.max_connections)
    with bound(host, number) as listening:
        return uvloop.run(_Gateway(settings, request, tls).run(listening))


class _Gateway:
    """The parts of a running gateway."""

    def __init__(self, settings: Settings, request: GatewayRequest, tls: ssl.SSLContext | None) -> None:
        self._settings, self._own, self._request, self._tls = settings, settings.gateway, request, tls
        self._tallies, self._producers = Tallies(), Producers()
        self._waiting = Waiting(self._tallies.waited)
        self._accounts = read_accounts(self._own.acl_file) if self._own.acl_file else None
        self._stop = asyncio.Event()
        self._stopping = False

    async def run(self, listening: socket.socket) -> Summary:
        loop = asyncio.get_running_loop()
        address = self._own.advertise or shown(listening)
        upstream = self._upstream()
        broker, self._log = self._opened(loop, address)
        try:
            topics = self._topics()
            if upstream:
                await upstream.refuse_served(topics, broker)
            self._make(broker, upstream)
            server = await self._listen(loop, listening)
            self._upkeep = self._started(loop)
            clocks = [loop.create_task(self._clock()), *self._registering(loop, upstream, broker)]
            pages = await self._pages()
            self._signals(loop)
            _log.info("gateway %s listens at %s, its store is %s", broker.name, address, self._request.store)
            await self._stop.wait()
            await self._end(server, pages, upstream, broker, clocks)
        finally:
            if upstream:
                upstream.close()
            self._log.close()
        return self._summary()

    # ---- its parts ----

    def _upstream(self) -> NameServers | None:
        if not self._request.namesrv:
            return None
        tls = self._settings.tls
        context = Tls(**tls.model_dump(exclude={"enabled"})).context() if tls.enabled else None
        return NameServers(self._request.namesrv, context)

    def _opened(self, loop: asyncio.AbstractEventLoop, address: str) -> tuple[Broker, Log]:
        host, number = endpoint(address)
        self._store_host = host_bytes(resolved(host), number)

        def flushed(end: int) -> None:
            loop.call_soon_threadsafe(self._flushed, end)

        log = Log(self._request.store, self._request.name, self._store_host, Form(self._own.file_size), flushed)
        gc.freeze()  # what recovery has made lives for ever
        return Broker(self._request.name, self._own.cluster, address, log.identity.created, self._request.is_slave), log

    def _flushed(self, end: int) -> None:
        self._waiting.flushed(end, time.monotonic())

    def _topics(self) -> list[str]:
        """The topics that it is set to serve, which its store knows from now on."""
        topics = self._own.topics.split(",") if self._own.topics else []
        for topic in topics:
            self._log.put_topic(topic, Topic(self._own.queues, self._own.queues))
        return topics

    def _make(self, broker: Broker, upstream: NameServers | None) -> None:
        own, rules = self._own, self._settings.rules
        bounds = Bounds(
            own.max_body + FRAME_ROOM,
            own.unsent_bytes,
            own.max_connections,
            own.frame_time.total_seconds(),
            own.idle_time.total_seconds(),
        )
        manner = Manner(Asker(broker.name, self._store_host), rules.transaction_check_interval, own.questions_a_second)
        self._asking = Asking(self._log, self._producers, manner, self._tallies)
        self._house = House(bounds, self._producers, self._tallies, upstream)
        terms = Terms(
            frozenset(own.topics.split(",")) if own.topics else None, own.queues, own.max_body, own.reject_transactions
        )
        parts = Parts(self._producers, self._waiting, self._asking, self._tallies)
        limits = Limits(own.unflushed_bytes, own.open_messages)
        self._service = Service(
            self._log, broker, self._store_host, terms, limits, rules, self._accounts, parts, self._house
        )
        self._house.service = self._service
        self._tallies.show(self._gauges())

    def _gauges(self) -> list[tuple[str, str, Callable[[], float]]]:
        return [
            ("open", "Half messages that are open.", lambda: len(self._log.open_halves)),
            ("connections", "Connections of clients.", lambda: len(self._house)),
            ("groups", "Producer groups that can be asked.", lambda: len(self._producers.groups)),
            ("questions_waiting", "Questions that wait for a producer.", lambda: self._asking.waiting),
            ("unflushed_bytes", "Bytes that are not on the disk yet.", lambda: self._log.unflushed),
            ("disk_full", "1 while sends are refused because the disk is full.", lambda: self._service.disk_full),
        ]

    def _started(self, loop: asyncio.AbstractEventLoop) -> Upkeep:
        rules = self._settings.rules
        return Upkeep(
            Tables(self._settings.warehouse_root, self._request.name),
            self._log,
            self._asking,
            loop.call_soon_threadsafe,
            self._own.look_every,
            rules.transaction_check_interval,
            rules.file_reserved_time,
        )

    async def _listen(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> asyncio.Server:
        house, patience = self._house, _HANDSHAKE_SECONDS if self._tls else None
        return await loop.create_server(
            lambda: Channel(house), sock=listening, ssl=self._tls, backlog=_BACKLOG, ssl_handshake_timeout=patience
        )

    async def _pages(self) -> asyncio.Server | None:
        if self._own.metrics is None:
            return None
        host, number = endpoint(self._own.metrics)
        try:
            return await serve_pages(host, number, lambda: (HTTPStatus.OK, self._tallies.page()), self._health)
        except OSError as error:
            raise UsageError(f"gateway.metrics {self._own.metrics}: {error.strerror}; give another address") from error

    def _health(self) -> tuple[HTTPStatus, bytes]:
        if self._stopping or self._service.disk_full:
            return HTTPStatus.SERVICE_UNAVAILABLE, b"it stops\n" if self._stopping else b"its disk is full\n"
        return HTTPStatus.OK, b"ok\n"

    # ---- its clocks ----

    async def _clock(self) -> None:
        """Gives up answers that are late, asks questions, and looks after connections and the disk."""
        looked, asked = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            self._tallies.given_up += self._waiting.give_up(now - self._own.flush_time.total_seconds())
            self._asking.ask(table_now(), min(now - asked, _LOOK))
            asked = now
            if now - looked >= _LOOK:
                looked = now
                self._house.look_after()
                self._service.disk_full = self._log.disk_used() * 100 > self._own.disk_percent

    def _registering(
        self, loop: asyncio.AbstractEventLoop, upstream: NameServers | None, broker: Broker
    ) -> list[asyncio.Task[None]]:
        async def register(servers: NameServers) -> None:
            while True:
                await servers.register(broker, self._log.topics)
                await asyncio.sleep(self._own.register_every.total_seconds())

        return [loop.create_task(register(upstream))] if upstream else []

    # ---- its end ----

    def _signals(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._read_again)

    def _read_again(self) -> None:
        """Reads certificate and accounts again; what cannot be read leaves the old ones."""
        try:
            if self._tls:
                load_certificate(self._tls, self._own)
            if self._own.acl_file:
                self._service.accounts = read_accounts(self._own.acl_file)
            _log.info("certificate and accounts were read again")
        except HalfopError as error:
            _log.warning("%s; the old ones stay", error)

    async def _end(
        self,
        server: asyncio.Server,
        pages: asyncio.Server | None,
        upstream: NameServers | None,
        broker: Broker,
        clocks: list[asyncio.Task[None]],
    ) -> None:
        """Stops accepting, answers what is durable, unregisters, and closes all connections."""
        _log.info("stopping")
        self._stopping = self._service.stopping = True
        server.close()
        for clock in clocks:
            clock.cancel()
        if upstream:
            await upstream.unregister(broker)
        patience = time.monotonic() + self._own.flush_time.total_seconds()
        while len(self._waiting) and time.monotonic() < patience:
            await asyncio.sleep(0.01)
        self._house.finish()
        await asyncio.get_running_loop().run_in_executor(None, self._upkeep.close)
        if pages:
            pages.close()

    def _summary(self) -> Summary:
        tallies = self._tallies
        return Summary(
            "gateway",
            notes=["stopped by a signal"],
            extra={
                "sent": tallies.sent,
                "ended": dict(tallies.ended),
                "questions": dict(tallies.questions),
                "refused": {str(code): count for code, count in tallies.refused.items()},
                "open": len(self._log.open_halves),
            },
        )
