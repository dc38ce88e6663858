"""The gateway's core: a request comes in, effects come out. It has no clock, thread, socket, file or lock.

A half message's life in it: `request` checks a SEND and returns `AppendHalf`; the server appends, and gives the place
to `half_stored`; its answer waits until `flushed` says that the log is durable to there. An END_TRANSACTION goes the
same way, by `AppendEnd` and `end_stored`. A question comes by `want`, and is asked by `tick` as soon as a producer is
there; its answer is an END_TRANSACTION, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from random import Random

import orjson

from halfop.gateway.core.accounts import PUB, Accounts, account_shown, check_may
from halfop.gateway.core.administration import RunningState
from halfop.gateway.core.clients import Client, Producers
from halfop.gateway.core.effects import (
    AccountShown,
    AddTopic,
    Answer,
    AppendEnd,
    AppendHalf,
    CheckRequest,
    Counts,
    Effect,
    Effects,
    EndTaken,
    Instant,
    LogView,
    RefusedRequest,
)
from halfop.gateway.core.lookups import Lookups
from halfop.gateway.core.messages import Ended, Half, Topic
from halfop.gateway.core.questions import Manner, Questions
from halfop.gateway.core.reads import Description
from halfop.gateway.core.refusals import NotSigned, Refused, header_of
from halfop.gateway.core.transactions import (
    Answers,
    Terms,
    answer,
    check_end,
    checked_send,
    end_of,
    end_request,
    is_group,
    not_found,
    sends_trace,
)
from halfop.rocketmq.frames import ANSWER, ONE_WAY, Frame
from halfop.rocketmq.message import message_id
from halfop.rocketmq.names import AnswerCode, RequestCode
from halfop.rocketmq.requests import (
    NOT_TYPE,
    EndTransaction,
    Sent,
    UnregisterClient,
)
from halfop.settings.model import Settings

_MOST_TOPICS = 10_000
_LONGEST_REMARK = 1000  # of an answer, as check_deliveries has it
_LONGEST_PAUSE = 1.0  # seconds between two ticks that count
_OF_ACCOUNTS = (RequestCode.AUTH_GET_USER, RequestCode.AUTH_GET_ACL)
_AUDITED = (RequestCode.END_TRANSACTION, *_OF_ACCOUNTS)


class Core:
    """Decides everything that a gateway does for its clients, one call after the other.

    It only reads `log`. The server sets `disk_full`, `stopping` and `accounts`.
    """

    def __init__(self, log: LogView, broker: Description, settings: Settings, random: Random, started: Instant) -> None:
        own, self._rules = settings.gateway, settings.rules
        self._log, self._broker, self._random, self._limits = log, broker, random, own
        topics = frozenset(own.topics.split(",")) if own.topics else None
        self._terms = Terms(topics, own.queues, own.max_body, own.reject_transactions, log.topics, own.traces)
        self.accounts: Accounts | None = None
        self.disk_full = self.stopping = False
        self.counts, self.producers = Counts(), Producers()
        self.answers = Answers(self.counts)
        self._lookups = Lookups(log, broker, self._terms, RunningState(self.producers, self.counts), started)
        manner = Manner(broker, self._rules.transaction_check_interval, own.questions_a_second, own.ask_sender_first)
        self.questions = Questions(log, self.producers, manner, self.counts.questions)
        self._audits = own.audit_file is not None
        self._flush_seconds = own.flush_time.total_seconds()
        self._ticked: float | None = None
        self._handlers: Mapping[int, Callable[[Client, Frame, Instant], Effects]] = {
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._refuse_batch,
            RequestCode.END_TRANSACTION: self._end,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_client,
            **dict.fromkeys(_OF_ACCOUNTS, self._account),
            **self._lookups.handlers,
        }

    # ---- what comes in ----

    def request(self, client: Client, request: Frame, now: Instant) -> Effects:
        """Takes a request of a client."""
        if request.flag & ANSWER:
            return ()
        try:
            client.account = self.accounts.of(request, client.address) if self.accounts else None
            handler = self._handlers.get(request.code)
            if handler is None:
                raise Refused(AnswerCode.NOT_SUPPORTED, f" request type {request.code} not supported")
            is_read = request.code in self._lookups.handlers
            if is_read and request.flag & ONE_WAY:
                return ()  # a read for nobody
            return handler(client, request._replace(body=b"") if is_read else request, now)  # many reads may wait
        except Refused as error:
            return self.refuse(client, request, error)

    def refuse(self, client: Client, request: Frame, error: Refused) -> Effects:
        """Answers a request with an error."""
        told = self._told(client, request, error)
        return told, *answer(client, request, request.answer(error.code, remark=error.remark))

    def _told(self, client: Client, request: Frame, error: Refused) -> RefusedRequest:
        self.counts.refuse(request.code, error.code)
        is_audited = request.code in _AUDITED or request.code not in self._handlers
        account = None if isinstance(error, NotSigned) or client.account is None else client.account.access_key
        return RefusedRequest(client, request, error.code, error.why, is_audited, account)

    def half_stored(self, appended: AppendHalf, half: Half, now: Instant) -> Effects:
        """Takes the place that a half message got in the log."""
        self.counts.sent += 1
        message = message_id(self._broker.store_host, half.physical_offset)
        sent = Sent(message, half.queue, half.queue_offset, half.uniq_key or "", trace_on=self._limits.traces)
        return self._wait(half.end, appended.client, appended.request, sent.fields(), now)

    def end_stored(self, appended: AppendEnd, ended: Ended, now: Instant) -> Effects:
        """Takes what became of an end in the log."""
        client, request, half = appended.client, appended.request, appended.half
        if ended.kind == "GONE":
            return self.refuse(client, request, not_found())
        self.counts.ended[f"{appended.end.outcome}_{ended.kind}"] += 1
        waits = self._wait(ended.end, client, request, None, now)
        if self._audits:
            end = appended.end
            waits = EndTaken(client, half, end.outcome, ended.kind, bool(end.from_check)), *waits
        if appended.end.from_check:
            return [*self._answered(half, "ANSWERED", client, request, now), *waits]
        return waits

    def flushed(self, end: int, now: Instant) -> Iterator[Answer]:
        """Answers all that is durable, now that the log is to `end`; what is not taken waits for the next call."""
        return self.answers.flushed(end, now.steady)

    def tick(self, now: Instant) -> Iterator[Effect]:
        """Gives up answers that are late, and asks questions; called some ten times a second.

        Each is decided when it is wanted, so that a client that takes no more gets no more, and a failure loses none.
        """
        yield from self.answers.give_up(now.steady - self._flush_seconds)
        yield from self._lookups.tick(now.steady)
        seconds = 0.0 if self._ticked is None else min(now.steady - self._ticked, _LONGEST_PAUSE)
        self._ticked = now.steady
        yield from self.questions.ask(now.at, seconds)

    def want(
        self, requests: Iterable[CheckRequest], sent_before: Mapping[tuple[str, int], datetime], now: Instant
    ) -> Effects:
        """Takes questions that runs have asked for."""
        return self.questions.want(requests, now.at, sent_before)

    def left(self, client: Client) -> None:
        """Forgets a client whose connection has ended."""
        client.is_open = False
        self.producers.remove(client.groups, client)

    # ---- sends ----

    def _send(self, client: Client, request: Frame, now: Instant) -> Effects:
        if self._broker.is_slave:
            raise Refused(AnswerCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy: a slave takes no messages")
        try:
            given = checked_send(request, client, self._terms, self._random)
        except Refused:
            if self._terms.traces and sends_trace(request):
                return self._drop_trace(client, request)
            raise
        check_may(client.account, given.topic, PUB)
        self._check_room()
        added = () if given.topic in self._log.topics else (self._new_topic(given.topic),)
        if given.group not in client.groups:
            client.speaks(request)
            self.producers.learn(given.group, client)
        return *added, AppendHalf(given, client, request)

    def _drop_trace(self, client: Client, request: Frame) -> Effects:
        """A client whose message trace is taken by nobody logs an error for each message, and tries again."""
        self.counts.traces += 1
        nowhere = Sent(message_id(self._broker.store_host, 0), 0, 0)
        return answer(client, request, request.answer(AnswerCode.SUCCESS, nowhere.fields()))

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

    def _new_topic(self, topic: str) -> AddTopic:
        if len(self._log.topics) >= _MOST_TOPICS:
            raise Refused(
                AnswerCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist: this gateway has {_MOST_TOPICS} topics"
            )
        return AddTopic(topic, Topic(self._terms.queues, self._terms.queues))

    def _refuse_batch(self, client: Client, request: Frame, now: Instant) -> Effects:
        raise Refused(AnswerCode.NO_PERMISSION, "a batch: this gateway takes transactional messages only")

    # ---- ends ----

    def _end(self, client: Client, request: Frame, now: Instant) -> Effects:
        if self._broker.is_slave:
            raise Refused(
                AnswerCode.SLAVE_NOT_AVAILABLE, "message store is slave mode, so end transaction is forbidden"
            )
        asked = end_request(request)
        if asked.commit_or_rollback == NOT_TYPE:
            return self._unknown(client, request, asked, now)
        # twice: sends that are refused leave room to end what is open. An end that is lost is asked about
        self._check_unflushed(2 * self._limits.unflushed_bytes)
        half = check_end(asked, self._log.half_at(asked.commit_log_offset), now.ms, self._rules)
        check_may(client.account, half.topic, PUB)
        return (AppendEnd(half, end_of(asked, now.ms), client, request),)

    def _unknown(self, client: Client, request: Frame, asked: EndTransaction, now: Instant) -> Effects:
        """An end that says nothing is not answered, as a broker does not."""
        self.counts.ended["UNKNOWN"] += 1
        half = self._log.open_halves.get(asked.commit_log_offset)
        if half is None or half.group != asked.producer_group or not client.may_send(half.topic):
            return (self._told(client, request, not_found()),)
        from_check = asked.from_transaction_check
        noted = self._answered(half, "UNKNOWN", client, request, now) if from_check else ()
        return (*noted, EndTaken(client, half, "UNKNOWN", "OPEN", from_check)) if self._audits else noted

    def _answered(self, half: Half, outcome: str, client: Client, request: Frame, now: Instant) -> list[Effect]:
        remark = request.remark[:_LONGEST_REMARK]
        return self.questions.answered(half.physical_offset, outcome, client, remark, now.at)

    def _wait(self, end: int, client: Client, request: Frame, fields: dict[str, str] | None, now: Instant) -> Effects:
        """Answers the request when the log is durable to `end`."""
        self.answers.add(end, now.steady, client, request, fields)
        # at once, if nothing new was written
        return tuple(self.answers.flushed(end, now.steady)) if end <= self._log.flushed_to else ()

    # ---- clients ----

    def _heartbeat(self, client: Client, request: Frame, now: Instant) -> Effects:
        try:
            data = orjson.loads(request.body)
            name = data.get("clientID") or client.name
            groups = [each["groupName"] for each in data.get("producerDataSet") or ()]
            if not all(isinstance(each, str) for each in (name, *groups)):
                raise TypeError
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise Refused(AnswerCode.SYSTEM_ERROR, "a heartbeat that cannot be read") from error
        client.speaks(request)
        self.producers.rename(client, name[:200])
        for group in filter(is_group, groups):
            self.producers.add(group, client)
        # V2 leaves out what has not changed, which this gateway would have to remember
        about = {"IS_SUPPORT_HEART_BEAT_V2": "false", "IS_SUB_CHANGE": "true"}
        return answer(client, request, request.answer(AnswerCode.SUCCESS, about))

    def _unregister(self, client: Client, request: Frame, now: Instant) -> Effects:
        group = header_of(UnregisterClient, request).producer_group
        if group:
            self.producers.remove([group], client)
        return answer(client, request, request.answer(AnswerCode.SUCCESS))

    def _account(self, client: Client, request: Frame, now: Instant) -> Effects:
        """A proxy that checks its clients itself asks for their accounts."""
        name, body = account_shown(self.accounts, client.account, request)
        noted = (AccountShown(client, request, name),) if body else ()
        return *noted, *answer(client, request, request.answer(AnswerCode.SUCCESS, body=body))

    def _check_client(self, client: Client, request: Frame, now: Instant) -> Effects:
        return answer(client, request, request.answer(AnswerCode.SUCCESS))
