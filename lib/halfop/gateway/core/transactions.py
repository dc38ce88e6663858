"""SEND_MESSAGE and END_TRANSACTION: checked as a broker checks them, and answered when the disk has what they wrote.

Both are refused in a broker's order, with its codes and remarks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import NamedTuple

from halfop.gateway.core.clients import Client
from halfop.gateway.core.effects import Answer, Counts, Effects
from halfop.gateway.core.messages import End, Half, HalfMessage, Outcome, Topic
from halfop.gateway.core.refusals import Refused, header_of
from halfop.rocketmq import names
from halfop.rocketmq.buffers import parse_long
from halfop.rocketmq.frames import ANSWER, ONE_WAY, Frame
from halfop.rocketmq.message import LONGEST_PROPERTIES
from halfop.rocketmq.names import AnswerCode, RequestCode, is_legal
from halfop.rocketmq.properties import packed, unpacked
from halfop.rocketmq.requests import COMMIT_TYPE, NOT_TYPE, ROLLBACK_TYPE, EndTransaction, SendMessage, SendMessageV2
from halfop.settings.model import RuleSettings

_LONGEST_GROUP = 255  # Validators.CHARACTER_MAX_LENGTH
_TRANSACTION_ID = "__transactionId__"
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_ID = 255
_NO_FIELDS: dict[str, str] = {}
# A broker sets or removes these itself; a client that could set them would pass its message off as another one's copy.
_NOT_A_CLIENTS = ("POP_CK", names.DELAY, names.CHECK_TIMES, names.PREPARED_QUEUE_OFFSET, names.WHOLE_CRC)


# ---- sends ----


class Terms(NamedTuple):
    """Limits of a send. `topics` None: every legal one. `known` may have had more queues than `queues`.

    `traces`: whether clients' message traces are taken.
    """

    topics: frozenset[str] | None
    queues: int
    max_body: int
    rejects: bool
    known: Mapping[str, Topic]
    traces: bool


def checked_send(request: Frame, sender: Client, terms: Terms, random: Random) -> HalfMessage:
    """The half message that a broker's bridge would store for a send.

    Raises Refused for what a broker or this gateway does not take.
    """
    sent = header_of(SendMessageV2 if request.code == RequestCode.SEND_MESSAGE_V2 else SendMessage, request)
    check_topic(sent.topic, terms)
    if sent.queue_id >= (queues := _queues(sent.topic, terms)):
        raise Refused(AnswerCode.INVALID_PARAMETER, f"request queueId[{sent.queue_id}] is illegal: {queues} queues")
    properties = unpacked(sent.properties)
    _check_kind(sent, properties, terms)
    queue = sent.queue_id if sent.queue_id >= 0 else random.randrange(terms.queues)
    if names.UNIQ_KEY not in properties:
        properties[names.UNIQ_KEY] = f"{random.getrandbits(128):032X}"
    _transform(properties, sent.producer_group, sent.topic, queue)
    _check_group(properties[names.PRODUCER_GROUP])
    content = packed(properties).encode()
    _check_lengths(request.body, content, terms)
    return HalfMessage(
        request.body,
        sent.flag,
        sent.sys_flag & ~names.TRANSACTION_TYPE_MASK,
        sent.born_timestamp,
        sender.host,
        sent.reconsume_times,
        content,
        sent.topic,
        queue,
        properties[names.PRODUCER_GROUP],
        properties[names.UNIQ_KEY],
        properties.get(names.CHECK_IMMUNITY),
        sender,
    )


def sends_trace(request: Frame) -> bool:
    """Returns whether the send is a client's message trace."""
    return request.fields.get("b" if request.code == RequestCode.SEND_MESSAGE_V2 else "topic") == names.TRACE_TOPIC


def _queues(topic: str, terms: Terms) -> int:
    """How many queues clients may name: as at a broker all that can be read, since they learn of fewer ones late."""
    known = terms.known.get(topic)
    return max(terms.queues, known.read_queues) if known else terms.queues


