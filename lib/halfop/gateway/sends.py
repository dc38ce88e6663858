"""SEND_MESSAGE: checked as a broker checks it, and made into the half message that a broker's bridge would store."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from halfop.gateway.fields import a_flag, a_long, an_int, text
from halfop.gateway.frames import Request
from halfop.gateway.log.messages import HalfMessage, Topic
from halfop.gateway.log.records import LONGEST_PROPERTIES
from halfop.gateway.refused import Refused
from halfop.rocketmq import names
from halfop.rocketmq.wire.codes import AnswerCode, RequestCode

_LEGAL_TOPIC = re.compile(names.LEGAL_TOPIC.replace(r"\z", r"\Z"))
_LONGEST_GROUP = 255  # Validators.CHARACTER_MAX_LENGTH
_TRANSACTION_ID = "__transactionId__"
# A broker sets or removes these itself; a client that could set them would pass its message off as another one's copy.
_NOT_A_CLIENTS = ("POP_CK", names.DELAY, names.CHECK_TIMES, names.PREPARED_QUEUE_OFFSET, names.WHOLE_CRC)


class _Names(NamedTuple):
    """The names of a send's fields."""

    group: str
    topic: str
    queue: str
    sys_flag: str
    born: str
    flag: str
    properties: str
    reconsumed: str
    unit: str
    batch: str


_V1 = _Names(
    *("producerGroup", "topic", "queueId", "sysFlag", "bornTimestamp"),
    *("flag", "properties", "reconsumeTimes", "unitMode", "batch"),
)
_V2 = _Names(*"abefghijkm")


class Terms(NamedTuple):
    """What a send must keep to. `topics` None: every legal one. `known` may have had more queues than `queues`."""

    topics: frozenset[str] | None
    queues: int
    max_body: int
    rejects: bool
    known: Mapping[str, Topic]


def half_message(request: Request, born_host: bytes, terms: Terms) -> HalfMessage:
    """The half message of a send. Raises Refused for what a broker or this gateway does not take."""
    fields, name = request.fields, _V2 if request.code == RequestCode.SEND_MESSAGE_V2 else _V1
    group, topic = text(fields, name.group), text(fields, name.topic)
    queue, sys_flag, flag = (an_int(fields, each) for each in (name.queue, name.sys_flag, name.flag))
    born = a_long(fields, name.born)
    check_topic(topic, terms)
    if queue >= (queues := _queues(topic, terms)):
        raise Refused(AnswerCode.INVALID_PARAMETER, f"request queueId[{queue}] is illegal: {queues} queues")
    properties = properties_of(fields.get(name.properties, ""))
    reconsumed = an_int(fields, name.reconsumed) if name.reconsumed in fields else 0
    _check_kind(fields, name, properties, reconsumed, terms)
    queue = queue if queue >= 0 else secrets.randbelow(terms.queues)
    _transform(properties, group, topic, queue)
    _check_group(properties[names.PRODUCER_GROUP])
    packed = "".join([f"{key}\x01{value}\x02" for key, value in properties.items()]).encode()
    _check_lengths(request.body, packed, terms)
    return HalfMessage(
        request.body,
        flag,
        sys_flag & ~names.TRANSACTION_TYPE_MASK,
        born,
        born_host,
        reconsumed,
        packed,
        topic,
        queue,
        properties[names.PRODUCER_GROUP],
        properties[names.UNIQ_KEY],
        properties.get(names.CHECK_IMMUNITY),
    )


def _queues(topic: str, terms: Terms) -> int:
    """How many queues clients may name: as at a broker all that can be read, since they learn of fewer ones late."""
    known = terms.known.get(topic)
    return max(terms.queues, known.read_queues) if known else terms.queues


def properties_of(packed: str) -> dict[str, str]:
    """The properties that RocketMQ's text form holds."""
    found = {}
    for entry in packed.split("\x02"):
        name, mark, value = entry.partition("\x01")
        if value and name and mark:
            found[name] = value
    return found


def is_legal(name: str) -> bool:
    """Returns whether a name has only the characters that RocketMQ allows."""
    return _LEGAL_TOPIC.match(name) is not None


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
        remark = f"The specified topic: {topic[:200]}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        raise Refused(AnswerCode.INVALID_PARAMETER, remark if topic.strip() else "The specified topic is blank.")
    if len(topic) > names.TOPIC_MAX_LENGTH:
        raise Refused(
            AnswerCode.MESSAGE_ILLEGAL, f"The specified topic is longer than {names.TOPIC_MAX_LENGTH} characters"
        )
    if topic in names.NOT_ALLOWED_SEND or topic.lower().startswith(names.SYSTEM_PREFIX):
        raise Refused(AnswerCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    if terms.topics is not None and topic not in terms.topics:
        raise Refused(AnswerCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist: it is none of this gateway's")


def _check_kind(
    fields: Mapping[str, str], name: _Names, properties: Mapping[str, str], reconsumed: int, terms: Terms
) -> None:
    """Raises Refused for what is no single transactional message."""
    if a_flag(fields, name.batch):
        raise Refused(AnswerCode.NO_PERMISSION, "a batch: this gateway takes transactional messages only")
    if a_flag(fields, name.unit):
        raise Refused(AnswerCode.NO_PERMISSION, "a topic of a unit: this gateway serves none")
    delayed = reconsumed > 0 and properties.get(names.DELAY, "0") != "0"  # as clients before 4.6.1 send again
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


def _check_lengths(body: bytes, packed: bytes, terms: Terms) -> None:
    if len(body) > terms.max_body or not body:
        remark = f"the message is illegal: its body has {len(body)} bytes, 1 to {terms.max_body} are allowed"
        raise Refused(AnswerCode.MESSAGE_ILLEGAL, remark)
    if len(packed) > LONGEST_PROPERTIES:
        remark = f"the message is illegal: its properties have {len(packed)} bytes, {LONGEST_PROPERTIES} are allowed"
        raise Refused(AnswerCode.MESSAGE_ILLEGAL, remark)
