"""Name servers that a gateway registers with, and asks for the routes of other brokers' topics."""

from __future__ import annotations

import asyncio
import logging
import ssl
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from struct import Struct

import orjson

from halfop.frame.errors import TransientError, UsageError
from halfop.gateway.frames import JSON, BadFrame, Request, read, written
from halfop.gateway.log.messages import Topic
from halfop.gateway.log.topics import config_of
from halfop.gateway.reading import Broker
from halfop.rocketmq.wire import fastjson
from halfop.rocketmq.wire.codes import ANSWER, AnswerCode, RequestCode
from halfop.rocketmq.wire.remoting import endpoint

_LENGTHS = Struct(">II")
_TIMEOUT = 5.0
_MOST_BYTES = 16 << 20
_WRITES = 2  # of a queue's permissions
_FAILURES = (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, ValueError, BadFrame)
_log = logging.getLogger("halfop.gateway")


class NameServer:
    """One name server, through one connection: it forgets a broker whose connection ends."""

    def __init__(self, address: str, tls: ssl.SSLContext | None) -> None:
        self.address, self._tls = address, tls
        self._host, self._number = endpoint(address)
        self._lock, self._opaque = asyncio.Lock(), 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> Request:
        """The answer to a request. Raises TransientError."""
        async with self._lock:
            try:
                return await asyncio.wait_for(self._asked(code, fields, body), _TIMEOUT)
            except _FAILURES as error:
                self.close()
                raise TransientError(f"name server {self.address}: {str(error) or type(error).__name__}") from error

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()
            self._streams = None

    async def _asked(self, code: int, fields: Mapping[str, str], body: bytes) -> Request:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._number, ssl=self._tls)
        reader, writer = self._streams
        self._opaque += 1
        writer.write(written(code, 0, self._opaque, fields, JSON, body=body))
        while True:
            length, mark = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
            header = mark & 0xFFFFFF
            if not 4 + header <= length <= _MOST_BYTES:
                raise ValueError(f"sent a frame of {length} bytes")
            content = await reader.readexactly(length - 4)
            found = read(content[:header], mark >> 24, content[header:])
            if found.flag & ANSWER and found.opaque == self._opaque:
                return found


class NameServers:
    """All name servers, in RocketMQ's form `host:port;host:port`."""

    def __init__(self, addresses: str, tls: ssl.SSLContext | None) -> None:
        self._all = [NameServer(each, tls) for each in addresses.split(";") if each.strip()]
        if not self._all:
            raise UsageError(f"no name server in {addresses!r}; expected host:port, or several with ; between")

    async def refuse_served(self, topics: Iterable[str], broker: Broker) -> None:
        """Raises UsageError for a topic that another broker serves for writing: producers would send to both.

        And for another broker of this one's name: each would take the other's place again and again. One name server
        that can be reached is enough: brokers register with all. Raises TransientError if none can be.
        """
        lost = [error for server in self._all if (error := await _refuse_served_at(server, topics, broker))]
        if len(lost) == len(self._all):
            raise lost[0]
        for error in lost:
            _log.warning("%s", error)

    async def register(self, broker: Broker, topics: Mapping[str, Topic]) -> None:
        """Registers with each; one that cannot be reached is tried again by the next call."""
        body = _registration(topics)
        fields = _fields_of(broker) | {
            "haServerAddr": broker.address,
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        }
        await self._tell(RequestCode.REGISTER_BROKER, fields, body)

    async def unregister(self, broker: Broker) -> None:
        await self._tell(RequestCode.UNREGISTER_BROKER, _fields_of(broker))

    async def route(self, topic: str) -> Request:
        """The answer of the first name server that can be reached. Raises TransientError."""
        *others, last = self._all
        for server in others:
            with suppress(TransientError):
                return await server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return await last.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})

    def close(self) -> None:
        for server in self._all:
            server.close()

    async def _tell(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        for server in self._all:
            try:
                answer = await server.ask(code, fields, body)
            except TransientError as error:
                _log.warning("%s", error)
                continue
            if answer.code != AnswerCode.SUCCESS:
                _log.warning("name server %s answered %s to %s: %s", server.address, answer.code, code, answer.remark)


async def _refuse_served_at(server: NameServer, topics: Iterable[str], broker: Broker) -> TransientError | None:
    """Returns why the name server cannot say it."""
    try:
        known = _addresses(await server.ask(RequestCode.GET_BROKER_CLUSTER_INFO, {}), broker.name)
        routes = {topic: await server.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}) for topic in topics}
    except TransientError as error:
        return error
    if others := known - {broker.address}:
        there = f"a broker {broker.name} is at {', '.join(sorted(others))} ({server.address})"
        raise UsageError(f"{there}; stop it first, or give another --name")
    for topic, route in routes.items():
        if others := _writers(route) - {broker.name}:
            served = f"topic {topic} is served for writing by broker {', '.join(sorted(others))}"
            raise UsageError(f"{served} ({server.address}); take it from there first, or leave it out here")
    return None


def _writers(route: Request) -> set[str]:
    """The brokers that take messages of a topic."""
    if route.code != AnswerCode.SUCCESS:
        return set()
    with suppress(ValueError, LookupError, TypeError):
        queues = fastjson.loads(route.body)["queueDatas"]
        return {str(each["brokerName"]) for each in queues if int(each["perm"]) & _WRITES}
    return set()


def _addresses(cluster: Request, name: str) -> set[str]:
    """The addresses of a broker."""
    with suppress(ValueError, LookupError, TypeError, AttributeError):
        return {str(each) for each in fastjson.loads(cluster.body)["brokerAddrTable"][name]["brokerAddrs"].values()}
    return set()


def _fields_of(broker: Broker) -> dict[str, str]:
    return {
        "brokerName": broker.name,
        "brokerAddr": broker.address,
        "clusterName": broker.cluster,
        "brokerId": "1" if broker.is_slave else "0",
    }


def _registration(topics: Mapping[str, Topic]) -> bytes:
    """The topics, half and op topic with them: 5.x takes no first registration with exactly one."""
    table = {name: config_of(name, topic) for name, topic in topics.items()}
    version = {"counter": len(table), "stateVersion": 0, "timestamp": 0}
    wrapper = {"dataVersion": version, "topicConfigTable": table}
    return orjson.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})
