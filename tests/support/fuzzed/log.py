"""Records of a commit log by both readers, properties in RocketMQ's text form, bodies of op messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from halfop.landing.fields import fields, items
from halfop.rocketmq.batches import BATCH, kinds_of
from halfop.rocketmq.buffers import parse_int, parse_long
from halfop.rocketmq.message import Message, Place, decompressed, store_ms_of
from halfop.rocketmq.properties import Properties, decoded, packed, unpacked
from halfop.rocketmq.record import Chain, chain, sound_anywhere

from support.brokers.op_bodies import BODIES, NUMBERS
from support.brokers.store_writer import Record, discard, final, gateway_op, half, op
from support.fuzzed.target import Draws, Target

BASE = 1000
_HOST = bytes(8)


# ---- records ----


def records(content: bytes) -> None:
    """Records read one by one are those that NumPy reads; what was read is written as the same bytes."""
    draws = Draws(content)
    base = (None, 0, BASE)[draws.below(3)]
    cut_at, log = draws.below(1 << 8), draws.rest()
    found = chain(log, base)
    _read_one_by_one(log, found, base)
    _read_in_two(log, found, base, cut_at)
    if base is not None:
        anywhere = set(sound_anywhere(log, base).positions.tolist())
        assert anywhere.issuperset(found.records.positions.tolist())
    _in_batches(found)


def _read_one_by_one(log: bytes, found: Chain, base: int | None) -> None:
    records, at = found.records, 0
    crcs, properties = records.has_property_crc().tolist(), Properties(records).map().to_pylist()
    for n, (begin, end) in enumerate(zip(records.positions.tolist(), records.ends.tolist(), strict=True)):
        assert begin == at
        whole, magic = log[begin:end], int(records.head["magic"][n])
        message, place = Message.read(whole, False)
        assert message.packed(place, False, magic) == whole
        assert message.size(False, magic) == place.size == len(whole)
        assert place.store_ms == store_ms_of(whole) == records.store_ms[n]
        assert base is None or place.physical_offset == base + begin
        assert records.bodies[n].as_py() == message.body
        assert dict(properties[n]) == unpacked(decoded(message.properties))
        if crcs[n] and not records.wrong_property_crc()[n]:
            checked, _ = Message.read(whole)
            assert checked.packed(place, True, magic) == whole
        decompressed(message.body, message.sys_flag)
        at = end
    assert found.end == at
    assert (found.stop is None) == (at == len(log))


def _read_in_two(log: bytes, found: Chain, base: int | None, cut_at: int) -> None:
    """A window that ends within a record has those before it; the next one begins with that record."""
    first = chain(log[: max(found.end - cut_at, 0)], base)
    rest = chain(log[first.end :], None if base is None else base + first.end)
    places = [*first.records.positions.tolist(), *(rest.records.positions + first.end).tolist()]
    assert places == found.records.positions.tolist()
    assert (rest.stop and rest.stop.code) == (found.stop and found.stop.code)


def _in_batches(found: Chain) -> None:
    """Rows of many records are those of each alone, whatever kind they are read as."""
    kinds_of(found.records, found.records.topics())
    found.records.wrong_body_crc()
    for build in BATCH.values():
        together = build(found.records)
        together.validate(full=True)
        alone = [build(found.records.select(slice(n, n + 1))) for n in range(len(found.records))]
        assert together.to_pylist() == [row for each in alone for row in each.to_pylist()]


def _logs() -> Iterator[bytes]:
    kinds = [half(0), op("0,1,"), final(1, 0), discard(1), gateway_op(3, "ROLLBACK")]
    kinds += [half(1, property_crc=True, version=2, born_host=("::1", 5)), half(2, store_host=("fe80::1", 9))]
    kinds.append(Record("orders", sys_flag=9, properties=b"A\x01\xff\xfe\x02B\x01\xed\xa0\x80\x02A\x01x"))
    for choice, base in enumerate((None, 0, BASE)):
        log = b""
        for each in kinds:
            log += each.at((base or 0) + len(log))
        yield bytes([choice, 200]) + log
    yield bytes([1, 0]) + half(0).at(0) + bytes(20)


# ---- properties ----

_BETWEEN = b"\x00\x00"


def properties(content: bytes) -> None:
    """Properties of many records are those of each alone, by name too, and as numbers; written, they come back."""
    texts = content.split(_BETWEEN)[:16]
    log = b""
    for n, text in enumerate(texts):
        message = Message(b"t", b"", text[: 2**15 - 1], 0, _HOST, _HOST, 0)
        log += message.packed(Place(n, len(log), message.size(False), 0), False)
    read = Properties(chain(log, 0).records)
    expected = [unpacked(decoded(text[: 2**15 - 1])) for text in texts]
    assert [dict(each) for each in read.map().to_pylist()] == expected
    for name in {name for each in expected for name in each}:
        values = [each.get(name) for each in expected]
        assert read.strings(name).to_pylist() == values
        assert read.ints(name).to_pylist() == [parse_int(value) for value in values]
        assert read.longs(name).to_pylist() == [parse_long(value) for value in values]
    for each in expected:
        assert unpacked(packed(each)) == each


def _texts() -> Iterator[bytes]:
    yield packed({"UNIQ_KEY": "U", "PGROUP": "pg", "REAL_QID": "3", "КЛЮЧ": "é漢😀"}).encode()
    yield _BETWEEN.join(
        [b"A\x01+07\x02A\x012147483648\x02", b"", b"lonely\x02\x01a\x02B\x01\xe4\xb8\x02", b"A\x01x\x01y"]
    )


# ---- op bodies ----

_TYPES = {field.name: field.arrow for field in fields("op")}
_OF_FILES = pa.schema([(n, _TYPES[n]) for n in ("tag", "item", "body", "half_offset", "outcome", "outcomes")])
_OF_STORES = pa.schema([_OF_FILES.field(name) for name in ("tag", "body")])
_TAGS, _OUTCOMES = ("d", "x", None), ("COMMIT", "ROLLBACK", None)
_LONG_MAX = 2**63 - 1


def ops(content: bytes) -> None:
    """Bodies are split as RocketMQ's own loop splits them, many at once; files may give items, and outcomes of each."""
    draws = Draws(content)
    kind, rows = draws.below(2), list[dict[str, Any]]()
    while draws.left and len(rows) < 16:
        rows.append(_op_row(draws))
    schema = (_OF_STORES, _OF_FILES)[kind]
    made = items(pa.RecordBatch.from_pylist(rows, schema=schema))
    made.validate(full=True)
    expected = [item for row in rows for item in _items({name: row[name] for name in schema.names})]
    wanted = ("tag", "item", "body", "half_offset", "outcome") if kind else ("tag", "item", "body", "half_offset")
    assert made.select(wanted).to_pylist() == [{name: each[name] for name in wanted} for each in expected]


