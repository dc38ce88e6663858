"""Bodies of Avro, Protocol Buffers and text: what was written comes back, and what does not fit has a reason."""

from __future__ import annotations

import base64
import io
import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from halfop.frame.errors import UsageError
from halfop.values.columns import column_type
from halfop.values.reading import Reading
from halfop.warehouse.growth import ddl

from values.readings import reading_of, values_setting

AT = datetime(2026, 1, 31, 9, 30, tzinfo=timezone.utc)


def read(reading: Reading, *given: bytes | None) -> list[tuple[object, str | None]]:
    values, reasons = reading.values(pa.array(given, pa.binary()))
    return list(zip(values.to_pylist(maps_as_pydicts="strict"), reasons.to_pylist(), strict=True))


def test_text() -> None:
    found = read(reading_of("text"), "né".encode(), b"a\xffb", b"")
    assert found == [("né", None), (None, "no UTF-8 from byte 1 on"), ("", None)]


# ---- Avro ----

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": ["null", "Kind"]},
        {"name": "sum", "type": {"type": "fixed", "name": "Sum", "size": 2}},
        {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
            {"name": "sku", "type": ["null", "string"]}, {"name": "n", "type": "int"}]}}},
        {"name": "first", "type": ["null", "shop.Item"]},
        {"name": "props", "type": {"type": "map", "values": "double"}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
    ],
}  # fmt: skip
ROW = {
    "id": 2**62,
    "at": AT,
    "day": date(2026, 1, 31),
    "price": Decimal("-12.50"),
    "key": "123e4567-e89b-12d3-a456-426614174000",
    "kind": "A",
    "other": None,
    "sum": b"\x00\xff",
    "items": [{"sku": "né", "n": 1}, {"sku": None, "n": -1}],
    "first": {"sku": "x", "n": 2},
    "props": {"a": 1.5},
    "time": 1_000,
}


def datum(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    plain = json.loads(json.dumps(ORDER).replace(', "logicalType": "time-millis"', ""))
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), row)
    return out.getvalue()


def test_avro() -> None:
    whole = datum(ROW)
    found = read(reading_of("avro", json.dumps(ORDER)), whole, whole[:-1], b"", whole + b"x", b"\xff" * 40)
    assert found[0] == (ROW, None)
    assert [value for value, _ in found[1:]] == [None] * 4
    assert found[3][1] == "no datum of the Avro schema: 1 bytes follow it"
    assert all(reason and reason.startswith("no datum of the Avro schema") for _, reason in found[1:])


def test_the_type_of_avro() -> None:
    assert ddl(column_type("orders", values_setting("avro", json.dumps(ORDER)))) == (
        "STRUCT<`id`: BIGINT, `at`: TIMESTAMP, `day`: DATE, `price`: DECIMAL(9,2), `key`: STRING, `kind`: STRING, "
        "`other`: STRING, `sum`: BINARY, `items`: ARRAY<STRUCT<`sku`: STRING, `n`: INT>>, "
        "`first`: STRUCT<`sku`: STRING, `n`: INT>, `props`: MAP<STRING, DOUBLE>, `time`: INT>"
    )


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}


def test_one_short_name_in_two_namespaces_of_avro() -> None:
    """Both a name without a namespace and a whole one mean what Avro says, and a type may hold its namesake."""
    other = named("ship.Order", truck="string")
    schema = named("Order", a=named("shop.Party", vat="int"), b=named("ship.Party", truck="string"), c="shop.Party")
    schema["fields"] += [{"name": "d", "type": named("shop.Order", e="Party", f=other, g="ship.Order")}]
    assert ddl(column_type("orders", values_setting("avro", json.dumps(schema)))) == (
        "STRUCT<`a`: STRUCT<`vat`: INT>, `b`: STRUCT<`truck`: STRING>, `c`: STRUCT<`vat`: INT>, "
        "`d`: STRUCT<`e`: STRUCT<`vat`: INT>, `f`: STRUCT<`truck`: STRING>, `g`: STRUCT<`truck`: STRING>>>"
    )
    given = {"a": {"vat": 1}, "b": {"truck": "t"}, "c": {"vat": 2}}
    given["d"] = {"e": {"vat": 3}, "f": {"truck": "u"}, "g": {"truck": "v"}}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), given)
    assert read(reading_of("avro", json.dumps(schema)), out.getvalue()) == [(given, None)]


