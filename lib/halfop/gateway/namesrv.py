"""Name servers that a gateway registers with, and asks for the routes of other brokers' topics."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress

import orjson

from halfop.frame.errors import TransientError, UsageError
from halfop.gateway.core.messages import Topic
from halfop.gateway.core.reads import Description, config_of
from halfop.rocketmq.frames import ANSWER, BadFrame, Frame, Splitter, read_json
from halfop.rocketmq.message import body_crc
from halfop.rocketmq.names import AnswerCode
from halfop.rocketmq.requests import GetBrokerClusterInfo, GetRouteinfo, Header, RegisterBroker, UnregisterBroker
from halfop.rocketmq.wire.remoting import endpoint

_TIMEOUT = 5.0
_MOST_BYTES, _RECEIVED = 16 << 20, 1 << 16
_WRITES = 2  # of a queue's permissions
_FAILURES = (OSError, asyncio.TimeoutError, ValueError, BadFrame, RuntimeError)  # uvloop's of a closed connection
_log = logging.getLogger("halfop.gateway")


class NameServer:
    """One name server, through one connection: it forgets a broker whose connection ends."""

    def __init__(self, address: str, tls: ssl.SSLContext | None) -> None:
        self.address, self._tls = address, tls
        self._host, self._number = endpoint(address)
        self._lock, self._opaque = asyncio.Lock(), 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, header: Header, body: bytes = b"") -> Frame:
        """The answer to a request. Raises TransientError."""
        async with self._lock:
            try:
                return await asyncio.wait_for(self._asked(header, body), _TIMEOUT)
            except _FAILURES as error:
                self.close()
                raise TransientError(f"name server {self.address}: {str(error) or type(error).__name__}") from error

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()
            self._streams = None

    async def _asked(self, header: Header, body: bytes) -> Frame:
        if self._streams and (self._streams[0].at_eof() or self._streams[1].is_closing()):
            self.close()  # it has ended since the last request
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._number, ssl=self._tls)
            self._splitter = Splitter(_MOST_BYTES)
        reader, writer = self._streams
        self._opaque += 1
        writer.write(Frame(header.code, 0, self._opaque, header.fields(), body=body).packed())
        while data := await reader.read(_RECEIVED):
            for frame in self._splitter.feed(data):
                if frame.flag & ANSWER and frame.opaque == self._opaque:
                    return frame
        raise ConnectionError("closed the connection")


class Upstream:
    """All name servers, in RocketMQ's form `host:port;host:port`."""

    def __init__(self, addresses: str, tls: ssl.SSLContext | None) -> None:
        self._all = [NameServer(each, tls) for each in addresses.split(";") if each.strip()]
        if not self._all:
            raise UsageError(f"no name server in {addresses!r}; expected host:port, or several with ; between")

    async def refuse_served(self, topics: Iterable[str], name: str, address: str) -> None:
        """Raises UsageError for a topic that another broker serves for writing: producers would send to both.

        And for another broker of this name: each would take the other's place again and again. One name server
        that can be reached is enough: brokers register with all. Raises TransientError if none can be.
        """
        lost = [error for server in self._all if (error := await _refuse_served_at(server, topics, name, address))]
        if len(lost) == len(self._all):
            raise lost[0]
        for error in lost:
            _log.warning("%s", error)

    async def register(self, broker: Description, topics: Mapping[str, Topic]) -> None:
        """Registers with each; one that cannot be reached is tried again by the next call."""
        body = _registration(topics)
        header = RegisterBroker(*_described(broker), broker.address, compressed=False, body_crc32=body_crc(body))
        await self._tell(header, body)

    async def unregister(self, broker: Description) -> None:
        await self._tell(UnregisterBroker(*_described(broker)))

    async def route(self, topic: str) -> Frame:
        """The answer of the first name server that can be reached. Raises TransientError."""
        *others, last = self._all
        for server in others:
            with suppress(TransientError):
                return await server.ask(GetRouteinfo(topic))
        return await last.ask(GetRouteinfo(topic))

    def close(self) -> None:
        for server in self._all:
            server.close()

    async def _tell(self, header: Header, body: bytes = b"") -> None:
        for server in self._all:
            try:
                answer = await server.ask(header, body)
            except TransientError as error:
                _log.warning("%s", error)
                continue
            if answer.code != AnswerCode.SUCCESS:
                code = answer.code
                _log.warning("name server %s answered %s to %s: %s", server.address, code, header.code, answer.remark)


async def _refuse_served_at(
    server: NameServer, topics: Iterable[str], name: str, address: str
) -> TransientError | None:
    """Returns why the name server cannot say it."""
    try:
        known = _addresses(await server.ask(GetBrokerClusterInfo()), name)
        routes = {topic: await server.ask(GetRouteinfo(topic)) for topic in topics}
    except TransientError as error:
        return error
    if others := known - {address}:
        there = f"a broker {name} is at {', '.join(sorted(others))} ({server.address})"
        raise UsageError(f"{there}; stop it first, or give another --name")
    for topic, route in routes.items():
        if others := _writers(route) - {name}:
            served = f"topic {topic} is served for writing by broker {', '.join(sorted(others))}"
            raise UsageError(f"{served} ({server.address}); take it from there first, or leave it out here")
    return None


def _writers(route: Frame) -> set[str]:
    """The brokers that take messages of a topic."""
    if route.code != AnswerCode.SUCCESS:
        return set()
    with suppress(ValueError, LookupError, TypeError):
        queues = read_json(route.body)["queueDatas"]
        return {str(each["brokerName"]) for each in queues if int(each["perm"]) & _WRITES}
    return set()


def _addresses(cluster: Frame, name: str) -> set[str]:
    """The addresses of a broker."""
    with suppress(ValueError, LookupError, TypeError, AttributeError):
        return {str(each) for each in read_json(cluster.body)["brokerAddrTable"][name]["brokerAddrs"].values()}
    return set()


def _described(broker: Description) -> tuple[str, str, str, int]:
    return broker.name, broker.address, broker.cluster, 1 if broker.is_slave else 0


def _registration(topics: Mapping[str, Topic]) -> bytes:
    """The topics, half and op topic with them: 5.x takes no first registration with exactly one."""
    table = {name: config_of(name, topic) for name, topic in topics.items()}
    version = {"counter": len(table), "stateVersion": 0, "timestamp": 0}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    return orjson.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})
