"""CHECK_TRANSACTION_STATE: the question to a producer about a half message, as a broker sends it."""

from __future__ import annotations

from typing import NamedTuple

from halfop.gateway.log.messages import Half
from halfop.rocketmq.frames import ONE_WAY, Frame
from halfop.rocketmq.message import Message, message_id
from halfop.rocketmq.requests import CheckTransactionState


class Asker(NamedTuple):
    """The sender of questions."""

    broker_name: str
    store_host: bytes


def question(half: Half, record: bytes, asker: Asker, opaque: int, form: int) -> bytes:
    """The frame of the question: one-way, with the half message under its real topic as its body."""
    uniq = half.uniq_key or ""
    message = message_id(asker.store_host, half.physical_offset)
    place = half.queue_offset, half.physical_offset
    header = CheckTransactionState(half.topic, *place, uniq, uniq, message, asker.broker_name)
    body = under_real_topic(record, half.topic, half.queue)
    return Frame(header.code, ONE_WAY, opaque, header.fields(), body=body, form=form).packed()


def under_real_topic(record: bytes, topic: str, queue: int) -> bytes:
    """The half message's record with its real topic and queue, without the CRC of what the log has."""
    message, place = Message.read(record)
    real = message._replace(topic=topic.encode(), queue_id=queue)
    return real.packed(place._replace(size=real.size(checked=False)), checked=False)