def record(**fields: Any) -> str:
    return json.dumps(named("R", **fields))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "no schema of Avro"),
        ('{"type": "record"}', "no schema of Avro"),
        (record(a="nothing"), "no schema of Avro"),
        ('{"type": "array", "items": "int"}', "expected a record"),
        (record(a=["int", "string"]), "expected unions of null and one other"),
        (record(a="null"), "null alone is no type"),
        (record(a=["null", "R"]), "R holds itself"),
        (record(a="int", A="int"), "the fields a and A are one"),
        (record(), "R has no field"),
        ("5", "no schema of Avro"),
        ("null", "no schema of Avro"),
        ('{"type": "record", "name": "R"}', "R has no field"),
        ('{"type": ["null", "int"]}', "no schema of Avro"),
        ('{"type": "record", "name": "R", "fields": [{"name": 5, "type": "int"}]}', "no schema of Avro"),
        (record(a={"type": "bytes", "logicalType": "decimal"}), "no schema of Avro: 'precision' is missing"),
        (record(a={"type": "bytes", "logicalType": "decimal", "precision": 39}), "at most 38 digits, not 39"),
        (record(a={"type": "array", "items": {"type": "record", "name": "E", "fields": []}}), "E has no field"),
        (record(a={"type": "array", "items": {"type": "fixed", "name": "E", "size": 0}}), "E has no byte"),
    ],
)
def test_a_schema_of_avro_that_no_table_has(schema: str, said: str) -> None:
    with pytest.raises(UsageError, match=rf"topics.orders.value.schema: .*{said}"):
        column_type("orders", values_setting("avro", schema))


KIND = {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}


@pytest.mark.parametrize(
    ("fields", "bodies", "value"),
    [
        ({"a": KIND}, [b"\x01", b"\x03", b"\x05", b"\x07", b"\x06", b"\x81\x00"], b"\x04"),
        ({"a": KIND, "b": "Kind"}, [b"\x02\x01", b"\x02\x05"], b"\x02\x82\x00"),
        ({"a": ["null", "int"]}, [b"\x01\x02", b"\x03", b"\x05\x02", b"\x07", b"\x04"], b"\x82\x00\x02"),
        ({"a": {"type": "array", "items": KIND}}, [b"\x02\x01\x00"], b"\x01\x02\x00\x02\x04\x00"),
        ({"a": {"type": "map", "values": ["null", KIND]}}, [b"\x02\x02a\x03\x00", b"\x02\x02a\x02\x01\x00"], b"\x00"),
    ],
)
def test_a_negative_place_of_avro_is_no_last_one(fields: dict[str, Any], bodies: list[bytes], value: bytes) -> None:
    """Of an enum's symbols and a union's branches. Longer numbers than needed, and arrays in blocks, count."""
    found = read(reading_of("avro", record(**fields)), value, *bodies)
    assert found[0][1] is None
    assert found[1:] == [(None, "no datum of the Avro schema (IndexError)")] * len(bodies)


def test_a_body_of_avro_may_be_a_union() -> None:
    found = read(reading_of("avro", json.dumps(["null", named("R", a="int")])), b"\x02\x02", b"\x01\x02", b"\x03")
    assert found == [({"a": 1}, None), *[(None, "no datum of the Avro schema (IndexError)")] * 2]


# ---- Protocol Buffers ----


