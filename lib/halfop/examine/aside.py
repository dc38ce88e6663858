"""Where a repair puts what it takes out of tables, and the mark that one has not been finished."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from halfop.frame.trouble import make_durable
from halfop.warehouse.damage import TableOnDisk
from halfop.warehouse.disk import LocalDisk
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import UNFINISHED
from halfop.warehouse.parquet import arrow_schema, cast_to


@dataclass(frozen=True)
class Aside:
    """A folder of one repair, below `_damaged/` of the warehouse; nothing in it is ever removed."""

    root: Path
    stamp: str

    @property
    def folder(self) -> Path:
        return self.root / "_damaged" / self.stamp

    @property
    def _mark(self) -> Path:
        return self.root / UNFINISHED

    @property
    def holds_any(self) -> bool:
        """Returns whether a repair has ever taken anything out of a table."""
        return any(path.is_file() for path in self.folder.parent.rglob("*"))

    @property
    def unfinished(self) -> list[str]:
        """The tables that a repair which was stopped had found damaged; none if there is none."""
        return list(json.loads(self._mark.read_text())) if self._mark.exists() else []

    def begin(self, tables: Iterable[str]) -> None:
        """From here on no job works on the warehouse, until the repair is finished."""
        made = self.folder / "tables.json"
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(json.dumps(sorted({*tables, *self.unfinished})))
        os.replace(made, self._mark)
        make_durable([self._mark, self._mark.parent])

    def finish(self) -> None:
        """Lets the jobs work again."""
        self._mark.unlink(missing_ok=True)

    def move(self, path: Path) -> None:
        """Takes a file out of its table."""
        if path.exists():
            place = self._place(path)
            os.replace(path, place)
            make_durable([place, path.parent])

    def copy(self, path: Path) -> None:
        """Keeps a file that is about to be replaced."""
        if path.exists():
            make_durable([shutil.copy2(path, self._place(path))])

    def _place(self, path: Path) -> Path:
        place = self.folder / path.relative_to(self.root)
        place.parent.mkdir(parents=True, exist_ok=True)
        number = len(list(place.parent.glob(f"{place.name}*")))
        return place.with_name(f"{place.name}.{number}") if number else place


# Tables whose rows follow from nothing else. A row of theirs that a killed job has not committed does no harm.
TABLES = ("landing_progress", "resumes", "endings", "check_deliveries", "landed_files", "rejected")


def salvage(warehouse: KernelWarehouse, name: str, folder: Path) -> int:
    """Adds the rows of whole files that no version names, unless the table has equal ones; returns their number."""
    rows = rows_without_commit(warehouse, name, folder)
    warehouse.commit(name, rows)
    return len(rows)


def rows_without_commit(warehouse: KernelWarehouse, name: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of whole files that no version names, without those that have an equal one in the table."""
    found = [rows for path in _nameless(folder) if (rows := _read(warehouse, name, path)) is not None]
    known = {repr(row) for row in warehouse.rows(name)} if found else set()
    rows = {repr(row): row for part in found for row in part.to_pylist(maps_as_pydicts="strict")}
    return [row for text, row in rows.items() if text not in known]


def _nameless(folder: Path) -> list[Path]:
    on_disk = TableOnDisk(LocalDisk(), str(folder))
    named = {Path(path).name for path in on_disk.live()}
    return sorted(path for path in folder.glob("*.parquet") if path.name not in named)


def _read(warehouse: KernelWarehouse, name: str, path: Path) -> pa.Table | None:
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
