"""CHECK_TRANSACTION_STATE: the question to a producer about a half message, as a broker sends it."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from halfop.gateway.log.messages import Half
from halfop.rocketmq.frames import ONE_WAY, Frame
from halfop.rocketmq.record import BORN_HOST_V6, HEAD, PROPERTY_CRC_TAIL, STORE_HOST_V6, TAIL
from halfop.rocketmq.requests import CheckTransactionState

_INT, _SHORT = Struct(">i"), Struct(">h")
_SYS_FLAG_AT, _QUEUE_AT = 36, 12
_V4, _V6 = 8, 20


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


def message_id(store_host: bytes, physical_offset: int) -> str:
    """The id that a broker gives a message: its address, and the place of the record."""
    return f"{store_host.hex().upper()}{physical_offset:016X}"


def under_real_topic(record: bytes, topic: str, queue: int) -> bytes:
    """The half message's record with its real topic and queue, without the CRC of what the log has."""
    (sys_flag,) = _INT.unpack_from(record, _SYS_FLAG_AT)
    tail_at = HEAD.itemsize + (_V6 if sys_flag & BORN_HOST_V6 else _V4) + 8 + (_V6 if sys_flag & STORE_HOST_V6 else _V4)
    (body_length,) = _INT.unpack_from(record, tail_at + TAIL.itemsize - 4)
    topic_at = tail_at + TAIL.itemsize + body_length
    properties = record[topic_at + 1 + record[topic_at] + 2 : -PROPERTY_CRC_TAIL]
    named = topic.encode()
    parts = (
        record[4:_QUEUE_AT],
        _INT.pack(queue),
        record[_QUEUE_AT + 4 : topic_at],
        len(named).to_bytes(1, "big"),
        named,
        _SHORT.pack(len(properties)),
        properties,
    )
    return b"".join((_INT.pack(4 + sum(map(len, parts))), *parts))
