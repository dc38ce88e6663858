"""Answers to operators' tools, mqadmin above all: about topics, producers, rates, and that there are no consumers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import orjson

from halfop.gateway.core.accounts import CLUSTER, GET, Account, check_may
from halfop.gateway.core.clients import Client, Producers
from halfop.gateway.core.effects import Counts, Instant, LogView
from halfop.gateway.core.rates import Rates
from halfop.gateway.core.reads import Description
from halfop.gateway.core.refusals import Refused, header_of
from halfop.gateway.core.transactions import Terms
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.message import host_text, store_ms_of
from halfop.rocketmq.names import AnswerCode, RequestCode
from halfop.rocketmq.tool_requests import (
    GetConsumerConnectionList,
    GetConsumeStats,
    GetProducerConnectionList,
    GetTopicStatsInfo,
)

_MINUTE = 60_000  # milliseconds
_NO_CONSUMERS = "{}: a gateway has no consumers. `follow broker` lands what it stores, and delivers it to tables"


class RunningState(NamedTuple):
    """What a gateway knows besides its log."""

    producers: Producers
    counts: Counts


class Administration:
    """Answers about a gateway. The slow ones read the log, and may be called in any thread."""

    def __init__(self, log: LogView, broker: Description, terms: Terms, state: RunningState, started: Instant) -> None:
        self._log, self._broker, self._terms, self._booted_ms = log, broker, terms, started.ms
        self._producers, self._counts = state
        self._rates = Rates(started.steady)
        self.quick: Mapping[int, Callable[[Frame, Account | None], bytes]] = {
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._connections,
            RequestCode.GET_CONSUME_STATS: self._consumed,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumers,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._consumer_groups,
        }
        self.slow: Mapping[int, Callable[[Frame, Account | None], bytes]] = {
            RequestCode.GET_TOPIC_STATS_INFO: self._offsets,
        }

    def tick(self, now: float, read: int) -> None:
        """Notes how many messages have been stored and read by now."""
        self._rates.note(now, self._counts.stored, read)

    # ---- the broker ----

    def _runtime(self, request: Frame, account: Account | None) -> bytes:
        # a clock that moves when nothing is stored: landing goes by it
        seconds = max(self._log.readable_ms() - self._booted_ms, 0) // 1000
        minutes, hours = seconds // 60, seconds // 3600
        table = {
            "bootTimestamp": str(self._booted_ms),
            "runtime": f"[ {hours // 24} days, {hours % 24} hours, {minutes % 60} minutes, {seconds % 60} seconds ]",
            "brokerVersionDesc": "halfop gateway",
            "brokerActive": str(not self._broker.is_slave).lower(),
            "putTps": self._rates.stored,
            "getTransferredTps": self._rates.read,
            "commitLogDiskRatio": f"{self._log.disk_used():.4f}",
            "remainHowManyDataToFlush": f"{self._log.unflushed} B",
        }
        return request.answer(AnswerCode.SUCCESS, body=orjson.dumps({"table": table}))

    # ---- topics ----

    def _topics(self, request: Frame, account: Account | None) -> bytes:
        names = sorted({*self._terms.known, *(self._terms.topics or ())})
        return request.answer(AnswerCode.SUCCESS, body=orjson.dumps({"topicList": names}))

    def _offsets(self, request: Frame, account: Account | None) -> bytes:
        name = header_of(GetTopicStatsInfo, request).topic
        check_may(account, name, GET)
        topic = self._terms.known.get(name)  # not one that it would make
        if topic is None:
            raise Refused(AnswerCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        queues, since = range(max(topic.read_queues, topic.write_queues)), self._log.readable_ms() - _MINUTE
        table = ",".join(self._queue(name, number) for number in queues)
        stored = sum(self._log.offsets(name, n).next - self._log.offset_at(name, n, since) for n in queues)
        body = f'{{"offsetTable":{{{table}}},"topicPutTps":{stored * 1000 / _MINUTE}}}'
        return request.answer(AnswerCode.SUCCESS, body=body.encode())

    def _queue(self, topic: str, number: int) -> str:
        """A queue's entry, as fastjson writes it: the key is an object."""
        there = self._log.offsets(topic, number)
        last = self._log.pull(topic, number, there.next - 1, 1).records
        key = {"brokerName": self._broker.name, "queueId": number, "topic": topic}
        stored = store_ms_of(last[0]) if last else 0
        value = {"lastUpdateTimestamp": stored, "maxOffset": there.next, "minOffset": there.first}
        return f"{orjson.dumps(key).decode()}:{orjson.dumps(value).decode()}"

    # ---- clients ----

    def _connections(self, request: Frame, account: Account | None) -> bytes:
        check_may(account, self._broker.cluster, GET, kind=CLUSTER)
        group = header_of(GetProducerConnectionList, request).producer_group
        if group not in self._producers:
            raise Refused(AnswerCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        known = [_connection(each) for each in self._producers.in_turn(group)]
        return request.answer(AnswerCode.SUCCESS, body=orjson.dumps({"connectionSet": known}))

    def _consumed(self, request: Frame, account: Account | None) -> bytes:
        raise _not_online(header_of(GetConsumeStats, request).consumer_group)

    def _consumers(self, request: Frame, account: Account | None) -> bytes:
        raise _not_online(header_of(GetConsumerConnectionList, request).consumer_group)

    def _consumer_groups(self, request: Frame, account: Account | None) -> bytes:
        return request.answer(AnswerCode.SUCCESS, body=b'{"groupList":[]}')


def _not_online(group: str) -> Refused:
    return Refused(
        AnswerCode.CONSUMER_NOT_ONLINE, _NO_CONSUMERS.format(f"the consumer group[{group[:200]}] not online")
    )


def _connection(client: Client) -> dict[str, object]:
    return {
        "clientId": client.name,
        "clientAddr": host_text(client.host),
        "language": client.language,
        "version": client.version,
    }
