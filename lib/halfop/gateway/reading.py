"""The read side: what `land broker` asks a broker for, answered from the gateway's own log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import orjson

from halfop.gateway.core.accounts import Account, Refused, header_of
from halfop.gateway.core.routes import Broker
from halfop.gateway.log.log import Log
from halfop.gateway.log.queues import QueueOffsets
from halfop.gateway.log.store import config_of
from halfop.rocketmq import requests as r
from halfop.rocketmq.codes import AnswerCode, RequestCode
from halfop.rocketmq.frames import Frame

_MOST_MESSAGES, _MOST_UNITS = 32, 1024
_SUBSCRIPTION = 4  # of a pull's sysFlag: the request brings its subscription


class Reading:
    """Answers to reads."""

    def __init__(self, log: Log, broker: Broker) -> None:
        self._log, self._broker = log, broker
        self._booted_ms = int(time.time() * 1000)
        self.quick: Mapping[int, Callable[[Frame, Account | None], bytes]] = {
            RequestCode.GET_ALL_TOPIC_CONFIG: self._topics,
            RequestCode.GET_BROKER_CONFIG: self._config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
        }
        # these read records from the disk
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

    def _runtime(self, request: Frame, account: Account | None) -> bytes:
        # a clock that moves when nothing is stored: landing goes by it
        seconds = max(self._log.readable_ms() - self._booted_ms, 0) // 1000
        minutes, hours = seconds // 60, seconds // 3600
        ran = f"[ {hours // 24} days, {hours % 24} hours, {minutes % 60} minutes, {seconds % 60} seconds ]"
        table = {"bootTimestamp": str(self._booted_ms), "runtime": ran, "brokerVersionDesc": "halfop gateway"}
        return request.answer(AnswerCode.SUCCESS, body=orjson.dumps({"table": table}))

    # ---- offsets ----

    def _max_offset(self, request: Frame, account: Account | None) -> bytes:
        return _offset(request, self._offsets(request).next)

    def _min_offset(self, request: Frame, account: Account | None) -> bytes:
        return _offset(request, self._offsets(request).first)

    def _offset_at(self, request: Frame, account: Account | None) -> bytes:
        asked = header_of(r.SearchOffset, request)
        return _offset(request, self._log.offset_at(asked.topic, asked.queue_id, asked.timestamp))

    def _offsets(self, request: Frame) -> QueueOffsets:
        asked = header_of(r.GetMaxOffset, request)
        return self._log.offsets(asked.topic, asked.queue_id)

    # ---- messages ----

    def _pull(self, request: Frame, account: Account | None) -> bytes:
        asked = header_of(r.PullMessage, request)
        topic, queue, offset = asked.topic, asked.queue_id, asked.queue_offset
        _check_reader(account, topic)
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
        header = r.Pulled(following, there.first, there.next)
        return request.answer(code, header.fields(), body=b"".join(pulled.records))

    def _view(self, request: Frame, account: Account | None) -> bytes:
        offset = header_of(r.ViewMessage, request).offset
        found = self._log.record(offset)
        _check_reader(account, "")
        if found is None:
            raise Refused(AnswerCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return request.answer(AnswerCode.SUCCESS, body=found)

    def _units(self, request: Frame, account: Account | None) -> bytes:
        asked = header_of(r.QueryConsumeQueue, request)
        topic, queue = asked.topic, asked.queue_id
        _check_reader(account, topic)
        found = self._log.units(topic, queue, asked.index, min(max(asked.count, 0), _MOST_UNITS))
        there = self._log.offsets(topic, queue)
        units = [{"physicOffset": u.physical, "physicSize": u.size, "tagsCode": u.tags} for u in found]
        body = {"queueData": units, "minQueueIndex": there.first, "maxQueueIndex": there.next}
        return request.answer(AnswerCode.SUCCESS, body=orjson.dumps(body))


def _offset(request: Frame, offset: int) -> bytes:
    return request.answer(AnswerCode.SUCCESS, r.Offset(offset).fields())


def _check_reader(account: Account | None, topic: str) -> None:
    """Raises Refused for a key that may not read the topic; none is named: that may not read all."""
    if account is not None:
        account.check("SUB", topic)


def _nothing(there: QueueOffsets, offset: int) -> tuple[AnswerCode, int]:
    """The code and the next offset of a pull that finds nothing."""
    if offset < there.first:
        return AnswerCode.PULL_OFFSET_MOVED, there.first
    return (AnswerCode.PULL_NOT_FOUND, offset) if offset == there.next else (AnswerCode.PULL_OFFSET_MOVED, there.next)
