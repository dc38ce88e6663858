"""How the type of a column may grow: fields of structs may come, wherever they are; nothing else may change."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType

from halfop.frame.errors import HalfopError
from halfop.warehouse.schema import VALUE, VALUE_ERROR, TableSpec, valued


class TypeChanged(HalfopError):
    """The types of a place differ otherwise than by fields that come."""


def ddl(kind: DataType) -> str:
    """A type as SQL declares it, whatever its fields are named."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{_quoted(f.name)}: {ddl(f.dataType)}' for f in kind)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{ddl(kind.keyType)}, {ddl(kind.valueType)}>"
    return kind.simpleString().upper()


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def grown(known: DataType, wanted: DataType, at: str = VALUE) -> DataType:
    """The type with the fields of both, the known ones first; TypeChanged if the types of a place differ."""
    if isinstance(known, StructType) and isinstance(wanted, StructType):
        return _grown_struct(known, wanted, at)
    if isinstance(known, ArrayType) and isinstance(wanted, ArrayType):
        return ArrayType(grown(known.elementType, wanted.elementType, f"{at}[...]"))
    if isinstance(known, MapType) and isinstance(wanted, MapType):
        key = grown(known.keyType, wanted.keyType, f"the keys of {at}")
        return MapType(key, grown(known.valueType, wanted.valueType, f"{at}[...]"))
    if type(known) is not type(wanted) or (isinstance(known, DecimalType) and known != wanted):
        raise TypeChanged(f"{at} is {_short(known)} there, and {_short(wanted)} by the setting")
    return known


def _short(kind: DataType) -> str:
    return type(kind).__name__.removesuffix("Type").upper() if _is_nested(kind) else ddl(kind)


def _is_nested(kind: DataType) -> bool:
    return isinstance(kind, (StructType, ArrayType, MapType))


def _grown_struct(known: StructType, wanted: StructType, at: str) -> StructType:
    names = {field.name.lower(): field.name for field in known}
    for field in wanted:
        other = names.get(field.name.lower(), field.name)
        if other != field.name:
            raise TypeChanged(f"{at}.{other} is {at}.{field.name} by the setting, and a table's names have no case")
    of_both = {f.name: f.dataType for f in wanted}
    old = [
        (f.name, grown(f.dataType, of_both[f.name], f"{at}.{f.name}") if f.name in of_both else f.dataType)
        for f in known
    ]
    new = [(f.name, f.dataType) for f in wanted if f.name not in known.names]
    return StructType([StructField(name, kind) for name, kind in (*old, *new)])


def lacking(known: StructType, spec: TableSpec) -> list[str]:
    """The columns that a table lacks, as SQL declares them; of its `value` also the fields.

    TypeChanged if its `value` is of another type.
    """
    columns = [column.ddl for column in spec.columns if column.name not in known.names]
    if VALUE not in spec.names or VALUE not in known.names:
        return columns
    has, wanted = known[VALUE].dataType, spec.struct[VALUE].dataType
    return columns + [f"{place} {ddl(kind)}" for place, kind in _new(has, grown(has, wanted), VALUE)]


def _new(known: DataType, wanted: DataType, at: str) -> Iterator[tuple[str, DataType]]:
    """The fields that come, with their places."""
    if isinstance(known, StructType) and isinstance(wanted, StructType):
        for field in wanted:
            place = f"{at}.{_quoted(field.name)}"
            if field.name in known.names:
                yield from _new(known[field.name].dataType, field.dataType, place)
            else:
                yield place, field.dataType
    elif isinstance(known, ArrayType) and isinstance(wanted, ArrayType):
        yield from _new(known.elementType, wanted.elementType, f"{at}.element")
    elif isinstance(known, MapType) and isinstance(wanted, MapType):
        yield from _new(known.valueType, wanted.valueType, f"{at}.value")


def as_it_is(spec: TableSpec, columns: StructType) -> TableSpec:
    """The form of a topic's table that has these columns."""
    if not {VALUE, VALUE_ERROR} <= {*columns.names}:
        return spec
    return valued(spec, ddl(columns[VALUE].dataType))
