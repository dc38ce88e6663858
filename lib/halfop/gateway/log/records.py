"""Messages as records of the log: made as a broker's bridge makes them, and read back by place, queue and time.

Each record has RocketMQ's CRC of all its bytes as its last property, so that recovery sees any damage.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from itertools import starmap

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from halfop.gateway.core.messages import OUTCOMES, End, Half, HalfMessage, PulledRecords, QueueOffsets
from halfop.gateway.log.files import LogFiles
from halfop.gateway.log.queues import Queues
from halfop.rocketmq import names
from halfop.rocketmq.buffers import Longs
from halfop.rocketmq.message import FIXED, LONGEST_PROPERTIES, Message, body_crc, store_ms_of
from halfop.rocketmq.properties import Properties, decoded, packed
from halfop.rocketmq.record import MAX_SIZE, MIN_SIZE, Records, chain
from halfop.rocketmq.store.consumequeue import Unit

Codes = NDArray[np.uint8]
_DIGITS = r"\A[0-9]{1,18}\z"

_HALF, _OP = names.HALF_TOPIC.encode(), names.OP_TOPIC.encode()
_ENDS_VALUE = b"\x02"
_LEFT_OUT = tuple(name.encode() + b"\x01" for name in names.NOT_DELIVERED)


# ---- made ----


def half_message(given: HalfMessage, store_host: bytes) -> Message:
    """Returns the message of the half topic."""
    properties = given.properties
    if properties and not properties.endswith(_ENDS_VALUE):
        properties += _ENDS_VALUE
    return Message(
        *(_HALF, given.body, properties, given.born_ms, given.born_host, store_host, body_crc(given.body)),
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
    return Message(_OP, body, properties, born_ms, store_host, store_host, body_crc(body))


def final_message(half: Half, record: bytes, store_host: bytes) -> Message:
    """Returns the committed message in its real topic, made of the half message's record."""
    (_, body, properties, born_ms, born_host, _, crc, _, flag, sys_flag, reconsumed, _), _ = Message.read(record)
    kept = [each for each in properties.split(_ENDS_VALUE) if not each.startswith(_LEFT_OUT)]
    return Message(
        *(half.topic.encode(), body, _ENDS_VALUE.join(kept), born_ms, born_host, store_host, crc, half.queue, flag),
        sys_flag & ~names.TRANSACTION_TYPE_MASK | names.TRANSACTION_COMMIT,
        reconsumed,
        half.physical_offset,
    )


def is_sound(record: bytes, half: Half) -> bool:
    """Returns whether what was read is the half message's record as it was written, by its CRCs."""
    read = chain(record, half.physical_offset).records
    return len(read) == 1 and not (read.wrong_body_crc() | read.wrong_property_crc() | ~read.has_property_crc()).any()


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


# ---- read back, all at once ----


def halves_of(records: Records) -> list[Half]:
    """Half messages as records of the half topic have them."""
    properties = Properties(records)
    place = [records.longs(name) for name in ("queue_offset", "physical_offset", "size")]
    columns = [each.tolist() for each in (*place, records.store_ms, records.longs("born_ms"))]
    columns += [
        _shared(properties.strings(names.REAL_TOPIC)),
        properties.ints(names.REAL_QUEUE_ID).fill_null(0).to_pylist(),
        _shared(properties.strings(names.PRODUCER_GROUP)),
        properties.strings(names.UNIQ_KEY).to_pylist(),
        _shared(properties.strings(names.CHECK_IMMUNITY), None),
    ]
    return list(starmap(Half, zip(*columns, strict=True)))


def _shared(texts: pa.StringArray, missing: str | None = "") -> list[str | None]:
    """The texts as Python's, one object for all that are equal: there are few, and many messages stay open."""
    encoded = texts.dictionary_encode()
    known = [*encoded.dictionary.to_pylist(), missing]
    return [known[at] for at in encoded.indices.fill_null(len(known) - 1).to_pylist()]


