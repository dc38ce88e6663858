"""Files of what lands, written by workers beside the tables, until a commit makes them part of one."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame

from halfop.columns.lives import Lives
from halfop.landing.table_rows import TABLES, RowForm, form_of
from halfop.warehouse.disk import DataFile, Disk, LocalDisk
from halfop.warehouse.files import WholeFiles
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.local import STAGING, files_apart, frame_of_files
from halfop.warehouse.parquet import searched
from halfop.warehouse.schema import table
from halfop.warehouse.tables import Marker

_OURS = "landing-"
_OLD = 24 * 3600  # seconds, which no landing takes between two files


@dataclass(frozen=True)
class Staging:
    """The folder of a landing's files."""

    warehouse: KernelWarehouse
    path: str

    def append_once(self, name: str, files: Sequence[DataFile], rows: DataFrame | None, app: str, mark: int) -> None:
        """Makes the files, and rows beside them, part of a table: once for an app and its mark.

        Spark reads the files and writes the table if nothing else may.
        """
        warehouse = self.warehouse
        if not warehouse.takes_files(name):
            warehouse.commit(name, self._together(name, files, rows), Marker(app, mark))
            return
        added = self._moved(name, files)
        if rows is not None:
            added += files_apart(warehouse, name, rows, f"{self.path}/apart-{uuid.uuid4().hex}")
        warehouse.commit_files(name, added, Marker(app, mark))

    def append(self, name: str, files: Sequence[DataFile]) -> None:
        """Makes the files part of a table; a second call appends them again."""
        warehouse = self.warehouse
        if warehouse.takes_files(name):
            warehouse.commit_files(name, self._moved(name, files))
        else:
            warehouse.commit(name, self.frame(name, files))

    def _moved(self, name: str, files: Sequence[DataFile]) -> list[DataFile]:
        folder, move = self.warehouse.path(name), self.warehouse.files.move
        return [replace(file, path=move(file.path, folder)) for file in files]

    def _together(self, name: str, files: Sequence[DataFile], rows: DataFrame | None) -> DataFrame:
        of_files = self.frame(name, files)
        return of_files if rows is None else of_files.unionByName(self.warehouse.in_form(name, rows))

    def frame(self, name: str, files: Sequence[DataFile]) -> DataFrame:
        """The rows of files that have a table's columns."""
        return frame_of_files(self.warehouse, table(name).struct, files)

    def remove(self) -> None:
        """Removes the folder with the files that are not part of a table."""
        self.warehouse.files.remove(self.path)

    @cached_property
    def disk(self) -> Disk:
        """The folder's file system, for what this process reads and writes in the place of a worker."""
        files = self.warehouse.files
        return LocalDisk() if files.local(self.path) is not None else WholeFiles(files)


@contextmanager
def staging(warehouse: KernelWarehouse) -> Iterator[Staging]:
    """A folder that lasts as long as the block. Removes what killed landings left; hold the lock of landings."""
    remove_left(warehouse)
    made = new_folder(warehouse)
    try:
        yield made
    finally:
        made.remove()


def new_folder(warehouse: KernelWarehouse) -> Staging:
    """A new folder for files of a landing that do not belong to a table yet; whoever asks for it removes it."""
    return Staging(warehouse, warehouse.files.qualified(warehouse.path(f"{STAGING}/{_OURS}{uuid.uuid4().hex}")))


def remove_left(warehouse: KernelWarehouse) -> None:
    """Removes what dead landings have left. Elsewhere than on a local disk others may land now: it must be old."""
    files, top = warehouse.files, warehouse.path(STAGING)
    before = math.inf if files.local(top) is not None else (time.time() - _OLD) * 1_000
    for left in files.folders(top):
        if left.startswith(_OURS) and (before == math.inf or files.last_change(f"{top}/{left}") < before):
            files.remove(f"{top}/{left}")


def forms(lives: Lives, source: str, landed_at: int) -> dict[str, RowForm]:
    """The forms of rows by their kind."""
    return {kind: form_of(name, lives, source, landed_at) for kind, name in TABLES.items()}


def searched_columns() -> Mapping[str, Sequence[str]]:
    """The columns of each kind whose bounds the tables keep."""
    return {kind: searched(table(name)) for kind, name in TABLES.items()}
