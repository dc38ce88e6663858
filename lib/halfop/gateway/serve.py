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
from http import HTTPStatus

import uvloop

from halfop.frame.errors import HalfopError, UsageError
from halfop.frame.summary import Summary
from halfop.gateway.accounts import read_accounts
from halfop.gateway.asking import Asking, Manner
from halfop.gateway.deliveries import Deliveries
from halfop.gateway.door import (
    GatewayRequest,
    bound,
    listening_at,
    load_certificate,
    resolved,
    room_for,
    shown,
    tls_context,
)
from halfop.gateway.house import Bounds, House
from halfop.gateway.log.log import Form, Log
from halfop.gateway.namesrv import NameServers
from halfop.gateway.pages import serve_pages
from halfop.gateway.producers import Producers
from halfop.gateway.questions import Asker
from halfop.gateway.reading import Broker
from halfop.gateway.sends import Terms
from halfop.gateway.service import Limits, Parts, Service
from halfop.gateway.tables import Tables
from halfop.gateway.tables import now as table_now
from halfop.gateway.tallies import Tallies
from halfop.gateway.upkeep import Upkeep
from halfop.gateway.waiting import Waiting
from halfop.rocketmq.frames import FRAME_ROOM
from halfop.rocketmq.message import host_bytes
from halfop.rocketmq.wire.remoting import Tls, endpoint
from halfop.settings.model import Settings

_TICK, _LOOK = 0.1, 1.0
_BACKLOG = 1024
_log = logging.getLogger("halfop.gateway")


def serve(settings: Settings, request: GatewayRequest) -> Summary:
    """Serves producers until SIGTERM or SIGINT; returns what was done."""
    host, number = listening_at(settings, request)
    tls = tls_context(settings.gateway)
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
            pages = await self._pages()  # before the threads: an address that cannot be had ends it
            accepting = self._accepting(loop, listening)
            self._upkeep = self._started(loop)
            tasks = [accepting, loop.create_task(self._clock()), *self._registering(loop, upstream, broker)]
            self._signals(loop)
            _log.info("gateway %s listens at %s, its store is %s", broker.name, address, self._request.store)
            await self._stop.wait()
            await self._end(listening, pages, upstream, broker, tasks)
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
        self._log.set_queues(topics, self._own.queues)
        return topics

    def _make(self, broker: Broker, upstream: NameServers | None) -> None:
        own, rules = self._own, self._settings.rules
        bounds = Bounds(
            own.max_body + FRAME_ROOM,
            own.unsent_bytes,
            own.begun_bytes,
            room_for(own.max_connections),
            own.frame_time.total_seconds(),
            own.idle_time.total_seconds(),
        )
        manner = Manner(Asker(broker.name, self._store_host), rules.transaction_check_interval, own.questions_a_second)
        self._deliveries = Deliveries()
        self._asking = Asking(self._log, self._producers, manner, self._tallies, self._deliveries.put)
        self._house = House(bounds, self._producers, self._tallies, upstream)
        topics = frozenset(own.topics.split(",")) if own.topics else None
        terms = Terms(topics, own.queues, own.max_body, own.reject_transactions, self._log.topics)
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

    def _started(self, loop: asyncio.AbstractEventLoop) -> Upkeep | None:
        """The thread that works on the warehouse and removes files; a slave only reads, so it has none."""
        if self._request.is_slave:
            return None
        rules = self._settings.rules
        return Upkeep(
            Tables(self._settings.warehouse_root, self._request.name),
            self._log,
            self._asking,
            self._deliveries,
            loop.call_soon_threadsafe,
            self._own.look_every,
            rules.transaction_check_interval,
            rules.file_reserved_time,
        )

    def _accepting(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> asyncio.Task[None]:
        listening.setblocking(False)
        listening.listen(_BACKLOG)
        return loop.create_task(self._house.accept(listening, self._tls))

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
        looked, asked, failing = 0.0, time.monotonic(), False
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            looks = now - looked >= _LOOK
            looked = now if looks else looked
            try:
                self._tick(now, min(now - asked, _LOOK), looks)
                failing = failing and not looks
            except Exception as error:
                _log.log(logging.DEBUG if failing else logging.ERROR, "%s; tried again", error, exc_info=error)
                failing = True
            asked = now

    def _tick(self, now: float, seconds: float, looks: bool) -> None:
        self._tallies.given_up += self._waiting.give_up(now - self._own.flush_time.total_seconds())
        self._asking.ask(table_now(), seconds)
        if looks:
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
        listening: socket.socket,
        pages: asyncio.Server | None,
        upstream: NameServers | None,
        broker: Broker,
        tasks: list[asyncio.Task[None]],
    ) -> None:
        """Stops accepting, answers what is durable, unregisters, and closes all connections."""
        _log.info("stopping")
        self._stopping = self._service.stopping = True
        for task in tasks:
            task.cancel()
        listening.close()
        if upstream:
            await upstream.unregister(broker)
        patience = time.monotonic() + self._own.flush_time.total_seconds()
        while len(self._waiting) and time.monotonic() < patience:
            await asyncio.sleep(0.01)
        self._house.finish()
        if self._upkeep:
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
