"""How a topic's table is laid out by its settings: columns whose bounds let readers skip files, and a change feed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql.types import ArrayType, BinaryType, BooleanType, DataType, MapType, StructType

from halfop.frame.nearest import did_you_mean
from halfop.settings.topics import TopicOverride
from halfop.warehouse.schema import TableSpec

_WITHOUT_BOUNDS = (ArrayType, BinaryType, BooleanType, MapType, StructType)


def laid_out(table: TableSpec, own: TopicOverride) -> TableSpec:
    """Returns the form of a topic's table with the bounds and the change feed of its settings."""
    more = [column for column in own.cluster_by or () if column not in table.stats]
    return replace(table, stats=(*table.stats, *more), change_feed=bool(own.change_feed))


def unfit_column(own: TopicOverride, table: TableSpec) -> str | None:
    """Returns why rows cannot be laid out by a column of the setting; None if they can be by all."""
    for column in own.cluster_by or ():
        kind = _kind(column, table.struct)
        if kind is None:
            return f"the topic's table has no column {column}{did_you_mean(column, table.names)}"
        if isinstance(kind, _WITHOUT_BOUNDS):
            return (
                f"{column} is {kind.typeName().upper()}, of which Delta keeps no bounds: name numbers, texts or times"
            )
    return None


def with_bounds(columns: Iterable[str], table: StructType) -> list[str]:
    """Returns which columns a table of this form has, with bounds."""
    kinds = {column: _kind(column, table) for column in columns}
    return [column for column, kind in kinds.items() if kind is not None and not isinstance(kind, _WITHOUT_BOUNDS)]


def _kind(column: str, struct: StructType) -> DataType | None:
    found: DataType = struct
    for name in column.split("."):
        if not isinstance(found, StructType) or name not in found.names:
            return None
        found = found[name].dataType
    return found