def ends_of(records: Records) -> tuple[Longs, Codes]:
    """The half queue offsets that op records name, and how each ended: the place in OUTCOMES, plus one."""
    outcomes = pc.index_in(Properties(records).strings(names.END_OUTCOME), pa.array(OUTCOMES))
    bodies = records.bodies.cast(pa.string())
    known = pc.and_(pc.is_valid(outcomes), pc.match_substring_regex(bodies, _DIGITS))
    offsets = bodies.filter(known).cast(pa.int64()).to_numpy()
    return offsets, (outcomes.filter(known).to_numpy() + 1).astype(np.uint8)


# ---- read by place, queue and time ----


class Readable:
    """A log that is read up to where it is flushed, by any thread."""

    _files: LogFiles
    _queues: Queues
    flushed_to: int

    def offsets(self, topic: str, queue: int) -> QueueOffsets:
        """A queue's first offset and its next one; zeros if it has had no message."""
        known = self._queues.known(topic, queue)
        return known.offsets if known else QueueOffsets(0, 0)

    def units(self, topic: str, queue: int, offset: int, count: int) -> list[Unit]:
        """Units of a queue from an offset on; none if the queue does not have it."""
        known = self._queues.known(topic, queue)
        return known.units(offset, count) if known else []

    def record(self, physical_offset: int) -> bytes | None:
        """The record that begins there; None if none does."""
        head = self._files.read(physical_offset, MIN_SIZE) if physical_offset < self.flushed_to else b""
        size = int.from_bytes(head[:4], "big")
        content = self._files.read(physical_offset, size) if MIN_SIZE <= size <= MAX_SIZE else b""
        records = chain(content, physical_offset).records
        if len(records) != 1:
            return None
        topic, queue = decoded(records.topics()[0].as_py()), int(records.head["queue_id"][0])
        # a body can hold what looks like a record
        units = self.units(topic, queue, int(records.head["queue_offset"][0]), 1)
        return content if units and units[0].physical == physical_offset else None

    def half_read(self, physical_offset: int) -> Half | None:
        """The half message that begins there, open or ended; None if none does."""
        content = self.record(physical_offset)
        records = chain(content or b"", physical_offset).records
        if not len(records) or records.topics()[0].as_py() != _HALF:
            return None
        return halves_of(records)[0]

    def pull(self, topic: str, queue: int, offset: int, count: int, most_bytes: int = 256 << 10) -> PulledRecords:
        """Records of a queue from an offset on: at most `count`, and no more bytes unless the first one has more.

        There are none if the queue does not have the offset.
        """
        found: list[bytes] = []
        left = most_bytes
        for unit in self.units(topic, queue, offset, count):
            left -= unit.size
            if found and left < 0:
                break
            record = self._files.read(unit.physical, unit.size)
            if len(record) < unit.size:  # removed meanwhile
                break
            found.append(record)
        return PulledRecords(found, offset + len(found))

    def offset_at(self, topic: str, queue: int, millis: int) -> int:
        """The first offset whose message was stored at that instant or later; the next one if none was."""
        low, high = self.offsets(topic, queue)
        while low < high:
            middle = (low + high) // 2
            units = self.units(topic, queue, middle, 1)
            stored = store_ms_at(self._files, units[0].physical) if units else None
            if stored is not None and stored >= millis:
                high = middle
            else:
                low = middle + 1
        return low


def store_ms_at(files: LogFiles, physical_offset: int) -> int | None:
    """The store time of the record that begins there; None if the log has nothing there."""
    head = files.read(physical_offset, FIXED)
    return store_ms_of(head) if len(head) == FIXED and any(head) else None


class Recent:
    """The newest records by physical offset, at most `most_bytes` of them. For one thread at a time."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self._bytes = most_bytes, 0
        self._records: OrderedDict[int, bytes] = OrderedDict()

    def add(self, physical_offset: int, record: bytes) -> None:
        """Keeps a record, and drops the oldest ones if there are too many bytes."""
        self._records[physical_offset] = record
        self._bytes += len(record)
        while self._bytes > self._most:
            self._bytes -= len(self._records.popitem(last=False)[1])

    def take(self, physical_offset: int) -> bytes | None:
        """The record, which is dropped; None if it is not kept any more."""
        record = self._records.pop(physical_offset, None)
        if record is not None:
            self._bytes -= len(record)
        return record
