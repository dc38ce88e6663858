"""Bodies of Protocol Buffers: one message each, without a header, of a type that a file of descriptors has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timezone
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from pyspark.sql import types as t

from halfop.settings.topics import schema_bytes
from halfop.values.misfit import Misfit

_TYPES: dict[int, t.DataType] = {
    FieldDescriptor.CPPTYPE_INT32: t.IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: t.LongType(),
    FieldDescriptor.CPPTYPE_UINT32: t.LongType(),
    FieldDescriptor.CPPTYPE_UINT64: t.DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: t.DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: t.FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: t.BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: t.StringType(),
}
_TIME = "google.protobuf.Timestamp"


def _descriptor(schema: str, message: str) -> Descriptor:
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(schema_bytes(schema)).file:
            pool.Add(file)
    except (DecodeError, TypeError, ValueError) as error:
        raise ValueError(
            f"no whole file of descriptors (protoc --descriptor_set_out=FILE --include_imports): {error}"
        ) from None
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        raise ValueError(f"the file of descriptors has no message {message}") from None


# ---- reading ----


def reader(schema: str, message: str) -> Callable[[bytes], object]:
    """Returns what reads a body as a dict; it raises Misfit."""
    descriptor = _descriptor(schema, message)
    parse = message_factory.GetMessageClass(descriptor).FromString

    def read(body: bytes) -> object:
        try:
            return _value(parse(body), descriptor)
        except (DecodeError, ArithmeticError, ValueError):
            raise Misfit(f"no message {message}") from None

    return read


def _value(found: Any, of: Descriptor) -> object:
    if of.full_name == _TIME:
        return found.ToDatetime(timezone.utc)
    return {field.name: _field(found, field) for field in of.fields}


def _field(found: Any, field: FieldDescriptor) -> object:
    if field.has_presence and not found.HasField(field.name):
        return None
    value = getattr(found, field.name)
    if not field.is_repeated:
        return _single(value, field)
    if (entry := _map_entry(field)) is None:
        return [_single(each, field) for each in value]
    return [(key, _single(value[key], entry.fields_by_name["value"])) for key in sorted(value)]


def _single(value: Any, field: FieldDescriptor) -> object:
    if field.message_type is not None:
        return _value(value, field.message_type)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def _map_entry(field: FieldDescriptor) -> Descriptor | None:
    entry = field.message_type
    return entry if entry is not None and entry.GetOptions().map_entry else None


# ---- the column's type ----


def column_type(schema: str, message: str) -> t.DataType:
    """The type of the values; a ValueError says what a table cannot have."""
    return _struct(_descriptor(schema, message), ())


def _struct(of: Descriptor, above: tuple[str, ...]) -> t.StructType:
    if of.full_name in above:
        raise ValueError(f"{of.full_name} holds itself, so no column has its type")
    if not of.fields:
        raise ValueError(f"{of.full_name} has no field, so no column has its type")
    return t.StructType([t.StructField(f.name, _type(f, (*above, of.full_name))) for f in of.fields])


def _type(field: FieldDescriptor, above: tuple[str, ...]) -> t.DataType:
    if not field.is_repeated:
        return _single_type(field, above)
    if (entry := _map_entry(field)) is None:
        return t.ArrayType(_single_type(field, above))
    key, value = (_single_type(entry.fields_by_name[name], above) for name in ("key", "value"))
    return t.MapType(key, value)


def _single_type(field: FieldDescriptor, above: tuple[str, ...]) -> t.DataType:
    if field.message_type is not None:
        return t.TimestampType() if field.message_type.full_name == _TIME else _struct(field.message_type, above)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return t.BinaryType() if field.type == FieldDescriptor.TYPE_BYTES else t.StringType()
    return _TYPES[field.cpp_type]
