"""SEND_MESSAGE: checked as a broker checks it, and made into the half message that a broker's bridge would store."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import NamedTuple

from halfop.gateway.log.messages import HalfMessage, Topic
from halfop.gateway.refused import Refused, header_of
from halfop.rocketmq import names
from halfop.rocketmq.codes import AnswerCode, RequestCode
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.message import LONGEST_PROPERTIES
from halfop.rocketmq.names import is_legal
from halfop.rocketmq.properties import packed, unpacked
from halfop.rocketmq.requests import SendMessage, SendMessageV2

_LONGEST_GROUP = 255  # Validators.CHARACTER_MAX_LENGTH
_TRANSACTION_ID = "__transactionId__"
# A broker sets or removes these itself; a client that could set them would pass its message off as another one's copy.
_NOT_A_CLIENTS = ("POP_CK", names.DELAY, names.CHECK_TIMES, names.PREPARED_QUEUE_OFFSET, names.WHOLE_CRC)


class Terms(NamedTuple):
    """What a send must keep to. `topics` None: every legal one. `known` may have had more queues than `queues`."""

    topics: frozenset[str] | None
    queues: int
    max_body: int
    rejects: bool
    known: Mapping[str, Topic]


def half_message(request: Frame, born_host: bytes, terms: Terms) -> HalfMessage:
    """The half message of a send. Raises Refused for what a broker or this gateway does not take."""
    sent = header_of(SendMessageV2 if request.code == RequestCode.SEND_MESSAGE_V2 else SendMessage, request)
    check_topic(sent.topic, terms)
    if sent.queue_id >= (queues := _queues(sent.topic, terms)):
        raise Refused(AnswerCode.INVALID_PARAMETER, f"request queueId[{sent.queue_id}] is illegal: {queues} queues")
    properties = unpacked(sent.properties)
    _check_kind(sent, properties, terms)
    queue = sent.queue_id if sent.queue_id >= 0 else secrets.randbelow(terms.queues)
    _transform(properties, sent.producer_group, sent.topic, queue)
    _check_group(properties[names.PRODUCER_GROUP])
    content = packed(properties).encode()
    _check_lengths(request.body, content, terms)
    return HalfMessage(
        request.body,
        sent.flag,
        sent.sys_flag & ~names.TRANSACTION_TYPE_MASK,
        sent.born_timestamp,
        born_host,
        sent.reconsume_times,
        content,
        sent.topic,
        queue,
        properties[names.PRODUCER_GROUP],
        properties[names.UNIQ_KEY],
        properties.get(names.CHECK_IMMUNITY),
    )


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
    uniq = properties.get(names.UNIQ_KEY)
    if uniq is None:
        uniq = properties[names.UNIQ_KEY] = secrets.token_hex(16).upper()
    properties.setdefault(names.PRODUCER_GROUP, group)
    properties[_TRANSACTION_ID] = uniq
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
