"""Records' bytes to columns: every field, every property, and where a chain of records ends."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from halfop.rocketmq.batches import END_TRANSACTION, discard_batch, final_batch, half_batch, kinds_of, op_batch
from halfop.rocketmq.message import host_bytes
from halfop.rocketmq.properties import Properties, decoded
from halfop.rocketmq.record import MAX_SIZE, Chain, chain, sound_anywhere
from hypothesis import given
from hypothesis import strategies as st
from support.brokers.store_writer import DISCARD, HALF, OP, Record, discard, final, gateway_op, half, op, property_bytes

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
HOSTS = st.tuples(st.sampled_from(["10.0.0.1", "255.1.2.3", "::1", "fe80::1:2", "2001:db8::ff"]), st.integers(0, 65535))
MILLIS = st.integers(-62_135_596_800_000, 253_402_300_799_999)
BITS = sum(1 << n for n in range(31) if n not in (4, 5))  # the hosts' own bits come from the hosts


def laid(records: Sequence[Record], base: int = 0) -> bytes:
    """The records as they stand in a log that begins at `base`."""
    content = b""
    for record in records:
        content += record.at(base + len(content))
    return content


def chained(content: bytes, base: int | None = 0) -> Chain:
    return chain(content, base)


def millis(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def host(each: tuple[str, int]) -> str:
    return f"[{each[0]}]:{each[1]}" if ":" in each[0] else f"{each[0]}:{each[1]}"


def as_java(text: bytes) -> dict[str, str]:
    """MessageDecoder.string2messageProperties, step by step."""
    found, whole, index = {}, text.decode(errors="replace"), 0
    while index < len(whole):
        end = whole.find("\x02", index)
        end = len(whole) if end < 0 else end
        middle = whole.find("\x01", index)
        if end - index >= 3 and index < middle < end - 1:
            found[whole[index:middle]] = whole[middle + 1 : end]
        index = end + 1
    return found


def half_row(record: Record, physical: int) -> dict[str, Any]:
    properties = as_java(property_bytes(record.properties))
    number = properties.get("REAL_QID", "")
    sys_flag = (
        record.sys_flag | (0x10 if ":" in record.born_host[0] else 0) | (0x20 if ":" in record.store_host[0] else 0)
    )
    return {
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "commit_log_offset": physical,
        "offset_msg_id": (host_bytes(*record.store_host) + struct.pack(">q", physical)).hex().upper(),
        "uniq_key": properties.get("UNIQ_KEY"),
        "producer_group": properties.get("PGROUP"),
        "real_topic": properties.get("REAL_TOPIC"),
        "real_queue_id": int(number) if number.isdecimal() else None,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "flag": record.flag,
        "sys_flag": sys_flag,
        "born_timestamp": millis(record.born_ms),
        "born_host": host(record.born_host),
        "store_timestamp": millis(record.store_ms),
        "store_host": host(record.store_host),
        "reconsume_times": record.reconsume_times,
        "body": record.body,
        "properties": properties,
        "record_size": len(record.at(0)),
    }


def half_rows(found: Chain) -> list[dict[str, Any]]:
    return [row | {"properties": dict(row["properties"])} for row in half_batch(found.records).to_pylist()]


WORDS = st.sampled_from(["UNIQ_KEY", "PGROUP", "REAL_TOPIC", "TAGS", "KEYS", "WAIT", "ключ", "a", ""])
VALUES = st.one_of(st.text("ab=\x01 é漢😀", max_size=12), st.sampled_from(["", "x\x01y", "7", "\x01"])).map(
    lambda v: v.replace("\x02", "")
)
RAW = st.lists(st.sampled_from([b"\x01", b"\x02", b"A", b"KEYS", b"\xff", "é".encode(), b"\xe4\xb8"]), max_size=12)
PROPERTIES = st.one_of(st.dictionaries(WORDS, VALUES, max_size=8), RAW.map(b"".join))
RECORDS = st.builds(
    Record,
    topic=st.sampled_from([HALF, "orders", "t" * 127]),
    body=st.binary(max_size=40),
    properties=PROPERTIES,
    queue_id=INTS,
    flag=INTS,
    queue_offset=LONGS,
    sys_flag=st.integers(0, 2**31 - 1).map(lambda bits: bits & BITS),
    born_ms=MILLIS,
    born_host=HOSTS,
    store_ms=MILLIS,
    store_host=HOSTS,
    reconsume_times=INTS,
    prepared_offset=LONGS,
    version=st.sampled_from([1, 2]),
)


@given(st.lists(RECORDS, min_size=1, max_size=6), st.sampled_from([0, 1 << 30, (1 << 40) + 7]))
def test_every_field_comes_back(records: list[Record], base: int) -> None:
    content = laid(records, base)
    found = chained(content, base)
    assert found.stop is None
    assert found.end == len(content)
    assert half_rows(found) == [
        half_row(record, int(physical))
        for record, physical in zip(records, found.records.positions + base, strict=True)
    ]


@given(PROPERTIES)
def test_properties_are_what_the_broker_reads(properties: dict[str, str] | bytes) -> None:
    records = [half(0), half(1, properties=properties), half(2)]
    rows = Properties(chained(laid(records)).records).map().to_pylist()
    assert [dict(row) for row in rows] == [as_java(property_bytes(record.properties)) for record in records]
    assert all(len(dict(row)) == len(row) for row in rows)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", {}),
        (b"A\x011\x02", {"A": "1"}),
        (b"A\x011\x02B\x012", {"A": "1", "B": "2"}),
        (b"A\x011\x02A\x012\x02", {"A": "2"}),
        (b"B\x010\x02A\x011\x02C\x013\x02A\x012\x02", {"B": "0", "A": "2", "C": "3"}),
        (b"A\x011\x01x\x02", {"A": "1\x01x"}),
        (b"lonely\x02A\x011\x02", {"A": "1"}),
        (b"A\x01\x02B\x012\x02", {"B": "2"}),
        (b"\x01a\x02B\x012\x02", {"B": "2"}),
        (b"\x02\x02\x02B\x012\x02\x02", {"B": "2"}),
        (b"A\x01\xff\xfe\x02", {"A": "\ufffd\ufffd"}),
        (b"A\x01\xed\xa0\x80\x02", {"A": "\ufffd"}),
        (b"A\x01\xe4\xb8\x02B\x01\xc3\xa9\x02", {"A": "\ufffd", "B": "é"}),
    ],
)
def test_properties(text: bytes, expected: dict[str, str]) -> None:
    records = [half(0), replace(half(1), properties=text)]
    properties = Properties(chained(laid(records)).records)
    assert dict(properties.map().to_pylist()[1]) == expected
    for name in "ABC":
        assert properties.strings(name).to_pylist() == [None, expected.get(name)]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("007", 7),
        ("00000000000000000007", 7),
        ("2147483647", 2**31 - 1),
        ("2147483648", None),
        ("99999999999", None),
    ]
    + [(text, None) for text in ("", "x", "7 ", "1.0", "٣", "1_0", "-", "0x1")],
)
def test_integers(text: str, number: int | None) -> None:
    records = [half(0, properties={"REAL_QID": text, "A": "b"}), half(1)]
    assert half_batch(chained(laid(records)).records)["real_queue_id"].to_pylist() == [number, 1]


def test_of_invalid_utf8_java_makes_one_character_a_surrogate() -> None:
    assert decoded(b"a\xed\xa0\x80\xed\xb0\x80b\x80") == "a\ufffd\ufffdb\ufffd"


def test_kinds() -> None:
    records = [half(0), op("1,2,"), final(0, 0), discard(0), Record("orders"), Record("orders", sys_flag=0xC)]
    records += [Record("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"), Record("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")]
    records += [Record(HALF, sys_flag=8), Record(OP), Record(DISCARD), Record(b"\xff", sys_flag=0x9)]
    found = chained(laid(records)).records
    masks = kinds_of(found, found.topics())
    rows = {kind: mask.nonzero()[0].tolist() for kind, mask in masks.items()}
    assert rows == {"half": [0, 6, 8], "op": [1, 7, 9], "final": [2, 11], "discard": [3, 10]}


def test_op_final_and_discard_rows() -> None:
    one, two = replace(op("12,15,"), queue_offset=5), final(3, 77, queue_offset=6, version=2)
    three = discard(4, queue_offset=7, properties={"UNIQ_KEY": "u", "PGROUP": "pg", "TRANSACTION_CHECK_TIMES": "many"})
    content = laid([one, two, three], 1000)
    places = [int(p) + 1000 for p in chained(content, 1000).records.positions]
    found = chained(content, 1000).records
    key: dict[str, Any]
    times: dict[str, Any] = {"born_timestamp": millis(one.born_ms), "store_timestamp": millis(one.store_ms)}
    key = {"queue_id": 0, "queue_offset": 5, "physical_offset": places[0]}
    said = {"tag": "d", "body": "12,15,"} | dict.fromkeys(END_TRANSACTION)
    assert op_batch(found.select(slice(0, 1))).to_pylist() == [key | times | said]
    assert final_batch(found.select(slice(1, 2))).to_pylist() == [
        {
            "physical_offset": places[1],
            "prepared_transaction_offset": 77,
            "topic": "orders",
            "queue_id": 3,
            "queue_offset": 6,
            "uniq_key": f"{3:032X}",
            "store_timestamp": millis(two.store_ms),
        }
    ]
    key = {"physical_offset": places[2], "queue_id": 0, "queue_offset": 7, "uniq_key": "u", "producer_group": "pg"}
    assert discard_batch(found.select(slice(2, 3))).to_pylist() == [key | {"check_times": None} | times]


def test_a_gateways_op_shows_what_end_transaction_said() -> None:
    records = [gateway_op(12, "COMMIT"), gateway_op(7, "ROLLBACK", END_FROM_CHECK=None), op("3")]
    rows = op_batch(chained(laid([*records, gateway_op(2, "MAYBE")])).records).to_pylist()
    assert [tuple(row[name] for name in ("body", *END_TRANSACTION)) for row in rows] == [
        ("12", "COMMIT", True, "pg", 12, 1200, f"{12:032X}"),
        ("7", "ROLLBACK", None, "pg", 7, 700, f"{7:032X}"),
        ("3", None, None, None, None, None, None),
        ("2", None, True, "pg", 2, 200, f"{2:032X}"),
    ]


def test_batches_of_nothing_have_the_same_columns() -> None:
    some, none = chained(laid([half(0)])).records, chain(b"", 0).records
    for batch in (half_batch, op_batch, final_batch, discard_batch):
        assert batch(none).schema == batch(some).schema
        assert batch(none).num_rows == 0


HEAD = 48  # up to the born host


@pytest.mark.parametrize(
    ("position", "content", "code"),
    [
        (0, bytes(8), "zeros"),
        (4, struct.pack(">I", 0xCBD43194), "blank"),
        (4, struct.pack(">I", 0xDAA320A8), "magic"),
        (4, bytes(4), "magic"),
        (0, bytes(4), "size"),
        (0, struct.pack(">i", -1), "size"),
        (0, struct.pack(">i", 90), "size"),
        (0, struct.pack(">i", MAX_SIZE + 1), "size"),
        (0, struct.pack(">i", MAX_SIZE), "cut"),
        (0, struct.pack(">i", 200), "lengths"),
        (28, struct.pack(">q", 5), "offset"),
        (36, struct.pack(">i", 0x10), "lengths"),
        (36, struct.pack(">i", 0x30), "lengths"),
        (84, struct.pack(">i", -1), "lengths"),
        (84, struct.pack(">i", 7), "lengths"),
        (84, struct.pack(">i", 2**31 - 1), "lengths"),
        (88 + 6, b"\x7f", "lengths"),
        (88 + 6 + 1 + len(HALF), struct.pack(">h", -1), "lengths"),
        (88 + 6 + 1 + len(HALF), struct.pack(">h", 1), "lengths"),
    ],
)
def test_a_chain_ends_at_what_is_no_record(position: int, content: bytes, code: str) -> None:
    good = laid([half(0), half(1)], 100)
    broken = bytearray(laid([half(0), half(1), half(2), half(3)], 100))
    at = len(good) + position
    broken[at : at + len(content)] = content
    found = chained(bytes(broken), 100)
    assert len(found.records) == 2
    assert found.end == len(good)
    assert found.stop is not None
    assert (found.stop.position, found.stop.code) == (len(good), code)


@pytest.mark.parametrize("left", [1, 7, 8, 35, 50, 90, 91, 200])
def test_a_record_that_goes_on_behind_the_buffer(left: int) -> None:
    first = half(0).at(0)
    found = chained((laid([half(0), half(1)]))[: len(first) + left])
    assert len(found.records) == 1
    assert found.stop is not None
    assert found.stop.code == "cut"


def test_records_within_bodies_are_none() -> None:
    inner = half(7).at(0)
    records = [half(0, body=inner), half(1, body=b"\xda\xa3\x20\xa7" * 9), half(2, body=inner + inner[:60]), half(3)]
    content = b"".join(record.at(n * 10**6) for n, record in enumerate(records))  # a pull's answer: offsets jump
    found = chain(content)
    assert found.stop is None
    assert [row["body"] for row in half_rows(found)] == [record.body for record in records]


def test_a_record_within_a_body_that_claims_its_own_place() -> None:
    inside = len(half(0).at(0)) + 88
    forged = half(9).at(inside)
    content = laid([half(0), half(1, body=forged), half(2)])
    assert len(sound_anywhere(content, 0)) == 4
    assert [row["uniq_key"] for row in half_rows(chained(content))] == [f"{n:032X}" for n in range(3)]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_wrong_body_is_found_by_its_crc(n: int) -> None:
    records = [half(0), half(1, body=b""), half(2)]
    records[n] = replace(records[n], body_crc=1)
    expected = [k == n and bool(records[n].body) for k in range(3)]
    assert chained(laid(records)).records.wrong_body_crc().tolist() == expected


@given(st.integers(0, 10_000), st.integers(1, 255), st.booleans())
def test_the_property_crc_finds_any_change(place: int, flip: int, with_properties: bool) -> None:
    properties: dict[str, str] = dict(half(1).properties) if with_properties else {}  # type: ignore[arg-type]
    records = [half(0), half(1, property_crc=True, properties=properties)]
    content = bytearray(laid(records))
    first = len(records[0].at(0))
    assert not chained(bytes(content)).records.wrong_property_crc().any()
    content[first + place % (len(content) - first - 20)] ^= flip
    found = chained(bytes(content)).records
    assert len(found) == 1 or found.wrong_property_crc().tolist() == [False, True]


def test_the_property_crc_is_a_property_too() -> None:
    row = half_rows(chained(laid([half(1, property_crc=True)])))[0]
    assert len(row["properties"]["__CRC32#"]) == 10
    assert row["properties"]["KEYS"] == "k1"
