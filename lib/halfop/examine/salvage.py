"""Rows whose commit was lost, while the files that it added are still in the table's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from halfop.warehouse.damage import TableOnDisk
from halfop.warehouse.disk import LocalDisk
from halfop.warehouse.parquet import arrow_schema, cast_to
from halfop.warehouse.tables import Warehouse

# Tables whose rows follow from nothing else. A row of theirs that a killed job has not committed does no harm.
TABLES = ("landing_progress", "resumes", "endings", "check_deliveries", "landed_files", "rejected")


def salvage(warehouse: Warehouse, name: str, folder: Path) -> int:
    """Adds the rows of whole files that no version names, unless the table has equal ones; returns their number."""
    rows = rows_without_commit(warehouse, name, folder)
    warehouse.append_rows(name, rows)
    return len(rows)


def rows_without_commit(warehouse: Warehouse, name: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of whole files that no version names, without those that have an equal one in the table."""
    found = [rows for path in _nameless(folder) if (rows := _read(warehouse, name, path)) is not None]
    known = {repr(row) for row in warehouse.rows(name)} if found else set()
    rows = {repr(row): row for part in found for row in part.to_pylist(maps_as_pydicts="strict")}
    return [row for text, row in rows.items() if text not in known]


def _nameless(folder: Path) -> list[Path]:
    on_disk = TableOnDisk(LocalDisk(), str(folder))
    named = {Path(path).name for path in on_disk.live()}
    return sorted(path for path in folder.glob("*.parquet") if path.name not in named)


def _read(warehouse: Warehouse, name: str, path: Path) -> pa.Table | None:
    """The rows with the columns that the table has; None if the file is not whole."""
    try:
        rows = pq.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError):
        return None
    schema = arrow_schema(warehouse.schema(name))
    columns = [
        cast_to(rows[f.name].combine_chunks(), f.type) if f.name in rows.column_names else pa.nulls(len(rows), f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
