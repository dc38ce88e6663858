"""Requests by which a third party ends a transaction at its broker, asks whether it was committed, or resumes it."""

from __future__ import annotations

from typing import NamedTuple

from halfop.rocketmq import names
from halfop.rocketmq.batches import half_batch
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.message import message_id
from halfop.rocketmq.names import AnswerCode
from halfop.rocketmq.properties import Properties, decoded
from halfop.rocketmq.record import Records, chain
from halfop.rocketmq.requests import (
    COMMIT_TYPE,
    ROLLBACK_TYPE,
    EndTransaction,
    QueryMessage,
    ResumeCheckHalfMessage,
    ViewMessage,
)
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.remoting import Corrupt

_LAST_INSTANT = 2**63 - 1
_MOST_FINALS = 32  # brokers may give more
_NO_HOST = bytes(8)  # of a message id, brokers look at the offset alone

# After the log's end, and within a record: the broker takes its bytes for a length, which no buffer has.
_NOT_THERE = ("can not find message by the offset", "java.lang.IllegalArgumentException")


class HalfPlace(NamedTuple):
    """The half message that an END_TRANSACTION names, with what the broker compares with it."""

    producer_group: str
    uniq_key: str
    real_topic: str | None
    queue_offset: int
    commit_log_offset: int


def end_transaction(half: HalfPlace, commit: bool) -> EndTransaction:
    """The answer to a check: a broker takes it also after the message's own immunity."""
    kind, key = COMMIT_TYPE if commit else ROLLBACK_TYPE, half.uniq_key
    place = half.queue_offset, half.commit_log_offset
    return EndTransaction(half.producer_group, *place, kind, True, key, key, half.real_topic or "")


def query_finals(topic: str, uniq_key: str) -> QueryMessage:
    """Asks for the messages of a topic with a UNIQ_KEY; the broker finds them by its index."""
    return QueryMessage(topic, uniq_key, _MOST_FINALS, 0, _LAST_INSTANT, unique=True)


def prepared_offsets(broker: Broker, request: QueryMessage, answer: Frame) -> list[int]:
    """Returns the places of the half messages in the log whose final messages were asked for by `query_finals`."""
    if answer.code == AnswerCode.QUERY_NOT_FOUND:
        return []
    records = _records(broker, broker.remote.checked(request, answer))
    topics = records.topics().dictionary_decode().to_pylist()
    keys = Properties(records).strings(names.UNIQ_KEY).to_pylist()
    committed = (records.head["sys_flag"] & names.TRANSACTION_TYPE_MASK) == names.TRANSACTION_COMMIT
    rows = zip(topics, keys, committed, records.longs("prepared_offset"), strict=True)
    wanted = request.topic, request.key
    return [int(place) for topic, key, final, place in rows if final and (decoded(topic), key) == wanted]


class Stored(NamedTuple):
    """A message at a place of the log."""

    topic: str
    queue_offset: int
    uniq_key: str | None
    producer_group: str | None


def stored_at(broker: Broker, place: int) -> Stored | None:
    """Returns the message that begins at this place of the broker's log; None if none does.

    Raises Refused if the broker does not say: it answers a passing fault with the same code, but another remark.
    """
    request = ViewMessage(place)
    answer = broker.remote.answer(request)
    if answer.code == AnswerCode.SYSTEM_ERROR and any(text in answer.remark for text in _NOT_THERE):
        return None
    records = _records(broker, broker.remote.checked(request, answer))
    rows = half_batch(records).to_pylist()
    if len(rows) != 1 or rows[0]["commit_log_offset"] != place:
        return None
    topic = decoded(records.topics().dictionary_decode().to_pylist()[0])
    return Stored(topic, *(rows[0][name] for name in ("queue_offset", "uniq_key", "producer_group")))


def resume_check(topic: str, place: int) -> ResumeCheckHalfMessage:
    """Makes the broker put a copy of whatever is at this place of its log to its half topic, with check times 0."""
    return ResumeCheckHalfMessage(topic, message_id(_NO_HOST, place))


def _records(broker: Broker, answer: Frame) -> Records:
    found = chain(answer.body)
    if found.stop is not None:
        raise Corrupt(broker.remote.address, f"byte {found.stop.position} of the answer: {found.stop.text}")
    return found.records
