"""One message and its record: written, read, and moved to another topic. `record` reads many at once.

    head      size, magic, CRC of the body, queue, flag, both offsets, sysFlag, born time
              born host, store time, store host: a host is an address of 4 or 16 bytes (sysFlag says which) and a port
    tail      how often it was consumed again, offset of the half message, length of the body
              body; topic and properties, each after its length

A checked record has RocketMQ's CRC of all its bytes as its last property.
"""

from __future__ import annotations

import ipaddress
import zlib
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

import pyarrow as pa

from halfop.rocketmq.buffers import codes, struct_of
from halfop.rocketmq.record import (
    BORN_HOST_V6,
    CRC_MASK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTY_CRC_TAIL,
    STORE_HOST_V6,
    Head,
    Tail,
)

LONGEST_PROPERTIES = 2**15 - 1 - PROPERTY_CRC_TAIL
_V6 = BORN_HOST_V6 | STORE_HOST_V6
_HEAD, _TAIL = ("".join(codes(layout).values()) for layout in (Head, Tail))
# what is before the body, by the bits of sysFlag; and these by the lengths of both hosts
_FIXED = {
    born | store: Struct(f">{_HEAD}{20 if born else 8}sq{20 if store else 8}s{_TAIL}")
    for born in (0, BORN_HOST_V6)
    for store in (0, STORE_HOST_V6)
}
_HOSTS = {(8, 8): 0, (20, 8): BORN_HOST_V6, (8, 20): STORE_HOST_V6, (20, 20): _V6}
FIXED = max(each.size for each in _FIXED.values())
_SYS_FLAG, _SHORT = struct_of(Head, "sys_flag"), Struct(">h")
_WIDTH = {MAGIC_V1: 1, MAGIC_V2: 2}  # of the topic's length
_BLANK = struct_of(Head, "size", "magic")
BLANK_SIZE = _BLANK.size


class Place(NamedTuple):
    """Where a record stands: its offset in its queue and in the log, and its size; and its store time."""

    queue_offset: int
    physical_offset: int
    size: int
    store_ms: int


class Message(NamedTuple):
    """A message as its record has it. `properties` are empty or end with their last value's mark."""

    topic: bytes
    body: bytes
    properties: bytes
    born_ms: int
    born_host: bytes
    store_host: bytes
    body_crc: int
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0

    def size(self, checked: bool = True, magic: int = MAGIC_V1) -> int:
        """Returns the number of bytes of its record."""
        fixed = _FIXED[_HOSTS[len(self.born_host), len(self.store_host)]].size
        texts = len(self.body) + _WIDTH[magic] + len(self.topic) + _SHORT.size + len(self.properties)
        return fixed + texts + (PROPERTY_CRC_TAIL if checked else 0)

    def packed(self, place: Place, checked: bool = True, magic: int = MAGIC_V1) -> bytes:
        """Returns its record at a place of that size."""
        topic, body, properties, born_ms, born_host, store_host, body_crc, queue_id, flag, sys_flag, *rest = self
        offset, at, size, store_ms = place
        hosts = _HOSTS[len(born_host), len(store_host)]
        fixed = _FIXED[hosts].pack(
            *(size, magic, body_crc, queue_id, flag, offset, at, sys_flag & ~_V6 | hosts, born_ms, born_host, store_ms),
            *(store_host, *rest, len(body)),
        )
        length = len(properties) + (PROPERTY_CRC_TAIL if checked else 0)
        topic_length = len(topic).to_bytes(_WIDTH[magic], "big")
        whole = b"".join((fixed, body, topic_length, topic, _SHORT.pack(length), properties))
        return whole + crc_property(whole) if checked else whole

    @classmethod
    def read(cls, record: bytes, checked: bool = True) -> tuple[Message, Place]:
        """Returns the message of a sound record, and its place; a checked one's properties come without the CRC."""
        fixed = _fixed(record)
        size, magic, body_crc, queue_id, flag, offset, at, sys_flag, born_ms, *more = fixed.unpack_from(record)
        born_host, store_ms, store_host, reconsumed, prepared, length = more
        body_end = fixed.size + length
        topic_at = body_end + _WIDTH[magic]
        topic_end = topic_at + int.from_bytes(record[body_end:topic_at], "big")
        properties = record[topic_end + _SHORT.size : size - (PROPERTY_CRC_TAIL if checked else 0)]
        message = cls(
            *(record[topic_at:topic_end], record[fixed.size : body_end], properties, born_ms, born_host, store_host),
            *(body_crc, queue_id, flag, sys_flag, reconsumed, prepared),
        )
        return message, Place(offset, at, size, store_ms)