def is_group(name: str) -> bool:
    """Returns whether RocketMQ's clients would take the name for a producer group."""
    return is_legal(name) and len(name) <= _LONGEST_GROUP


def _check_group(group: str) -> None:
    if not is_group(group):
        remark = f"the producer group {group[:200]!r} is longer than {_LONGEST_GROUP} or has illegal characters"
        raise Refused(AnswerCode.INVALID_PARAMETER, remark)


def check_topic(topic: str, terms: Terms) -> None:
    """Raises Refused for a topic that is illegal, too long, not to be sent to, or not served here."""
    if not is_legal(topic):
        remark = f"The specified topic: {topic[:200]}, contains illegal characters, allowing only ^{names.LEGAL_NAME}$"
        raise Refused(AnswerCode.INVALID_PARAMETER, remark if topic.strip() else "The specified topic is blank.")
    if len(topic) > names.TOPIC_MAX_LENGTH:
        raise Refused(
            AnswerCode.MESSAGE_ILLEGAL, f"The specified topic is longer than {names.TOPIC_MAX_LENGTH} characters"
        )
    if names.is_reserved(topic):
        raise Refused(AnswerCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    if terms.topics is not None and topic not in terms.topics:
        raise Refused(AnswerCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist: it is none of this gateway's")


def _check_kind(sent: SendMessage, properties: Mapping[str, str], terms: Terms) -> None:
    """Raises Refused for what is no single transactional message."""
    if sent.batch:
        raise Refused(AnswerCode.NO_PERMISSION, "a batch: this gateway takes transactional messages only")
    if sent.unit_mode:
        raise Refused(AnswerCode.NO_PERMISSION, "a topic of a unit: this gateway serves none")
    delayed = sent.reconsume_times > 0 and properties.get(names.DELAY, "0") != "0"  # as clients before 4.6.1 send again
    if properties.get(names.TRAN_MSG, "").lower() != "true" or delayed:
        raise Refused(AnswerCode.NO_PERMISSION, "no transactional message: this gateway takes no others")
    if terms.rejects:
        raise Refused(
            AnswerCode.NO_PERMISSION, "sending transaction message is forbidden (gateway.reject_transactions)"
        )


def _transform(properties: dict[str, str], group: str, topic: str, queue: int) -> None:
    """Makes the properties those of a half message."""
    for name in _NOT_A_CLIENTS:
        properties.pop(name, None)
    properties.setdefault(names.PRODUCER_GROUP, group)
    properties[_TRANSACTION_ID] = properties[names.UNIQ_KEY]
    properties[names.REAL_TOPIC] = topic
    properties[names.REAL_QUEUE_ID] = str(queue)


def _check_lengths(body: bytes, properties: bytes, terms: Terms) -> None:
    if len(body) > terms.max_body or not body:
        remark = f"the message is illegal: its body has {len(body)} bytes, 1 to {terms.max_body} are allowed"
        raise Refused(AnswerCode.MESSAGE_ILLEGAL, remark)
    if len(properties) > LONGEST_PROPERTIES:
        remark = (
            f"the message is illegal: its properties have {len(properties)} bytes, {LONGEST_PROPERTIES} are allowed"
        )
        raise Refused(AnswerCode.MESSAGE_ILLEGAL, remark)


# ---- ends ----


def end_request(request: Frame) -> EndTransaction:
    """Returns the request's header, without an id that would change the other properties of an op message."""
    asked = header_of(EndTransaction, request)
    if asked.commit_or_rollback not in (NOT_TYPE, COMMIT_TYPE, ROLLBACK_TYPE):
        raise Refused(AnswerCode.SYSTEM_ERROR, "commitOrRollback field wrong")
    given = asked.transaction_id
    fits = given is None or (len(given) <= _LONGEST_ID and given.isprintable())
    return asked if fits else replace(asked, transaction_id=None)


def end_of(asked: EndTransaction, at_ms: int) -> End:
    """Returns the end that is asked for, if it was found to be in time at that instant."""
    outcome: Outcome = "COMMIT" if asked.commit_or_rollback == COMMIT_TYPE else "ROLLBACK"
    return End(outcome, asked.from_transaction_check, asked.producer_group, asked.transaction_id, at_ms)


def check_end(asked: EndTransaction, half: Half | None, now_ms: int, rules: RuleSettings) -> Half:
    """The half message that the request names. Raises Refused with the broker's codes and remarks, in its order."""
    if half is None:
        raise not_found()
    if not asked.from_transaction_check and half.immunity and now_ms - half.born_ms > _immune_ms(half, rules):
        raise Refused(AnswerCode.ILLEGAL_OPERATION, "TOO_LATE: its check immunity is over, so it is asked about")
    if half.group != asked.producer_group:
        raise Refused(AnswerCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != asked.tran_state_table_offset:
        raise Refused(AnswerCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    return half


def _immune_ms(half: Half, rules: RuleSettings) -> int:
    """How long a producer may end the transaction without having been asked: its own immunity, or the timeout."""
    seconds, timeout = parse_long(half.immunity), _timeout(half, rules) // _MILLISECOND
    return timeout if seconds is None or seconds == -1 else max(seconds * 1000, timeout)


def _timeout(half: Half, rules: RuleSettings) -> timedelta:
    for own in (rules.topics.get(half.topic), rules.groups.get(half.group)):
        if own is not None and own.transaction_timeout is not None:
            return own.transaction_timeout
    return rules.transaction_timeout


def not_found() -> Refused:
    """A new one for each request: an exception that is raised again keeps the frames of all before."""
    return Refused(AnswerCode.SYSTEM_ERROR, "Find prepared transaction message failed")


# ---- answers ----


def answer(client: Client, request: Frame, frame: bytes) -> Effects:
    """Returns the answer to a request; nothing if it wants none."""
    return () if request.flag & ONE_WAY else (Answer(client, frame),)


class _Waiting(NamedTuple):
    """Waits for the log to be durable to `end`. No client: nothing is answered; fields: it is a send's answer."""

    end: int
    since: float
    client: Client | None
    opaque: int
    form: int
    fields: dict[str, str] | None

    def frame(self, code: int, remark: str = "") -> bytes:
        return Frame(code, ANSWER, self.opaque, self.fields or _NO_FIELDS, remark, form=self.form).packed()


class Answers:
    """Answers that wait for the disk, in the log's order. `counts` gets how long each has waited."""

    def __init__(self, counts: Counts) -> None:
        self._waiting, self._counts = deque[_Waiting](), counts

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end: int, since: float, client: Client, request: Frame, fields: dict[str, str] | None) -> None:
        """Adds the answer to what was appended last."""
        answered = None if request.flag & ONE_WAY else client
        self._waiting.append(_Waiting(end, since, answered, request.opaque, request.form, fields))

    def flushed(self, end: int, now: float) -> Iterator[Answer]:
        """Takes the answers to all that is durable, each when it is wanted: the first need not wait for the last."""
        waiting = self._waiting
        while waiting and waiting[0].end <= end:
            found = waiting.popleft()
            self._counts.waited(now - found.since)
            if found.client is not None:
                yield Answer(found.client, found.frame(AnswerCode.SUCCESS))

    def give_up(self, before: float) -> Iterator[Answer]:
        """Takes those that have waited since `before`, as answers with FLUSH_DISK_TIMEOUT."""
        waiting = self._waiting
        while waiting and waiting[0].since <= before:
            found = waiting.popleft()
            self._counts.given_up += 1
            if found.client is not None:
                remark = "" if found.fields else "the transaction has ended once the disk has it"
                yield Answer(found.client, found.frame(AnswerCode.FLUSH_DISK_TIMEOUT, remark))
