"""Name servers and brokers, and the requests that halfop sends them. Each ends with an answer or a RemotingError."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from halfop.frame.errors import UsageError
from halfop.rocketmq.names import CHECK_GROUP
from halfop.rocketmq.rocksdb import is_configured
from halfop.rocketmq.wire import fastjson
from halfop.rocketmq.wire.clock import BrokerClock, shown_time
from halfop.rocketmq.wire.codes import AnswerCode, RequestCode
from halfop.rocketmq.wire.remote import Patience, Remote, is_busy
from halfop.rocketmq.wire.remoting import MALFORMED, Answer, Corrupt, Lost, RemotingRequest, RemotingSettings

T = TypeVar("T")
_MASTER, _SLAVE = 0, "SLAVE"
GATEWAY_CONFIG = "halfopGateway"  # in a gateway's configuration: the id of its store


@dataclass(frozen=True)
class BrokerAddress:
    """The address at which a broker group is read: its master's, or its first slave's if it has no master now.

    A slave may lag, and answers pulls only with slaveReadEnable.
    """

    name: str
    cluster: str
    address: str
    is_master: bool


class Role(NamedTuple):
    """A broker's own name; whether it is a slave, a gateway of halfop's, or keeps transactions in RocksDB alone."""

    name: str
    is_slave: bool
    is_gateway: bool
    rocksdb_alone: bool


class LogEnd(NamedTuple):
    """The end of a broker's log, and the place up to which its queues and its index have it."""

    end: int
    shown_to: int


class NameServers:
    """`addresses` as RocketMQ writes them, `host:port;host:port`: tried in turn."""

    def __init__(self, addresses: str, settings: RemotingSettings) -> None:
        self._remotes = [Remote(each, settings) for each in addresses.split(";") if each.strip()]
        if not self._remotes:
            raise UsageError(f"no name server in {addresses!r}; expected host:port, or several with ; between")
        self._give_up_after = settings.give_up_after

    def brokers(self) -> list[BrokerAddress]:
        """All brokers that are registered now, by name."""
        remote, answer = self._answer(RemotingRequest(RequestCode.GET_BROKER_CLUSTER_INFO))
        return read_body(remote, answer, "brokerAddrTable", _broker_addresses)

    def close(self) -> None:
        for remote in self._remotes:
            remote.close()

    def _answer(self, request: RemotingRequest) -> tuple[Remote, Answer]:
        patience = Patience(self._give_up_after)
        while True:
            for remote in self._remotes:
                try:
                    answer = remote.try_once(request)
                except Lost as error:
                    why = str(error)
                    continue
                if answer.code != AnswerCode.SUCCESS:
                    raise remote.refusal(request, answer)
                return remote, answer
            patience.pause(why)


