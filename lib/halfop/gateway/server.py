"""The server around the core: it gives it requests and the clock, and does what the core says.

Everything here is called in the loop's thread, but for reads of the log and searches in it, which have a thread each.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from halfop.frame.errors import TransientError
from halfop.gateway.connections import Calls, Channel, Connections
from halfop.gateway.core.clients import Client
from halfop.gateway.core.core import Core
from halfop.gateway.core.effects import (
    AccountShown,
    AddTopic,
    Answer,
    AppendEnd,
    AppendHalf,
    Ask,
    CheckRequest,
    Effect,
    EndTaken,
    FindRoute,
    Instant,
    Note,
    Read,
    RefusedRequest,
    Seldom,
)
from halfop.gateway.core.reads import no_route
from halfop.gateway.core.refusals import Refused
from halfop.gateway.journal import Refusals, Trail
from halfop.gateway.log.log import Log
from halfop.gateway.namesrv import Upstream
from halfop.gateway.upkeep import Deliveries
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import AnswerCode
from halfop.settings.gateway import GatewaySettings

_MOST_READS = 64  # of a connection, that wait
_READS_AT_ONCE = 2  # of a connection
_MOST_ROUTES = 100  # that are being asked for
_FAILED = "the gateway failed at it: its log says why"
_log = logging.getLogger("halfop.gateway")


class Server:
    """Does what the core says, for the connections that it has; `deliveries` has the rows that the core notes."""

    def __init__(self, core: Core, log: Log, upstream: Upstream | None, trail: Trail, own: GatewaySettings) -> None:
        self._core, self._gateway_log, self._upstream = core, log, upstream
        self._trail, self._refusals = trail, Refusals()
        self.deliveries = Deliveries()
        calls = Calls(self._handle, self._writable, core.left)
        self.connections = Connections(own, core.counts, calls)
        self._loop = asyncio.get_running_loop()
        self._readers = ThreadPoolExecutor(1, "gateway-reads")
        self._searchers = ThreadPoolExecutor(1, "gateway-searches")
        self._routes: set[asyncio.Task[None]] = set()

    # ---- what the core is given ----

    def flushed(self, end: int) -> None:
        """Called when the log is durable to `end`."""
        for answer in self._core.flushed(end, instant()):
            self._send(answer.client, answer.frame)

    def tick(self) -> None:
        """Called some ten times a second."""
        now = instant()
        self._do(self._core.tick(now), now)
        self._refusals.tick(now)
        self._trail.flush()

    def want(self, requests: Iterable[CheckRequest], sent_before: Mapping[tuple[str, int], datetime]) -> None:
        """Called with questions that runs have asked for."""
        now = instant()
        self._do(self._core.want(requests, sent_before, now), now)

    def _handle(self, channel: Channel, request: Frame) -> None:
        now = instant()
        try:
            self._do(self._core.request(channel.client, request, now), now)
        except Exception:
            _log.exception("request %s of %s failed", request.code, channel.client.name)
            self._refuse(channel.client, request, Refused(AnswerCode.SYSTEM_ERROR, _FAILED))

    def _refuse(self, client: Client, request: Frame, error: Refused) -> None:
        self._do(self._core.refuse(client, request, error), instant())

    # ---- what it says ----

    def _do(self, effects: Iterable[Effect], now: Instant) -> None:
        for effect in effects:
            match effect:
                case AppendHalf():
                    half = self._gateway_log.append_half(effect.message)
                    self._do(self._core.half_stored(effect, half, now), now)
                case AppendEnd():
                    ended = self._gateway_log.append_end(effect.half, effect.end)
                    self._do(self._core.end_stored(effect, ended, now), now)
                case Answer() | Ask():
                    self._send(effect.client, effect.frame)
                case _:
                    self._do_seldom(effect, now)

    def _do_seldom(self, effect: Seldom, now: Instant) -> None:
        match effect:
            case EndTaken():
                self._trail.end(effect, now.at)
            case AccountShown():
                self._trail.shown(effect, now.at)
            case RefusedRequest():
                self._note_refusal(effect, now)
            case Note():
                self.deliveries.put(effect.row)
            case AddTopic():
                self._gateway_log.put_topic(effect.name, effect.topic)
            case Read():
                self._read(effect)
            case FindRoute():
                self._find_route(effect)

    def _note_refusal(self, refused: RefusedRequest, now: Instant) -> None:
        self._refusals.put(refused, now)
        if refused.is_audited:
            self._trail.refused(refused, now.at)

    def _send(self, client: Client, frame: bytes) -> None:
        channel = self.connections.get(client)
        if channel is not None:
            channel.send(frame)

    # ---- reads ----

    def _read(self, effect: Read) -> None:
        channel = self.connections.get(effect.client)
        if channel is None:
            return
        if len(channel.reads) >= _MOST_READS:
            error = Refused(AnswerCode.SYSTEM_BUSY, "[OVERLOAD]too many reads of this connection are under way")
            self._refuse(effect.client, effect.request, error)
        else:
            channel.reads.append(effect)
            self._writable(channel)

    def _writable(self, channel: Channel) -> None:
        """Begins reads that wait: few at a time, and none while the client takes no answers, which are long."""
        while channel.reads and channel.reading < _READS_AT_ONCE and channel.is_open:
            channel.reading += 1
            effect = channel.reads.popleft()
            threads = self._searchers if effect.is_search else self._readers
            threads.submit(self._begun, channel, effect)

    def _begun(self, channel: Channel, effect: Read) -> None:
        found = _answer_of(effect)

        def done() -> None:
            channel.reading -= 1
            if isinstance(found, Refused):
                self._refuse(effect.client, effect.request, found)
            else:
                channel.send(found)
            self._writable(channel)

        self._loop.call_soon_threadsafe(done)

    # ---- other brokers' routes ----

    def _find_route(self, effect: FindRoute) -> None:
        if self._upstream is None:
            self._own_route(effect, no_route(effect.topic))
        elif len(self._routes) >= _MOST_ROUTES:
            error = Refused(AnswerCode.SYSTEM_BUSY, "[OVERLOAD]too many routes are being asked for")
            self._refuse(effect.client, effect.request, error)
        else:
            task = self._loop.create_task(self._found_route(self._upstream, effect))
            self._routes.add(task)
            task.add_done_callback(self._routes.discard)

    async def _found_route(self, upstream: Upstream, effect: FindRoute) -> None:
        client, request, topic, own = effect
        try:
            found = await upstream.route(topic)
        except TransientError as error:
            self._own_route(effect, Refused(AnswerCode.SYSTEM_ERROR, str(error)))
            return
        if own and found.code == AnswerCode.TOPIC_NOT_EXIST:
            found = Frame(AnswerCode.SUCCESS, body=own)
        self._send(client, request.answer(found.code, found.fields, found.remark, found.body))

    def _own_route(self, effect: FindRoute, error: Refused) -> None:
        if effect.own:
            self._send(effect.client, effect.request.answer(AnswerCode.SUCCESS, body=effect.own))
        else:
            self._refuse(effect.client, effect.request, error)

    def finish(self) -> None:
        """Closes all connections once their answers are sent."""
        self.connections.finish()
        for threads in (self._readers, self._searchers):
            threads.shutdown(wait=False, cancel_futures=True)


def instant() -> Instant:
    """Now, by both clocks."""
    return Instant(time.time(), time.monotonic())


def _answer_of(effect: Read) -> bytes | Refused:
    try:
        return effect.read()
    except Refused as error:
        return error
    except Exception:
        _log.exception("request %s of %s failed", effect.request.code, effect.client.name)
        return Refused(AnswerCode.SYSTEM_ERROR, _FAILED)
