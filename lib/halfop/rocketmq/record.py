"""Commit log records: found one after the other in a buffer, with their fields as arrays, all records at once."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields, replace
from functools import cached_property
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from halfop.rocketmq.buffers import I4, I8, U4, Bytes, Longs, Mask, Readable, as_bytes, cut, dtype_of, gather

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
MIN_SIZE = 91  # IPv4 hosts, nothing in body, topic and properties
MAX_SIZE = 64 << 20  # a broker takes 4 MiB unless it is configured otherwise
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
CRC_MASK = 0x7FFFFFFF


class Head(NamedTuple):
    """The layout of a record's beginning; the born host, the store time and the store host come after it."""

    size: I4
    magic: U4
    body_crc: I4
    queue_id: I4
    flag: I4
    queue_offset: I8
    physical_offset: I8
    sys_flag: I4
    born_ms: I8


class Tail(NamedTuple):
    """The layout of what comes after the store host, up to the body."""

    reconsume_times: I4
    prepared_offset: I8
    body_length: I4


HEAD, TAIL = dtype_of(Head), dtype_of(Tail)
_PROPERTY_CRC = int.from_bytes(b"__CRC32#", "little")
PROPERTY_CRC_TAIL = 20  # the name, \x01, ten digits, \x02


@dataclass(frozen=True)
class Records:
    """Records of a buffer in its order: positions of their parts, and the fields of the fixed part."""

    buffer: Bytes
    positions: Longs
    head: NDArray[Any]
    tail: NDArray[Any]
    store_ms: Longs
    born_host_length: Longs
    store_host_length: Longs
    topic_at: Longs
    topic_length: Longs
    properties_at: Longs
    properties_length: Longs

    def __len__(self) -> int:
        return len(self.positions)

    def select(self, rows: Mask | Longs | slice) -> Records:
        """The records of these rows."""
        return replace(self, **{f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "buffer"})

    def longs(self, name: str) -> Longs:
        """A field of the fixed part, by record."""
        column = self.head if name in Head._fields else self.tail
        return column[name].astype(np.int64)

    @property
    def sizes(self) -> Longs:
        return self.longs("size")

    @property
    def ends(self) -> Longs:
        return self.positions + self.sizes

    @property
    def body_length(self) -> Longs:
        return self.longs("body_length")

    @property
    def body_at(self) -> Longs:
        return self.topic_at - self.topic_width - self.body_length

    @property
    def topic_width(self) -> Longs:
        """Bytes of the topic's length field."""
        return np.where(self.head["magic"] == MAGIC_V2, 2, 1)

    @property
    def store_host_at(self) -> Longs:
        return self.positions + HEAD.itemsize + self.born_host_length + 8

    @cached_property
    def bodies(self) -> pa.BinaryArray:
        """The bodies as stored: compressed if sysFlag says so."""
        return cut(self.buffer, self.body_at, self.body_length)

    def topics(self) -> pa.DictionaryArray:
        """The topics, dictionary encoded: there are few."""
        return cut(self.buffer, self.topic_at, self.topic_length).dictionary_encode()

    def born_hosts(self) -> pa.DictionaryArray:
        """Address and port as stored (8 or 20 bytes), dictionary encoded."""
        return cut(self.buffer, self.positions + HEAD.itemsize, self.born_host_length).dictionary_encode()

    def store_hosts(self) -> pa.DictionaryArray:
        """Address and port of the broker, as `born_hosts` has the client's."""
        return cut(self.buffer, self.store_host_at, self.store_host_length).dictionary_encode()

    def wrong_body_crc(self) -> Mask:
        """Marks records whose body does not match its CRC; an empty body has none."""
        wrong: Mask = (_crc32(self.bodies, self.body_length) != self.longs("body_crc")) & (self.body_length > 0)
        return wrong

    def wrong_property_crc(self) -> Mask:
        """Marks records whose bytes do not match the CRC at their end, if they have one (enabledAppendPropCRC)."""
        wrong = np.zeros(len(self), np.bool_)
        has = np.flatnonzero(self.has_property_crc())
        if len(has):
            lengths = self.sizes[has] - PROPERTY_CRC_TAIL
            covered = cut(self.buffer, self.positions[has], lengths)
            cut_off = self.buffer[self.ends[has] - 1] != 2  # the value's end, which no CRC covers
            wrong[has] = cut_off | (_crc32(covered, lengths) != self._property_crc(has))
        return wrong

    def has_property_crc(self) -> Mask:
        """Marks records whose last property is the CRC of the record."""
        at = self.ends - PROPERTY_CRC_TAIL
        name, mark = gather(self.buffer, at, "<u8"), gather(self.buffer, at + 8, np.uint8)
        has: Mask = (name == _PROPERTY_CRC) & (mark == 1) & (self.properties_length >= PROPERTY_CRC_TAIL)
        return has

    def _property_crc(self, rows: Longs) -> Longs:
        """The CRC, written as ten decimal digits, the lowest first."""
        digits = gather(self.buffer, self.ends[rows] - 11, "V10").view(np.uint8).reshape(-1, 10).astype(np.int64) - 48
        readable = np.all((digits >= 0) & (digits <= 9), axis=1)
        return np.where(readable, digits @ 10 ** np.arange(10), -1)