class Broker:
    """One broker at `host:port`, through one connection that is opened again after a loss. For one thread at a time."""

    def __init__(self, address: str, settings: RemotingSettings) -> None:
        self.remote = Remote(address, settings)

    def topics(self) -> dict[str, int]:
        """Every topic in the broker's table (in 4.9 without the op topic) with its number of read queues."""
        answer = self.remote.ask(RemotingRequest(RequestCode.GET_ALL_TOPIC_CONFIG))
        return read_body(self.remote, answer, "topicConfigTable", _read_queues)

    def clock(self) -> BrokerClock:
        """The broker's own clock."""
        asked = time.monotonic()
        return BrokerClock(self._runtime(shown_time), asked)

    def log_end(self) -> LogEnd:
        """How much of its log the broker shows by now."""
        return self._runtime(_log_end)

    def role(self) -> Role:
        """The broker's role, as it says itself."""
        found = self.configuration()
        for name in ("brokerName", "brokerRole"):
            if name not in found:
                raise Corrupt(self.remote.address, f"sent a configuration without {name}")
        return Role(found["brokerName"], found["brokerRole"] == _SLAVE, GATEWAY_CONFIG in found, is_configured(found))

    def configuration(self) -> dict[str, str]:
        """The broker's settings by its own names."""
        answer = self.remote.ask(RemotingRequest(RequestCode.GET_BROKER_CONFIG))
        lines = bytes(answer.body).decode("utf-8", "replace").splitlines()
        return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}

    def min_offset(self, topic: str, queue: int) -> int:
        """The queue's first offset; 0 for an unknown topic too."""
        return self.min_offsets([(topic, queue)])[0]

    def max_offset(self, topic: str, queue: int) -> int:
        """The offset after the queue's last one; 0 for an unknown topic too."""
        return self.max_offsets([(topic, queue)])[0]

    def min_offsets(self, queues: Iterable[tuple[str, int]]) -> list[int]:
        """`min_offset` of each queue, several requests in flight: a broker has a thousand queues from the start."""
        return self._offsets(RequestCode.GET_MIN_OFFSET, queues)

    def max_offsets(self, queues: Iterable[tuple[str, int]]) -> list[int]:
        """`max_offset` of each queue, in the same way."""
        return self._offsets(RequestCode.GET_MAX_OFFSET, queues)

    def offset_at(self, topic: str, queue: int, millis: int) -> int:
        """About the first offset of the queue whose message was stored at an instant or later; brokers round it."""
        fields = {"topic": topic, "queueId": str(queue), "timestamp": str(millis)}
        request = RemotingRequest(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        return self._offset(request, self.remote.ask(request))

    def check_offset(self, topic: str, queue: int) -> int | None:
        """How far the broker's own check of a half queue has come; None if it does not say so."""
        fields = {"consumerGroup": CHECK_GROUP, "topic": topic, "queueId": str(queue)}
        request = RemotingRequest(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        answer = self.remote.answer(request)
        return self._offset(request, answer) if answer.code == AnswerCode.SUCCESS else None

    def close(self) -> None:
        self.remote.close()

    def _runtime(self, made: Callable[[Any], T]) -> T:
        answer = self.remote.ask(RemotingRequest(RequestCode.GET_BROKER_RUNTIME_INFO), _is_starting)
        return read_body(self.remote, answer, "table", made)

    def _offsets(self, code: RequestCode, queues: Iterable[tuple[str, int]]) -> list[int]:
        requests = [RemotingRequest(code, {"topic": topic, "queueId": str(queue)}) for topic, queue in queues]
        return [self._offset(request, answer) for request, answer in self.remote.stream(requests)]

    def _offset(self, request: RemotingRequest, answer: Answer) -> int:
        if answer.code != AnswerCode.SUCCESS:
            raise self.remote.refusal(request, answer)
        if "offset" not in answer.fields:
            of = "queue {queueId} of {topic}".format_map(request.fields)
            raise Corrupt(self.remote.address, f"sent no offset of {of}")
        return int(answer.fields["offset"])


def read_body(remote: Remote, answer: Answer, name: str, made: Callable[[Any], T]) -> T:
    """The named part of an answer's body, read by `made`."""
    try:
        return made(fastjson.loads(bytes(answer.body))[name])
    except MALFORMED as error:
        raise Corrupt(remote.address, f"sent a body without a sound {name}: {bytes(answer.body[:80])!r}") from error


def _is_starting(request: RemotingRequest, answer: Answer) -> bool:
    """Returns whether a broker has just started: in its first seconds 4.9 has no sample yet of what it counts."""
    fails = answer.code == AnswerCode.SYSTEM_ERROR and "NoSuchElementException" in answer.remark
    return fails or is_busy(request, answer)


def _log_end(table: Any) -> LogEnd:
    end = int(table["commitLogMaxOffset"])
    return LogEnd(end, end - int(table["dispatchBehindBytes"]))


def _read_queues(topics: Any) -> dict[str, int]:
    return {str(name): int(each["readQueueNums"]) for name, each in topics.items()}


def _broker_addresses(groups: Any) -> list[BrokerAddress]:
    return [_broker_address(name, group) for name, group in sorted(groups.items())]


def _broker_address(name: str, group: Any) -> BrokerAddress:
    addresses = {int(number): str(address) for number, address in group["brokerAddrs"].items()}
    first = min(addresses)
    return BrokerAddress(name, group["cluster"], addresses[first], first == _MASTER)
