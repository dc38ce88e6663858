"""Answers to readers: about the log as a broker answers `land broker`, about routes as a name server answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from halfop.gateway.core.accounts import GET, GROUP, SUB, Account, check_may
from halfop.gateway.core.effects import LogView
from halfop.gateway.core.messages import QueueOffsets, Topic
from halfop.gateway.core.refusals import Refused, header_of
from halfop.gateway.core.transactions import Terms, check_topic
from halfop.rocketmq import requests as r
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.message import Message
from halfop.rocketmq.names import (
    GATEWAY_CONFIG,
    HALF_TOPIC,
    OP_TOPIC,
    TRACE_TOPIC,
    AnswerCode,
    RequestCode,
    is_real_topic,
)

_OWN = (HALF_TOPIC, OP_TOPIC)  # clients may read them, and operators ask for their routes
DEFAULT_TOPIC = "TBW102"  # its route stands for topics that nobody has made yet
_MASTER, _SLAVE = "0", "1"
_READ_WRITE, _ANY = 6, 7
_MOST_MESSAGES, _MOST_UNITS = 32, 1024
_SUSPEND, _SUBSCRIPTION = 2, 4  # of a pull's sysFlag: it is to wait for messages; it brings its subscription


@dataclass(frozen=True)
class Description:
    """A broker's description of itself."""

    name: str
    cluster: str
    address: str
    created: str
    is_slave: bool
    store_host: bytes  # the address as records and message ids have it

    def config(self) -> bytes:
        """The lines of its configuration; a gateway's has its store's id, which no broker's has."""
        lines = {
            "brokerName": self.name,
            "brokerClusterName": self.cluster,
            "brokerId": "1" if self.is_slave else "0",
            "brokerRole": "SLAVE" if self.is_slave else "SYNC_MASTER",
            "flushDiskType": "SYNC_FLUSH",
            GATEWAY_CONFIG: self.created,
        }
        return "".join(f"{name}={value}\n" for name, value in lines.items()).encode()


