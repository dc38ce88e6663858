"""The rows of half messages in all tables: how many are left of which, and their removal, a commit a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.erasure.places import HalfColumns, places
from halfop.frame.errors import WarehouseBusy
from halfop.frame.trouble import owner
from halfop.planning.counts import covers, ranges_of
from halfop.runs.record import wall_clock
from halfop.warehouse.erasures import HALVES, TABLE, erasures
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.tables import AlreadyWrittenError, Marker, Warehouse
from halfop.warehouse.upkeep import TableUpkeep
from halfop.warehouse.where import equal

_APP = "halfop.erase"
_ROW = ["table_name", *HALF_KEY, "landed_at"]
_AS = {name: f"erased_{name}" for name in HALF_KEY}  # names that no table's columns have


class Removal(NamedTuple):
    """A table, the number of its rows that are to be removed or emptied, and the commit that does it."""

    table: str
    rows: int
    commit: Callable[[], None]


def rows_left(warehouse: Warehouse, keys: DataFrame) -> DataFrame | None:
    """Returns the number of rows that each table has of each key, in the form of `erasures`; None if there is none."""
    ranges = ranges_of(keys, "queue_offset")
    parts = list[DataFrame]()
    for name, place in places(warehouse) if ranges else ():
        found = warehouse.select(name, None, covers(ranges, place.offset, place.queue))
        if found.files:
            parts.append(_counted(name, _named(place, found.rows, name == HALVES), keys))
    return reduce(DataFrame.unionByName, parts) if parts else None


def _named(place: HalfColumns, rows: DataFrame, landed: bool) -> DataFrame:
    """The half keys of a table's rows of which something is left."""
    key = [F.col(name).alias(of) for name, of in place.key.items()]
    at = F.col("landed_at") if landed else F.lit(None).cast("timestamp")
    return rows.where(place.left()).select(*key, at.alias("landed_at"))


def _counted(name: str, rows: DataFrame, keys: DataFrame) -> DataFrame:
    counted = rows.join(keys, HALF_KEY, "left_semi").groupBy(*HALF_KEY, "landed_at").agg(F.count("*").alias("rows"))
    return counted.select(F.lit(name).alias("table_name"), *HALF_KEY, "landed_at", "rows")


def record(warehouse: KernelWarehouse, plan_id: str, rows: DataFrame) -> None:
    """Writes what is to be removed to `erasures`, each row once a plan: a plan that was stopped has written it."""
    known = erasures(warehouse, equal("plan_id", plan_id))
    if known is not None:
        rows = rows.join(known.select(_ROW), [rows[c].eqNullSafe(known[c]) for c in _ROW], "left_anti")
    by, at = f"{owner()}:{os.getpid()}", wall_clock()
    given = {"plan_id": F.lit(plan_id), "by": F.lit(by), "at": F.lit(at)}
    schema = warehouse.schema(TABLE)
    new = rows.withColumns(given).select(schema.names).toArrow().cast(arrow_schema(schema))
    if not len(new):
        return
    warehouse.make(TABLE)
    try:
        warehouse.commit_first(TABLE, new, Marker(_APP, warehouse.marker(TABLE, _APP) + 1))
    except AlreadyWrittenError as error:
        raise WarehouseBusy(f"{warehouse.path(TABLE)}: another process erases: start again when it is done") from error


def removals(warehouse: Warehouse, keys: DataFrame, rows: DataFrame) -> list[Removal]:
    """Returns the removal of these rows, table by table; it also sets the guards that a killed one left unset."""
    numbers = {row[0]: row[1] for row in rows.groupBy("table_name").agg(F.sum("rows")).collect()}
    return list(_removals(warehouse, keys, numbers))


def _removals(warehouse: Warehouse, keys: DataFrame, numbers: dict[str, int]) -> Iterator[Removal]:
    ranges = ranges_of(keys, "queue_offset")
    renamed = keys.select(*[F.col(name).alias(other) for name, other in _AS.items()])
    for name, place in places(warehouse):
        table = TableUpkeep(warehouse, name)
        if name in numbers:
            same = reduce(Column.__and__, [F.col(n) == F.col(_AS[of]) for n, of in place.key.items()])
            if (near := covers(ranges, place.offset, place.queue)) is not None:  # Delta skips the other files
                same = near.column(warehouse.schema(name)) & same
            forget = partial(table.forget, renamed, same & place.left(), place.cells)
            yield Removal(name, numbers[name], forget)


def set_guards(warehouse: KernelWarehouse) -> None:
    """Sets the guards of tables that a killed removal left unset."""
    for name, _ in places(warehouse):
        table = TableUpkeep(warehouse, name)
        table.set(table.lacking_guards)