def described() -> descriptor_pb2.FileDescriptorSet:
    """What protoc makes of a file with a message of each kind of field."""
    f = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.enum_type.add(name="Kind").value.add(name="A", number=0)
    item = file.message_type.add(name="Item")
    item.field.add(name="sku", number=1, type=f.TYPE_STRING, label=f.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=f.TYPE_STRING, label=f.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=f.TYPE_INT32, label=f.LABEL_OPTIONAL)
    plain = {"id": f.TYPE_INT64, "n": f.TYPE_UINT32, "big": f.TYPE_UINT64, "x": f.TYPE_DOUBLE, "f": f.TYPE_FLOAT}
    plain |= {"ok": f.TYPE_BOOL, "name": f.TYPE_STRING, "raw": f.TYPE_BYTES}
    for number, (name, kind) in enumerate(plain.items(), 1):
        order.field.add(name=name, number=number, type=kind, label=f.LABEL_OPTIONAL)
    made = {"kind": "Kind", "at": "google.protobuf.Timestamp", "first": "Item"}
    for number, (name, of) in enumerate(made.items(), 20):
        kind = f.TYPE_ENUM if name == "kind" else f.TYPE_MESSAGE
        whole = f".{of}" if "." in of else f".shop.{of}"
        order.field.add(name=name, number=number, type=kind, type_name=whole, label=f.LABEL_OPTIONAL)
    many = {"items": ".shop.Item", "counts": ".shop.Order.CountsEntry"}
    for number, (name, of) in enumerate(many.items(), 30):
        order.field.add(name=name, number=number, type=f.TYPE_MESSAGE, type_name=of, label=f.LABEL_REPEATED)
    order.field.add(name="tags", number=40, type=f.TYPE_STRING, label=f.LABEL_REPEATED)
    itself = file.message_type.add(name="Tree")
    itself.field.add(name="leaf", number=1, type=f.TYPE_MESSAGE, type_name=".shop.Tree", label=f.LABEL_OPTIONAL)
    time = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(time)
    return descriptor_pb2.FileDescriptorSet(file=[time, file])


def content(files: descriptor_pb2.FileDescriptorSet) -> str:
    return "base64:" + base64.b64encode(files.SerializeToString()).decode()


def order_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in described().file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf() -> None:
    order = order_class()(id=-5, n=2**32 - 1, big=2**64 - 1, x=1.5, f=0.5, ok=True, name="né", raw=b"\xff", kind=0)
    order.at.FromDatetime(AT)
    order.items.add(sku="a")
    order.counts["k"] = 3
    order.tags.append("t")
    unknown = order_class()()
    unknown.kind = 7
    bodies = [order.SerializeToString(), b"", unknown.SerializeToString(), b"\xff\xff"]
    found = read(reading_of("protobuf", content(described()), "shop.Order"), *bodies)
    assert found[0] == (
        {
            "id": -5,
            "n": 2**32 - 1,
            "big": Decimal(2**64 - 1),
            "x": 1.5,
            "f": 0.5,
            "ok": True,
            "name": "né",
            "raw": b"\xff",
            "kind": "A",
            "at": AT,
            "first": None,
            "items": [{"sku": "a"}],
            "counts": {"k": 3},
            "tags": ["t"],
        },
        None,
    )
    assert isinstance(found[1][0], dict)
    assert (found[1][0]["id"], found[1][0]["at"], found[1][0]["tags"]) == (0, None, [])
    assert isinstance(found[2][0], dict)
    assert found[2][0]["kind"] == "7"
    assert found[3] == (None, "no message shop.Order")


@pytest.mark.parametrize(
    ("schema", "message", "said"),
    [
        ("base64:AAAA", "shop.Order", "no whole file of descriptors"),
        (content(described()), "shop.Odrer", "has no message shop.Odrer"),
        (content(described()), "shop.Tree", "shop.Tree holds itself"),
        (content(descriptor_pb2.FileDescriptorSet(file=described().file[1:])), "shop.Order", "--include_imports"),
    ],
)
def test_a_file_of_descriptors_that_no_table_has(schema: str, message: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"topics.orders.value.schema: .*{said}"):
        column_type("orders", values_setting("protobuf", schema, message))


def test_a_number_that_no_column_holds_is_a_misfit() -> None:
    """Avro's int is written as any length: 2^40 is no INT."""
    body = bytes([0x80, 0x80, 0x80, 0x80, 0x80, 0x40])
    found = read(reading_of("avro", record(a="int")), body, b"\x02")
    assert found == [(None, "a number, time or text is beyond what its column's type holds"), ({"a": 1}, None)]