class Reads:
    """Answers to reads of the log. The slow ones read records from the disk, and may be called in any thread."""

    def __init__(self, log: LogView, broker: Description, booted_ms: int) -> None:
        self._log, self._broker, self._booted_ms = log, broker, booted_ms
        self.pulled = 0  # messages, in all
        self.quick: Mapping[int, Callable[[Frame, Account | None], bytes]] = {
            RequestCode.GET_ALL_TOPIC_CONFIG: self._topics,
            RequestCode.GET_BROKER_CONFIG: self._config,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
        }
        self.slow: Mapping[int, Callable[[Frame, Account | None], bytes]] = {
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._offset_at,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.QUERY_CONSUME_QUEUE: self._units,
        }

    # ---- about the broker ----

    def _topics(self, request: Frame, account: Account | None) -> bytes:
        table = {name: config_of(name, topic) for name, topic in dict(self._log.topics).items()}
        version = {"counter": len(table), "stateVersion": 0, "timestamp": self._booted_ms}
        body = orjson.dumps({"dataVersion": version, "topicConfigTable": table})
        return request.answer(AnswerCode.SUCCESS, body=body)

    def _config(self, request: Frame, account: Account | None) -> bytes:
        return request.answer(AnswerCode.SUCCESS, {"version": "{}"}, body=self._broker.config())

    # ---- offsets ----

    def _max_offset(self, request: Frame, account: Account | None) -> bytes:
        return _offset(request, self._offsets(request, account).next)

    def _min_offset(self, request: Frame, account: Account | None) -> bytes:
        return _offset(request, self._offsets(request, account).first)

    def _offset_at(self, request: Frame, account: Account | None) -> bytes:
        asked = header_of(r.SearchOffset, request)
        check_may(account, asked.topic, GET)
        return _offset(request, self._log.offset_at(asked.topic, asked.queue_id, asked.timestamp))

    def _offsets(self, request: Frame, account: Account | None) -> QueueOffsets:
        asked = header_of(r.GetMaxOffset, request)
        check_may(account, asked.topic, GET)
        return self._log.offsets(asked.topic, asked.queue_id)

    # ---- messages ----

    def nothing_new(self, asked: r.PullMessage, request: Frame, account: Account | None, terms: Terms) -> bytes | None:
        """The answer to a pull that is to wait and stands at its queue's end; None for another one."""
        topic, offset = asked.topic, asked.queue_offset
        if not asked.sys_flag & _SUSPEND or not (topic in terms.known or _is_served(topic, terms)):
            return None
        there = self._log.offsets(topic, asked.queue_id)
        if offset != there.next:
            return None
        _check_puller(account, asked)
        return request.answer(AnswerCode.PULL_NOT_FOUND, r.Pulled(offset, there.first, there.next).fields())

    def _pull(self, request: Frame, account: Account | None) -> bytes:
        asked = header_of(r.PullMessage, request)
        topic, queue, offset = asked.topic, asked.queue_id, asked.queue_offset
        _check_puller(account, asked)
        if topic not in self._log.topics:
            raise Refused(AnswerCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
        if not asked.sys_flag & _SUBSCRIPTION or asked.subscription != "*":
            raise Refused(
                AnswerCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist: a pull must bring `*`"
            )
        there = self._log.offsets(topic, queue)
        pulled = self._log.pull(topic, queue, offset, min(max(asked.max_msg_nums, 1), _MOST_MESSAGES))
        code, following = AnswerCode.SUCCESS, pulled.next
        if not pulled.records:
            code, following = _nothing(there, offset)
        self.pulled += len(pulled.records)
        header = r.Pulled(following, there.first, there.next)
        return request.answer(code, header.fields(), body=b"".join(pulled.records))

    def _view(self, request: Frame, account: Account | None) -> bytes:
        offset = header_of(r.ViewMessage, request).offset
        found = self._log.record(offset)
        if found is None:
            raise Refused(AnswerCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        half = self._log.half_at(offset)
        check_may(account, half.topic if half else Message.read(found)[0].topic.decode(), GET)
        return request.answer(AnswerCode.SUCCESS, body=found)

    def _units(self, request: Frame, account: Account | None) -> bytes:
        asked = header_of(r.QueryConsumeQueue, request)
        topic, queue = asked.topic, asked.queue_id
        check_may(account, topic, GET)
        known = self._log.topics.get(topic)
        if known is None or not 0 <= queue < max(known.read_queues, known.write_queues):
            raise Refused(AnswerCode.SYSTEM_ERROR, f"{queue}@{topic} is not exist!")  # as a broker says it
        found = self._log.units(topic, queue, asked.index, min(max(asked.count, 0), _MOST_UNITS))
        there = self._log.offsets(topic, queue)
        units = [{"physicOffset": u.physical, "physicSize": u.size, "tagsCode": u.tags} for u in found]
        body = {"queueData": units, "minQueueIndex": there.first, "maxQueueIndex": there.next}
        return request.answer(AnswerCode.SUCCESS, body=orjson.dumps(body))


def _offset(request: Frame, offset: int) -> bytes:
    return request.answer(AnswerCode.SUCCESS, r.Offset(offset).fields())


def _check_puller(account: Account | None, asked: r.PullMessage) -> None:
    check_may(account, asked.topic, SUB)
    check_may(account, asked.consumer_group, SUB, kind=GROUP)


def _nothing(there: QueueOffsets, offset: int) -> tuple[AnswerCode, int]:
    """The code and the next offset of a pull that finds nothing."""
    if offset < there.first:
        return AnswerCode.PULL_OFFSET_MOVED, there.first
    return (AnswerCode.PULL_NOT_FOUND, offset) if offset == there.next else (AnswerCode.PULL_OFFSET_MOVED, there.next)


# ---- topics and routes ----


def config_of(name: str, topic: Topic) -> dict[str, object]:
    """A topic as a broker's table has it. Apache's proxy sends to none whose kind of messages it does not know."""
    return {
        "topicName": name,
        "readQueueNums": topic.read_queues,
        "writeQueueNums": topic.write_queues,
        "perm": topic.perm,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {"message.type": "TRANSACTION"} if is_real_topic(name) else {},
    }


def route_of(topic: str, broker: Description, terms: Terms) -> bytes | None:
    """The body of the answer to GET_ROUTEINFO_BY_TOPIC; None if the topic is not served here."""
    found = topic_of(topic, terms) if topic in _OWN or _is_served(topic, terms) else None
    if found is None:
        return None
    queues = {
        "brokerName": broker.name,
        "perm": found.perm,
        "readQueueNums": found.read_queues,
        "writeQueueNums": found.write_queues,
        "topicSysFlag": 0,
        "topicSynFlag": 0,
    }
    return orjson.dumps({"brokerDatas": [_data(broker)], "filterServerTable": {}, "queueDatas": [queues]})


def topic_config(topic: str, terms: Terms) -> bytes:
    """The body of the answer to GET_TOPIC_CONFIG. Raises Refused if the topic is not served here."""
    found = topic_of(topic, terms)
    if found is None:
        raise Refused(AnswerCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
    return orjson.dumps(config_of(topic, found))


def topic_of(topic: str, terms: Terms) -> Topic | None:
    """A topic that the log has, or that would be made by its first message; None if it is not served here."""
    new = Topic(terms.queues, terms.queues, _ANY if topic == DEFAULT_TOPIC else _READ_WRITE)
    return terms.known.get(topic) or (new if _is_served(topic, terms) else None)


def _is_served(topic: str, terms: Terms) -> bool:
    if terms.topics is None and topic == DEFAULT_TOPIC:
        return True
    if topic == TRACE_TOPIC:  # whose route Go's client needs
        return terms.traces
    try:
        check_topic(topic, terms)
    except Refused:
        return False
    return True


def cluster_info(broker: Description) -> bytes:
    """The body of the answer to GET_BROKER_CLUSTER_INFO."""
    table = {"brokerAddrTable": {broker.name: _data(broker)}, "clusterAddrTable": {broker.cluster: [broker.name]}}
    return orjson.dumps(table)


def _data(broker: Description) -> dict[str, object]:
    number = _SLAVE if broker.is_slave else _MASTER
    return {"brokerAddrs": {number: broker.address}, "brokerName": broker.name, "cluster": broker.cluster}


def no_route(topic: str) -> Refused:
    return Refused(AnswerCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")
