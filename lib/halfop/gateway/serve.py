"""A gateway from its start to SIGTERM: it opens its store, listens, and ends with everything answered."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import ssl
import time
from collections.abc import Iterable
from contextlib import ExitStack
from http import HTTPStatus
from random import SystemRandom

import uvloop

from halfop.frame.errors import HalfopError, UsageError
from halfop.frame.summary import Summary
from halfop.gateway.account_files import read_accounts
from halfop.gateway.core.core import Core
from halfop.gateway.core.messages import Topic
from halfop.gateway.core.reads import Description
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
from halfop.gateway.journal import Trail
from halfop.gateway.log.log import Log, StoreForm
from halfop.gateway.namesrv import Upstream
from halfop.gateway.pages import Gauge, Metrics, serve_pages
from halfop.gateway.server import Server, instant
from halfop.gateway.tables import Tables
from halfop.gateway.upkeep import Upkeep
from halfop.rocketmq.message import host_bytes
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
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
        room = room_for(settings.gateway.max_connections)
        self._own = settings.gateway.model_copy(update={"max_connections": room})
        self._settings, self._request, self._tls = settings, request, tls
        self._root = "" if request.is_slave else settings.warehouse_root
        self._trail = Trail(self._own.audit_file)
        self._accounts = read_accounts(self._own.acl_file) if self._own.acl_file else None
        self._stop = asyncio.Event()

    async def run(self, listening: socket.socket) -> Summary:
        loop = asyncio.get_running_loop()
        address = self._own.advertise or shown(listening)
        upstream, topics = self._upstream(), self._own.topics.split(",") if self._own.topics else []
        with ExitStack() as held:
            if upstream:
                held.callback(upstream.close)
                await upstream.refuse_served(topics, self._request.name, address)
            pages = await self._pages()
            if pages:
                held.callback(pages.close)
            broker, self._log = self._opened(loop, address)  # here it makes its store: all that is refused comes before
            held.callback(self._log.close)
            self._log.set_queues(topics, self._own.queues)
            self._make(broker, upstream)  # before anything is awaited: the log flushes
            if pages:
                await pages.start_serving()
            accepting = self._accepting(loop, listening)
            self._upkeep = self._started()
            tasks = [accepting, loop.create_task(self._clock()), *self._registering(loop, upstream, broker, topics)]
            self._signals(loop)
            _log.info("gateway %s listens at %s, its store is %s", broker.name, address, self._request.store)
            await self._stop.wait()
            await self._end(listening, upstream, broker, tasks)
        return self._summary()

    # ---- its parts ----

    def _upstream(self) -> Upstream | None:
        if not self._request.namesrv:
            return None
        tls = self._settings.tls
        context = Tls(**tls.model_dump(exclude={"enabled"})).context() if tls.enabled else None
        return Upstream(self._request.namesrv, context)

    def _opened(self, loop: asyncio.AbstractEventLoop, address: str) -> tuple[Description, Log]:
        host, number = endpoint(address)
        store_host, own = host_bytes(resolved(host), number), self._request

        def flushed(end: int) -> None:
            loop.call_soon_threadsafe(lambda: self._server.flushed(end))

        log = Log(own.store, own.name, store_host, StoreForm(self._own.file_size), flushed)
        gc.freeze()  # what recovery has made lives for ever
        return Description(own.name, self._own.cluster, address, log.identity.created, own.is_slave, store_host), log

    def _make(self, broker: Description, upstream: Upstream | None) -> None:
        self._core = Core(self._log, broker, self._settings, SystemRandom(), instant())
        self._core.accounts = self._accounts
        self._server = Server(self._core, self._log, upstream, self._trail, self._own)

    def _gauges(self) -> list[Gauge]:
        core, connections = self._core, self._server.connections
        return [
            ("open", "Half messages that are open.", lambda: len(self._log.open_halves)),
            ("connections", "Connections of clients.", lambda: len(connections)),
            ("groups", "Producer groups that can be asked.", lambda: len(core.producers)),
            ("questions_waiting", "Questions that wait for a producer.", lambda: core.questions.waiting),
            ("unflushed_bytes", "Bytes that are not on the disk yet.", lambda: self._log.unflushed),
            ("disk_full", "1 while sends are refused because the disk is full.", lambda: core.disk_full),
        ]

    def _started(self) -> Upkeep | None:
        """The work on the warehouse, and on old files; a slave only reads, so it has none."""
        if self._request.is_slave:
            return None
        rules = self._settings.rules
        return Upkeep(
            Tables(self._root, self._request.name),
            self._log,
            self._server.deliveries,
            self._server.want,
            self._core.questions.prune,
            self._own.look_every,
            rules.transaction_check_interval,
            rules.file_reserved_time,
        )

    def _accepting(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> asyncio.Task[None]:
        listening.setblocking(False)
        listening.listen(_BACKLOG)
        return loop.create_task(self._server.connections.accept(listening, self._tls))

    async def _pages(self) -> asyncio.Server | None:
        """The pages at their address, which are served later."""
        if self._own.metrics is None:
            return None
        host, number = endpoint(self._own.metrics, listening=True)
        try:
            return await serve_pages(host, number, self._metrics, self._health)
        except OSError as error:
            raise UsageError(f"gateway.metrics {self._own.metrics}: {error.strerror}; give another address") from error

    def _metrics(self) -> tuple[HTTPStatus, bytes]:
        return HTTPStatus.OK, Metrics(self._core.counts, self._gauges()).page()

    def _health(self) -> tuple[HTTPStatus, bytes]:
        if self._core.stopping or self._core.disk_full:
            return HTTPStatus.SERVICE_UNAVAILABLE, b"it stops\n" if self._core.stopping else b"its disk is full\n"
        return HTTPStatus.OK, b"ok\n"

    # ---- its clocks ----

    async def _clock(self) -> None:
        """Gives up answers that are late, asks questions, and looks after connections and the disk."""
        looked, failing = 0.0, False
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            looks = now - looked >= _LOOK
            looked = now if looks else looked
            try:
                self._tick(looks)
                failing = failing and not looks
            except Exception as error:
                _log.log(logging.DEBUG if failing else logging.ERROR, "%s; tried again", error, exc_info=error)
                failing = True

    def _tick(self, looks: bool) -> None:
        if looks:  # first: whatever fails in a tick, a full disk is seen
            self._server.connections.look_after()
            self._core.disk_full = self._log.disk_used() * 100 > self._own.disk_percent
        self._server.tick()

    def _registering(
        self, loop: asyncio.AbstractEventLoop, upstream: Upstream | None, broker: Description, topics: Iterable[str]
    ) -> list[asyncio.Task[None]]:
        served = (HALF_TOPIC, OP_TOPIC, *topics)  # its store may know others, which it served before
        # as a broker does: by the routes of such topics Apache's proxy finds a broker, and those of a cluster
        names = dict.fromkeys((broker.name, broker.cluster), Topic(1, 1, perm=4))

        async def register(servers: Upstream) -> None:
            while True:
                await servers.register(broker, names | {name: self._log.topics[name] for name in served})
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
            accounts = read_accounts(self._own.acl_file) if self._own.acl_file else None
            self._trail.reopen()
            if self._tls:
                load_certificate(self._tls, self._own)
            self._core.accounts = accounts  # last, so that an error before leaves all
            self._trail.administered(
                "SIGHUP", instant().at, accounts=self._own.acl_file, certificate=self._own.certificate
            )
            _log.info("certificate and accounts were read again")
        except HalfopError as error:
            _log.warning("%s; the old ones stay", error)

    async def _end(
        self,
        listening: socket.socket,
        upstream: Upstream | None,
        broker: Description,
        tasks: list[asyncio.Task[None]],
    ) -> None:
        """Stops accepting, answers what is durable, unregisters, and closes all connections."""
        _log.info("stopping")
        self._core.stopping = True
        for task in tasks:
            task.cancel()
        listening.close()
        if upstream:
            await upstream.unregister(broker)
        patience = time.monotonic() + self._own.flush_time.total_seconds()
        while len(self._core.answers) and time.monotonic() < patience:
            await asyncio.sleep(0.01)
        self._server.finish()
        if self._upkeep:
            await self._upkeep.close()
        self._trail.close()

    def _summary(self) -> Summary:
        counts = self._core.counts
        return Summary(
            "gateway",
            notes=["stopped by a signal"],
            extra={
                "sent": counts.sent,
                "ended": dict(counts.ended),
                "questions": dict(counts.questions),
                "refused": {f"{request or 'other'}/{code}": count for (request, code), count in counts.refused.items()},
                "open": len(self._log.open_halves),
            },
        )