def store_ms_of(record: bytes) -> int:
    """Returns the store time of a record, of which the first FIXED bytes are enough."""
    return int(_fixed(record).unpack_from(record)[10])


def body_crc(body: bytes) -> int:
    """Returns the CRC that a record has of its body."""
    return zlib.crc32(body) & CRC_MASK


def crc_property(covered: bytes) -> bytes:
    """Returns the property that holds the CRC of a record's bytes before it."""
    return b"__CRC32#\x01%b\x02" % (b"%010d" % (zlib.crc32(covered) & CRC_MASK))[::-1]


def blank(size: int) -> bytes:
    """Returns the head of the blank that fills a file's last bytes."""
    return _BLANK.pack(size, MAGIC_BLANK)


def _fixed(record: bytes) -> Struct:
    (sys_flag,) = _SYS_FLAG.unpack_from(record)
    return _FIXED[sys_flag & _V6]


# ---- hosts and ids ----


def host_bytes(address: str, port: int) -> bytes:
    """Returns an address and a port as records have them; IPv4 in IPv6 becomes IPv4."""
    plain = address.removeprefix("::ffff:").partition("%")[0]
    return ipaddress.ip_address(plain).packed + port.to_bytes(4, "big", signed=True)


@lru_cache(4096)
def host_text(host: bytes) -> str:
    """Returns `ip:port`, the IPv6 address in brackets."""
    address, port = ipaddress.ip_address(host[:-4]), int.from_bytes(host[-4:], "big", signed=True)
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


def message_id(store_host: bytes, physical_offset: int) -> str:
    """Returns the id that a broker gives a message: its address, and the place of the record."""
    return f"{store_host.hex().upper()}{physical_offset:016X}"


# ---- compressed bodies ----

COMPRESSED, _TYPE_MASK = 0x1, 0x700
FLAGS = COMPRESSED | _TYPE_MASK
_LZ4, _ZSTD = 0x100, 0x200
# A few compressed bytes can stand for any number; a broker takes 4 MiB as they come.
_MOST_BYTES = 128 << 20
_AT_ONCE = 1 << 20  # PyArrow takes the memory of all that it is asked for


def decompressed(body: bytes, sys_flag: int) -> bytes | None:
    """A compressed body as the producer gave it; None if it does not match its flag or is too large."""
    try:
        content = _UNDO.get(sys_flag & _TYPE_MASK, _inflated)(body)
    except (zlib.error, pa.ArrowException, OSError, EOFError):
        return None
    return None if len(content) > _MOST_BYTES else content


def _inflated(body: bytes) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(body, _MOST_BYTES + 1)
    if not stream.eof and len(content) <= _MOST_BYTES:
        raise EOFError
    return content


def _by(codec: str) -> Callable[[bytes], bytes]:
    def undo(body: bytes) -> bytes:
        parts = list[bytes]()
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            while sum(map(len, parts)) <= _MOST_BYTES and (part := stream.read(_AT_ONCE)):
                parts.append(part)
        return b"".join(parts)

    return undo


_UNDO = {_LZ4: _by("lz4"), _ZSTD: _by("zstd")}
