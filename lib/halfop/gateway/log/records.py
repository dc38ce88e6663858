"""Messages of the gateway's log: half messages, op messages and final messages, as a broker's bridge makes them.

Each record has RocketMQ's CRC of all its bytes as its last property, so that recovery sees any damage.
"""

from __future__ import annotations

from functools import lru_cache

from halfop.gateway.log.messages import End, Half, HalfMessage
from halfop.rocketmq import names
from halfop.rocketmq.message import LONGEST_PROPERTIES, Message, body_crc
from halfop.rocketmq.properties import packed

HALF_TOPIC, OP_TOPIC = names.HALF_TOPIC.encode(), names.OP_TOPIC.encode()
_ENDS_VALUE = b"\x02"
_LEFT_OUT = tuple(name.encode() + b"\x01" for name in names.NOT_DELIVERED)


def half_message(given: HalfMessage, store_host: bytes) -> Message:
    """Returns the message of the half topic."""
    properties = given.properties
    if properties and not properties.endswith(_ENDS_VALUE):
        properties += _ENDS_VALUE
    return Message(
        *(HALF_TOPIC, given.body, properties, given.born_ms, given.born_host, store_host, body_crc(given.body)),
        flag=given.flag,
        sys_flag=given.sys_flag & ~names.TRANSACTION_TYPE_MASK,
        reconsume_times=given.reconsume_times,
    )


def op_message(half: Half, end: End, now_ms: int, store_host: bytes) -> Message:
    """Returns the message of the op topic that ends the half message, with what END_TRANSACTION said.

    Raises ValueError if that is too long for a record.
    """
    said: dict[str, object] = {
        names.TAGS: names.END_TAG,
        names.END_OUTCOME: end.outcome,
        names.END_GROUP: end.group,
        names.END_STATE_TABLE_OFFSET: half.queue_offset,
        names.END_COMMIT_LOG_OFFSET: half.physical_offset,
    }
    if end.from_check is not None:
        said[names.END_FROM_CHECK] = "true" if end.from_check else "false"
    if end.transaction_id is not None:
        said[names.END_TRANSACTION_ID] = end.transaction_id
    properties = packed(said).encode()
    if len(properties) > LONGEST_PROPERTIES:
        raise ValueError(f"an op message's properties have {len(properties)} bytes, {LONGEST_PROPERTIES} fit")
    body, born_ms = b"%d" % half.queue_offset, now_ms if end.at_ms is None else end.at_ms
    return Message(OP_TOPIC, body, properties, born_ms, store_host, store_host, body_crc(body))


def final_message(half: Half, record: bytes, store_host: bytes) -> Message:
    """Returns the committed message in its real topic, made of the half message's record."""
    prepared, _ = Message.read(record)
    kept = [each for each in prepared.properties.split(_ENDS_VALUE) if not each.startswith(_LEFT_OUT)]
    return prepared._replace(
        topic=half.topic.encode(),
        store_host=store_host,
        queue_id=half.queue,
        properties=_ENDS_VALUE.join(kept),
        sys_flag=prepared.sys_flag & ~names.TRANSACTION_TYPE_MASK | names.TRANSACTION_COMMIT,
        prepared_offset=half.physical_offset,
    )


def tags_code_of(message: Message) -> int:
    """Returns the hash that a consume queue has of a message's tags."""
    properties = message.properties
    if properties.startswith(b"TAGS\x01"):
        at = 5
    elif (found := properties.find(b"\x02TAGS\x01")) >= 0:
        at = found + 6
    else:
        return tags_code(b"")
    return tags_code(properties[at : properties.find(_ENDS_VALUE, at)])


@lru_cache(4096)
def tags_code(tags: bytes) -> int:
    """Returns the hash of tags: Java's String.hashCode."""
    code = 0
    units = memoryview(tags.decode(errors="replace").encode("utf-16-le")).cast("H")
    for unit in units:
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code
