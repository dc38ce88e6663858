"""The answers of a gateway to all requests: sends and ends go to its log, and are answered when they are durable."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import orjson

from halfop.gateway.accounts import Account, Accounts
from halfop.gateway.asking import Asking
from halfop.gateway.connection import Channel
from halfop.gateway.ends import check, end_of, end_request, not_found
from halfop.gateway.log.log import Log
from halfop.gateway.log.messages import HalfGone, Topic
from halfop.gateway.producers import Producers
from halfop.gateway.reading import Broker, Reading
from halfop.gateway.refused import Refused, header_of
from halfop.gateway.routes import DEFAULT_TOPIC, cluster_info, no_route, route_of
from halfop.gateway.sends import Terms, check_topic, half_message, is_group
from halfop.gateway.tables import now as table_now
from halfop.gateway.tallies import Tallies
from halfop.gateway.waiting import Answer, Waiting
from halfop.rocketmq.codes import AnswerCode, RequestCode
from halfop.rocketmq.frames import ANSWER, ONE_WAY, Frame
from halfop.rocketmq.message import message_id
from halfop.rocketmq.requests import NOT_TYPE, EndTransaction, GetRouteinfo, Sent, UnregisterClient
from halfop.settings.model import RuleSettings

_log = logging.getLogger("halfop.gateway")
_MOST_TOPICS = 10_000
_MOST_GROUPS = 100  # of a connection
_MOST_READS = 64  # of a connection, that wait
_LONGEST_REMARK = 1000  # of an answer, as check_deliveries has it
_READ_WRITE, _ANY = 6, 7

Handler = Callable[[Channel, Frame, Account | None], bytes | None]


class Away(Protocol):
    """Work that would hold up the loop."""

    def read(self, channel: Channel, request: Frame, read: Callable[[], bytes]) -> None:
        """Answers the request from another thread."""

    def route(self, channel: Channel, request: Frame, topic: str) -> bool:
        """Answers with the given name servers' route; False if there are none."""


@dataclass(frozen=True)
class Limits:
    """Above these sends are refused, so that the gateway lives."""

    unflushed_bytes: int
    open_messages: int


@dataclass(frozen=True)
class Parts:
    """The parts that a service works with."""

    producers: Producers
    waiting: Waiting
    asking: Asking
    tallies: Tallies


