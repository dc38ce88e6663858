"""The table `erasures`: the half keys of what `erase` has removed, table by table, for all who would miss the rows."""

from __future__ import annotations

from pyspark.sql import DataFrame

from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import Where, all_of, equal

TABLE = "erasures"
HALVES = "half_messages"
_KEY = ("queue_offset", "queue_id", "broker_name")


def erasures(warehouse: Warehouse, near: Where | None = None, table: str | None = None) -> DataFrame | None:
    """Returns the rows that meet the condition, of one table's if it is named; None if there can be none."""
    wanted = [each for each in (near, None if table is None else equal("table_name", table)) if each is not None]
    found = warehouse.select(TABLE, None, all_of(*wanted) if wanted else None)
    return found.rows if found.files else None


def erased_keys(warehouse: Warehouse, near: Where | None = None) -> DataFrame | None:
    """Returns the half keys of erased messages, each once; None if there can be none."""
    found = erasures(warehouse, near)
    return None if found is None else found.select(*_KEY).distinct()