def _crc32(texts: pa.BinaryArray, lengths: Longs) -> Longs:
    read = BytesIO(texts.buffers()[2] or b"").read
    return np.fromiter(map(zlib.crc32, map(read, lengths.tolist())), np.int64, len(lengths)) & CRC_MASK


@dataclass(frozen=True)
class ChainStop:
    """The place where a chain of records ends, and what stands there instead of another record."""

    position: int
    code: str
    text: str
    size: int = 0


@dataclass(frozen=True)
class Chain:
    """Records back to back from a buffer's beginning; no stop: they fill the buffer."""

    records: Records
    end: int
    stop: ChainStop | None


def chain(buffer: Readable, base: int | None = None) -> Chain:
    """Returns the records from the buffer's beginning on, up to the first thing that is no sound record.

    Sound: magic, size and all inner lengths agree and, if the buffer is the commit log from physical offset `base`
    on, the record's own physical offset too. Without `base` (a pull's answer) physical offsets may be any. CRCs are
    not looked at. A stop is `zeros`, `blank`, `cut` (goes on after the buffer), `magic`, `size`, `offset`, `lengths`.
    """
    content = as_bytes(buffer)
    candidates = _sound(content, *_candidates(content, base))
    records = candidates.select(_reached(candidates.positions, candidates.ends))
    end = int(records.ends[-1]) if len(records) else 0
    return Chain(records, end, _stop(content, end, base))


def sound_anywhere(buffer: Readable, base: int) -> Records:
    """Bytes that look like a sound record of the commit log, anywhere in the buffer and maybe within another record."""
    content = as_bytes(buffer)
    return _sound(content, *_candidates(content, base))


def _candidates(buffer: Bytes, base: int | None) -> tuple[Longs, NDArray[Any]]:
    """Positions where a record may begin, and the heads there."""
    positions = np.flatnonzero(buffer[4 : max(len(buffer) - MIN_SIZE + 5, 4)] == MAGIC_V1 >> 24)
    magic = gather(buffer, positions + 4, ">u4")
    positions = positions[(magic == MAGIC_V1) | (magic == MAGIC_V2)]
    head = gather(buffer, positions, HEAD)
    size = head["size"].astype(np.int64)
    fits = (size >= MIN_SIZE) & (size <= MAX_SIZE) & (positions + size <= len(buffer))
    if base is not None:
        fits &= head["physical_offset"] == positions + base
    return (positions, head) if fits.all() else (positions[fits], head[fits])


