"""Commit log records as bytes: half messages, op messages, final messages, and the blank that ends a file.

Each record carries RocketMQ's CRC of the whole record as its last property, so that recovery sees any damage.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from halfop.gateway.log.messages import End, Half, HalfMessage
from halfop.rocketmq import names
from halfop.rocketmq.record import (
    BORN_HOST_V6,
    CRC_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    PROPERTY_CRC_TAIL,
    STORE_HOST_V6,
)

_V4, _V6 = 8, 20
# size, magic, body CRC, queue, flag, queue offset, physical offset, sysFlag, born time
HEAD = Struct(">iIiiiqqiq")
# and born host, store time, store host, reconsume times, prepared offset, length of the body
_FIXED = {(born, store): Struct(f">iIiiiqqiq{born}sq{store}siqi") for born in (_V4, _V6) for store in (_V4, _V6)}
_LONG, _SHORT, _BLANK = Struct(">q"), Struct(">h"), Struct(">iI")
_LENGTHS_AND_CRC = 1 + _SHORT.size + PROPERTY_CRC_TAIL
BLANK_SIZE = _BLANK.size
LONGEST_PROPERTIES = 2**15 - 1 - PROPERTY_CRC_TAIL

HALF_TOPIC, OP_TOPIC = names.HALF_TOPIC.encode(), names.OP_TOPIC.encode()
_ENDS_VALUE = b"\x02"
_LEFT_OUT = tuple(name.encode() + b"\x01" for name in names.NOT_DELIVERED)


class Message(NamedTuple):
    """A message as a record holds it; `properties` are empty or end with their last value's mark."""

    topic: bytes
    queue: int
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    body_crc: int
    properties: bytes
    tags_code: int


class Place(NamedTuple):
    """Where a record stands: its offset in its queue and in the log, and its size; and its store time."""

    queue_offset: int
    physical_offset: int
    size: int
    store_ms: int


def size_of(message: Message, store_host: bytes) -> int:
    """The number of bytes of the message's record."""
    fixed = _FIXED[len(message.born_host), len(store_host)].size
    return fixed + len(message.body) + len(message.topic) + len(message.properties) + _LENGTHS_AND_CRC


def encoded(message: Message, place: Place, store_host: bytes) -> bytes:
    """The message's record at that place."""
    topic, queue, flag, sys_flag, born_ms, born_host, reconsumed, prepared, body, body_crc, properties, _ = message
    offset, at, size, store_ms = place
    fixed = _FIXED[len(born_host), len(store_host)].pack(
        *(size, MAGIC_V1, body_crc, queue, flag, offset, at, sys_flag, born_ms),
        *(born_host, store_ms, store_host, reconsumed, prepared, len(body)),
    )
    lengths = _SHORT.pack(len(properties) + PROPERTY_CRC_TAIL)
    whole = b"".join((fixed, body, len(topic).to_bytes(1, "big"), topic, lengths, properties))
    return whole + b"__CRC32#\x01%b\x02" % (b"%010d" % (crc32(whole) & CRC_MASK))[::-1]


def blank(size: int) -> bytes:
    """The head of the blank that fills a file's last bytes."""
    return _BLANK.pack(size, MAGIC_BLANK)


def store_ms_of(record: bytes) -> int:
    """The store time of a record, of which the first hundred bytes are enough."""
    at = HEAD.size + (_V6 if HEAD.unpack_from(record)[7] & BORN_HOST_V6 else _V4)
    return int(_LONG.unpack_from(record, at)[0])


def half_message(given: HalfMessage, store_host: bytes) -> Message:
    """The message of the half topic."""
    sys_flag = _with_hosts(given.sys_flag & ~names.TRANSACTION_TYPE_MASK, given.born_host, store_host)
    properties = given.properties
    if properties and not properties.endswith(_ENDS_VALUE):
        properties += _ENDS_VALUE
    return Message(
        HALF_TOPIC,
        0,
        given.flag,
        sys_flag,
        given.born_ms,
        given.born_host,
        given.reconsume_times,
        0,
        given.body,
        crc32(given.body) & CRC_MASK,
        properties,
        tags_code(_tags(properties)),
    )


def op_message(half: Half, end: End, now_ms: int, store_host: bytes) -> Message:
    """The message of the op topic that ends the half message, with what END_TRANSACTION said.

    Raises ValueError if that is too long for a record.
    """
    body = b"%d" % half.queue_offset
    properties = (
        f"TAGS\x01{names.END_TAG}\x02{names.END_OUTCOME}\x01{end.outcome}\x02{names.END_GROUP}\x01{end.group}\x02"
        f"{names.END_STATE_TABLE_OFFSET}\x01{half.queue_offset}\x02"
        f"{names.END_COMMIT_LOG_OFFSET}\x01{half.physical_offset}\x02"
    )
    if end.from_check is not None:
        properties += f"{names.END_FROM_CHECK}\x01{'true' if end.from_check else 'false'}\x02"
    if end.transaction_id is not None:
        properties += f"{names.END_TRANSACTION_ID}\x01{end.transaction_id}\x02"
    packed = properties.encode()
    if len(packed) > LONGEST_PROPERTIES:
        raise ValueError(f"an op message's properties have {len(packed)} bytes, {LONGEST_PROPERTIES} fit")
    return Message(
        OP_TOPIC,
        0,
        0,
        _with_hosts(0, store_host, store_host),
        now_ms if end.at_ms is None else end.at_ms,
        store_host,
        0,
        0,
        body,
        crc32(body) & CRC_MASK,
        packed,
        _OP_TAGS_CODE,
    )


def final_message(half: Half, record: bytes) -> Message:
    """The committed message in its real topic, made of the half message's record."""
    sys_flag = HEAD.unpack_from(record)[7]
    fixed = _FIXED[_V6 if sys_flag & BORN_HOST_V6 else _V4, _V6 if sys_flag & STORE_HOST_V6 else _V4]
    _, _, body_crc, _, flag, *_, born_ms, born_host, _, _, reconsumed, _, length = fixed.unpack_from(record)
    body_at = fixed.size
    topic_at = body_at + length + 1
    properties = record[topic_at + record[topic_at - 1] + _SHORT.size : -PROPERTY_CRC_TAIL]
    kept = [entry for entry in properties.split(_ENDS_VALUE) if not entry.startswith(_LEFT_OUT)]
    return Message(
        half.topic.encode(),
        half.queue,
        flag,
        sys_flag & ~names.TRANSACTION_TYPE_MASK | names.TRANSACTION_COMMIT,
        born_ms,
        born_host,
        reconsumed,
        half.physical_offset,
        record[body_at : body_at + length],
        body_crc,
        _ENDS_VALUE.join(kept),
        tags_code(_tags(properties)),
    )


def _with_hosts(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    kept = sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    return kept | (BORN_HOST_V6 if len(born_host) == _V6 else 0) | (STORE_HOST_V6 if len(store_host) == _V6 else 0)


def _tags(properties: bytes) -> bytes:
    """The value of TAGS; empty if there is none."""
    if properties.startswith(b"TAGS\x01"):
        at = 5
    elif (found := properties.find(b"\x02TAGS\x01")) >= 0:
        at = found + 6
    else:
        return b""
    return properties[at : properties.find(_ENDS_VALUE, at)]


@lru_cache(4096)
def tags_code(tags: bytes) -> int:
    """The hash that a consume queue has of a message's tags: Java's String.hashCode."""
    code = 0
    units = memoryview(tags.decode(errors="replace").encode("utf-16-le")).cast("H")
    for unit in units:
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


_OP_TAGS_CODE = tags_code(names.END_TAG.encode())