def _op_row(draws: Draws) -> dict[str, Any]:
    choice, length = draws.below(1 << 8), draws.below(1 << 8)
    body = None if choice == 255 else draws.take(length).decode(errors="replace")
    texts = [*(body or "").split(","), "0"]
    item = choice // 9 % 4 or None
    outcomes = {texts[choice % len(texts)]: "ROLLBACK"} if choice % 5 == 0 else None
    half_offset = (None, 7, -1, _LONG_MAX)[choice // 36 % 4]
    tag, outcome = _TAGS[choice % 3], _OUTCOMES[choice // 3 % 3]
    return {
        "tag": tag,
        "item": item,
        "body": body,
        "half_offset": half_offset,
        "outcome": outcome,
        "outcomes": outcomes,
    }


def _items(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The items of one row, in plain Python."""
    body, item, given = row["body"], row.get("item"), row.get("half_offset")
    ends = row["tag"] == "d"
    texts = [text for text in (body or "").split(",") if text] if ends and item is None else []
    for n, text in enumerate(texts or [body]):
        offset = given if item is not None and given is not None else parse_long(text) if ends else None
        offset = None if offset is None or offset < 0 else offset
        outcomes = row.get("outcomes") or {}
        outcome = outcomes.get(str(offset), outcomes.get(text)) or row.get("outcome")
        number = n if item is None else item
        yield {**row, "item": number, "body": text, "half_offset": offset, "outcome": outcome}


def _bodies() -> Iterator[bytes]:
    for kind in range(2):
        for choice in (0, 1, 9, 45, 108, 255):
            bodies = [str(body or "") for (body, *_), _ in BODIES] + [",".join(NUMBERS)]
            rows = [bytes([choice, len(body.encode())]) + body.encode() for body in bodies]
            yield bytes([kind]) + b"".join(rows)


TARGETS = (
    Target("records", records, _logs, ()),
    Target("properties", properties, _texts, ()),
    Target("ops", ops, _bodies, ()),
)
