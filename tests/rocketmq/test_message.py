"""One record, written and read, against RocketMQ's layout as it is written out here."""

from __future__ import annotations

import socket
import struct
import zlib

from halfop.rocketmq.batches import half_batch
from halfop.rocketmq.message import Message, Place, blank, body_crc, host_bytes, host_text, message_id, store_ms_of
from halfop.rocketmq.record import MAGIC_V1, MAGIC_V2, chain
from hypothesis import given
from hypothesis import strategies as st

HOSTS = st.sampled_from([("10.0.0.1", 40000), ("::1", 10911), ("2001:db8::ff", 65535)])
INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
SIZED = st.sampled_from([b"", b"TAGS\x01red\x02", b"A\x01b\x02C\x01d\x02"])
HOST_BITS = 0x30


def by_hand(message: Message, place: Place, checked: bool, magic: int) -> bytes:
    """CommitLog.calMsgLength and DefaultAppendMessageCallback.doAppend, field by field."""
    born, store = message.born_host, message.store_host
    sys_flag = message.sys_flag & ~HOST_BITS | (0x10 if len(born) == 20 else 0) | (0x20 if len(store) == 20 else 0)
    properties = message.properties + (bytes(20) if checked else b"")
    content = (
        struct.pack(">II", place.size, magic)
        + struct.pack(">iii", message.body_crc, message.queue_id, message.flag)
        + struct.pack(">qqi", place.queue_offset, place.physical_offset, sys_flag)
        + struct.pack(">q", message.born_ms)
        + born
        + struct.pack(">q", place.store_ms)
        + store
        + struct.pack(">iq", message.reconsume_times, message.prepared_offset)
        + struct.pack(">i", len(message.body))
        + message.body
        + struct.pack(">B" if magic == 0xDAA320A7 else ">H", len(message.topic))
        + message.topic
        + struct.pack(">h", len(properties))
        + properties
    )
    if not checked:
        return content
    digits = f"{zlib.crc32(content[:-20]) & 0x7FFFFFFF:010d}"[::-1]
    return content[:-20] + b"__CRC32#\x01" + digits.encode() + b"\x02"


def by_hand_host(host: tuple[str, int]) -> bytes:
    family = socket.AF_INET6 if ":" in host[0] else socket.AF_INET
    return socket.inet_pton(family, host[0]) + struct.pack(">i", host[1])


MESSAGES = st.builds(
    Message,
    topic=st.sampled_from([b"RMQ_SYS_TRANS_HALF_TOPIC", b"t" * 127]),
    body=st.binary(max_size=40),
    properties=SIZED,
    born_ms=LONGS,
    born_host=HOSTS.map(by_hand_host),
    store_host=HOSTS.map(by_hand_host),
    body_crc=st.integers(0, 2**31 - 1),
    queue_id=INTS,
    flag=INTS,
    sys_flag=st.integers(0, 2**31 - 1),
    reconsume_times=INTS,
    prepared_offset=LONGS,
)


PLACES = st.builds(Place, LONGS, st.integers(0, 2**62), st.just(0), LONGS)


@given(MESSAGES, PLACES, st.booleans(), st.sampled_from([MAGIC_V1, MAGIC_V2]))
def test_a_record_is_laid_out_as_rocketmq_lays_it_out(message: Message, at: Place, checked: bool, magic: int) -> None:
    place = at._replace(size=message.size(checked, magic))
    record = message.packed(place, checked, magic)
    assert record == by_hand(message, place, checked, magic)
    assert len(record) == place.size
    found, there = Message.read(record + b"more", checked)
    assert there == place
    assert found._replace(sys_flag=found.sys_flag & ~HOST_BITS) == message._replace(
        sys_flag=message.sys_flag & ~HOST_BITS
    )
    assert store_ms_of(record) == place.store_ms
    many = chain(record, place.physical_offset).records
    assert (len(many), many.store_ms[0], many.topics()[0].as_py()) == (1, place.store_ms, message.topic)
    assert not many.wrong_property_crc().any()
    if magic == MAGIC_V1:
        assert half_batch(many).to_pylist()[0]["offset_msg_id"] == message_id(message.store_host, place.physical_offset)


@given(HOSTS)
def test_hosts_are_addresses_and_ports(host: tuple[str, int]) -> None:
    assert host_bytes(*host) == by_hand_host(host)
    assert host_text(host_bytes(*host)) == (f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}")


def test_addresses_as_sockets_show_them() -> None:
    assert host_bytes("::ffff:10.0.0.1", 7) == by_hand_host(("10.0.0.1", 7))
    assert host_bytes("fe80::1%eth0", 7) == by_hand_host(("fe80::1", 7))


def test_what_ends_a_file_and_what_covers_a_body() -> None:
    assert blank(4711) == struct.pack(">iI", 4711, 0xCBD43194)
    assert body_crc(b"body") == zlib.crc32(b"body") & 0x7FFFFFFF