def _sound(buffer: Bytes, positions: Longs, head: NDArray[Any]) -> Records:
    """The candidates whose inner lengths add up to their size."""
    end, sys_flag = positions + head["size"], head["sys_flag"].astype(np.int64)
    born_length = np.where(sys_flag & BORN_HOST_V6, 20, 8)
    store_length = np.where(sys_flag & STORE_HOST_V6, 20, 8)
    stored_at = positions + HEAD.itemsize + born_length
    tail_at = stored_at + 8 + store_length
    fits = tail_at + TAIL.itemsize <= end
    store_ms = gather(buffer, np.where(fits, stored_at, 0), ">i8").astype(np.int64)
    tail = gather(buffer, np.where(fits, tail_at, 0), TAIL)
    topic_field = tail_at + TAIL.itemsize + tail["body_length"]
    width = np.where(head["magic"] == MAGIC_V2, 2, 1)
    fits &= (tail["body_length"] >= 0) & (topic_field + width + 2 <= end)
    short = gather(buffer, np.where(fits, topic_field, 0), ">u2").astype(np.int64)
    topic_length = np.where(width == 2, short, short >> 8)
    properties_at = topic_field + width + topic_length + 2
    fits &= properties_at <= end
    properties_length = gather(buffer, np.where(fits, properties_at - 2, 0), ">i2").astype(np.int64)
    fits &= (properties_length >= 0) & (properties_at + properties_length == end)
    everything = Records(
        buffer,
        positions,
        head,
        tail,
        store_ms,
        born_length,
        store_length,
        topic_field + width,
        topic_length,
        properties_at,
        properties_length,
    )
    return everything if fits.all() else everything.select(fits)


def _reached(positions: Longs, ends: Longs) -> Mask | slice:
    """Marks records that are reached from position 0, one after the other. Bodies may hold what looks like records."""
    if not len(positions) or positions[0] != 0:
        return slice(0)
    jumps = np.flatnonzero(ends[:-1] != positions[1:])
    if not len(jumps):
        return slice(None)
    reached = np.zeros(len(positions), np.bool_)
    jumps, at = np.append(jumps, len(positions) - 1), 0
    while at < len(positions):
        last = int(jumps[np.searchsorted(jumps, at)])
        reached[at : last + 1] = True
        at = int(np.searchsorted(positions, ends[last]))
        if at < len(positions) and positions[at] != ends[last]:
            break
    return reached


def _stop(buffer: Bytes, at: int, base: int | None) -> ChainStop | None:
    left = len(buffer) - at
    if not left:
        return None
    if left < 8:
        return ChainStop(at, "cut", f"{left} bytes where a record begins")
    size, magic = (int(v) for v in np.frombuffer(buffer[at : at + 8].tobytes(), ">i4,>u4")[0])
    if magic == MAGIC_BLANK:
        return ChainStop(at, "blank", f"blank of {size} bytes", size)
    if not magic and not size:
        return ChainStop(at, "zeros", "zeros where a record begins")
    return _no_record(buffer, at, base, size, magic)


def _no_record(buffer: Bytes, at: int, base: int | None, size: int, magic: int) -> ChainStop:
    left = len(buffer) - at
    if magic not in (MAGIC_V1, MAGIC_V2):
        return ChainStop(at, "magic", f"magic 0x{magic:08X}, expected 0x{MAGIC_V1:08X} or 0x{MAGIC_V2:08X}")
    if not MIN_SIZE <= size <= MAX_SIZE:
        return ChainStop(at, "size", f"a record of {size} bytes, expected {MIN_SIZE} to {MAX_SIZE}")
    if left >= HEAD.itemsize and base is not None:
        offset = int(gather(buffer, np.array([at]), HEAD)["physical_offset"][0])
        if offset != base + at:
            return ChainStop(at, "offset", f"the record says physical offset {offset}, expected {base + at}")
    if size > left:
        return ChainStop(at, "cut", f"a record of {size} bytes, but only {left} are left", size)
    return ChainStop(at, "lengths", f"inner lengths do not add up to the record's {size} bytes", size)