class Service:
    """Handles requests in the loop's thread. `disk_full`, `stopping` and `accounts` are set from outside, too."""

    def __init__(  # noqa: PLR0913, PLR0917 - its parts
        self,
        log: Log,
        broker: Broker,
        store_host: bytes,
        terms: Terms,
        limits: Limits,
        rules: RuleSettings,
        accounts: Accounts | None,
        parts: Parts,
        away: Away,
    ) -> None:
        self._log, self._broker, self._store_host = log, broker, store_host
        self._terms, self._limits, self._rules, self.accounts = terms, limits, rules, accounts
        self._producers, self._waiting, self._asking = parts.producers, parts.waiting, parts.asking
        self._tallies, self._away = parts.tallies, away
        self.disk_full = self.stopping = False
        self._reading = Reading(log, broker)
        self._handlers: Mapping[int, Handler] = {
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._refuse_batch,
            RequestCode.END_TRANSACTION: self._end,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_client,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: lambda channel, request, account: cluster_info(request, broker),
        }

    def handle(self, channel: Channel, request: Frame) -> None:
        """Handles a request, and answers it now or when it is durable."""
        if request.flag & ANSWER:
            return
        try:
            account = channel.account = self.accounts.of(request) if self.accounts else None
            frame = self._handled(channel, request, account)
        except Refused as error:
            frame = self._refusal(request, error)
        except Exception:
            _log.exception("request %s of %s failed", request.code, channel.client)
            frame = self._refusal(
                request, Refused(AnswerCode.SYSTEM_ERROR, "the gateway failed at it: its log says why")
            )
        if frame is not None and not request.flag & ONE_WAY:
            channel.send(frame)

    def _handled(self, channel: Channel, request: Frame, account: Account | None) -> bytes | None:
        handler = self._handlers.get(request.code)
        if handler is not None:
            return handler(channel, request, account)
        quick = self._reading.handlers.get(request.code)
        if quick is not None:
            return quick(request, account)
        slow = self._reading.slow_handlers.get(request.code)
        if slow is None:
            raise Refused(AnswerCode.NOT_SUPPORTED, f" request type {request.code} not supported")
        if len(channel.reads) >= _MOST_READS:
            raise Refused(AnswerCode.SYSTEM_BUSY, "[OVERLOAD]too many reads of this connection are under way")
        self._away.read(channel, request, lambda: slow(request, account))
        return None

    def _refusal(self, request: Frame, error: Refused) -> bytes:
        self._tallies.refused[error.code] += 1
        return request.answer(error.code, remark=error.remark)

    def _wait(self, end: int, channel: Channel, request: Frame, fields: dict[str, str] | None) -> None:
        """Answers the request when the log is durable to `end`."""
        answered = None if request.flag & ONE_WAY else channel
        self._waiting.add(Answer(end, time.monotonic(), answered, request.opaque, request.form, fields))
        if end <= self._log.flushed_to:  # nothing new was written
            self._waiting.flushed(end, time.monotonic())

    # ---- sends ----

    def _send(self, channel: Channel, request: Frame, account: Account | None) -> None:
        if self._broker.is_slave:
            raise Refused(AnswerCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy: a slave takes no messages")
        given = half_message(request, channel.host, self._terms)
        if account is not None:
            account.check("PUB", given.topic)
        self._check_room()
        if given.topic not in self._log.topics:
            self._add_topic(given.topic)
        half = self._log.append_half(given)
        if given.group not in channel.groups:
            self._learn(given.group, channel)
        self._tallies.sent += 1
        message = message_id(self._store_host, half.physical_offset)
        sent = Sent(message, half.queue, half.queue_offset, half.uniq_key or "")
        self._wait(half.end, channel, request, sent.fields())

    def _check_room(self) -> None:
        """Raises Refused if a send has no room."""
        if self.stopping:
            raise Refused(AnswerCode.SERVICE_NOT_AVAILABLE, "service not available now: the gateway stops")
        if self.disk_full:
            raise Refused(AnswerCode.SERVICE_NOT_AVAILABLE, "service not available now: the gateway's disk is full")
        self._check_unflushed(self._limits.unflushed_bytes)
        if len(self._log.open_halves) >= self._limits.open_messages:
            raise Refused(AnswerCode.SYSTEM_BUSY, "[OPEN]too many transactions are open (gateway.open_messages)")

    def _check_unflushed(self, most: int) -> None:
        if self._log.unflushed > most:
            raise Refused(
                AnswerCode.SYSTEM_BUSY, "[UNFLUSHED]the disk is slower than the messages come, try again later"
            )

    def _add_topic(self, topic: str) -> None:
        if len(self._log.topics) >= _MOST_TOPICS:
            raise Refused(
                AnswerCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist: this gateway has {_MOST_TOPICS} topics"
            )
        self._log.put_topic(topic, Topic(self._terms.queues, self._terms.queues))

    def _learn(self, group: str, channel: Channel) -> None:
        if len(channel.groups) < _MOST_GROUPS:
            self._producers.add(group, channel)

    def _refuse_batch(self, channel: Channel, request: Frame, account: Account | None) -> bytes:
        raise Refused(AnswerCode.NO_PERMISSION, "a batch: this gateway takes transactional messages only")

    # ---- ends ----

    def _end(self, channel: Channel, request: Frame, account: Account | None) -> bytes | None:
        if self._broker.is_slave:
            raise Refused(
                AnswerCode.SLAVE_NOT_AVAILABLE, "message store is slave mode, so end transaction is forbidden"
            )
        asked = end_request(request)
        if asked.commit_or_rollback == NOT_TYPE:
            self._note_unknown(channel, request, asked)
            return None
        # twice: sends that are refused leave room to end what is open. An end that is lost is asked about
        self._check_unflushed(2 * self._limits.unflushed_bytes)
        now_ms = int(time.time() * 1000)
        half = check(asked, self._log.half_at(asked.commit_log_offset), now_ms, self._rules)
        if account is not None:
            account.check("PUB", half.topic)
        try:
            end = end_of(asked, now_ms)
            ended = self._log.append_end(half, end)
        except HalfGone:
            raise not_found() from None
        self._tallies.ended[f"{end.outcome}_{ended.kind}"] += 1
        if asked.from_transaction_check:
            remark = request.remark[:_LONGEST_REMARK]
            self._asking.answered(half.physical_offset, "ANSWERED", channel.client, remark, table_now())
        self._wait(ended.end, channel, request, None)
        return None

    def _note_unknown(self, channel: Channel, request: Frame, asked: EndTransaction) -> None:
        """An end that says nothing is not answered, as a broker does not."""
        self._tallies.ended["UNKNOWN"] += 1
        half = self._log.open_halves.get(asked.commit_log_offset)
        if not asked.from_transaction_check or half is None or half.group != asked.producer_group:
            return
        if channel.may_send(half.topic):
            remark = request.remark[:_LONGEST_REMARK]
            self._asking.answered(half.physical_offset, "UNKNOWN", channel.client, remark, table_now())

    # ---- clients ----

    def _heartbeat(self, channel: Channel, request: Frame, account: Account | None) -> bytes:
        try:
            data = orjson.loads(request.body)
            client = data.get("clientID") or channel.client
            groups = [each["groupName"] for each in data.get("producerDataSet") or ()]
            if not all(isinstance(each, str) for each in (client, *groups)):
                raise TypeError
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise Refused(AnswerCode.SYSTEM_ERROR, "a heartbeat that cannot be read") from error
        channel.client = client[:200]
        for group in filter(is_group, groups):
            self._learn(group, channel)
        # V2 leaves out what has not changed, which this gateway would have to remember
        return request.answer(AnswerCode.SUCCESS, {"IS_SUPPORT_HEART_BEAT_V2": "false", "IS_SUB_CHANGE": "true"})

    def _unregister(self, channel: Channel, request: Frame, account: Account | None) -> bytes:
        group = header_of(UnregisterClient, request).producer_group
        if group:
            self._producers.remove([group], channel)
        return request.answer(AnswerCode.SUCCESS)

    def _check_client(self, channel: Channel, request: Frame, account: Account | None) -> bytes:
        return request.answer(AnswerCode.SUCCESS)

    # ---- routes ----

    def _route(self, channel: Channel, request: Frame, account: Account | None) -> bytes | None:
        topic = header_of(GetRouteinfo, request).topic
        if self._serves(topic):
            queues = self._terms.queues
            found = self._log.topics.get(topic) or Topic(
                queues, queues, _ANY if topic == DEFAULT_TOPIC else _READ_WRITE
            )
            return request.answer(AnswerCode.SUCCESS, body=route_of(self._broker, found))
        if self._away.route(channel, request, topic):
            return None
        raise no_route(topic)

    def _serves(self, topic: str) -> bool:
        if self._terms.topics is None and topic == DEFAULT_TOPIC:
            return True
        try:
            check_topic(topic, self._terms)
        except Refused:
            return False
        return True
