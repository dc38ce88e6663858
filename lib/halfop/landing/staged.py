"""Files of what lands, until a commit makes them, or their rows, part of a table.

Workers write them beside the tables. If only Spark reaches the tables, they are on the disk of this machine, and their
rows go to Spark in pieces.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from halfop.columns.lives import Lives
from halfop.frame.errors import TransientError
from halfop.landing.erased import may_be_erased, near_files, without_erased
from halfop.landing.table_rows import TABLES, RowForm, form_of
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.disk import DataFile, Disk, LocalDisk
from halfop.warehouse.files import WholeFiles
from halfop.warehouse.kernel import KernelWarehouse, files_of
from halfop.warehouse.parquet import arrow_schema, searched
from halfop.warehouse.schema import table
from halfop.warehouse.server_files import ClientDisk
from halfop.warehouse.spark_errors import SPARK_ERRORS, or_else
from halfop.warehouse.splits import ParquetPart, Split
from halfop.warehouse.table_files import STAGING, files_apart, frame_of_files
from halfop.warehouse.tables import Marker, Warehouse
from halfop.warehouse.workers import in_workers

_OURS, _SENT, _ON_CLIENT = "landing-", "sent-", "halfop-landing-"
_OLD = 24 * 3600  # seconds, which no landing takes between two files
Share = TypeVar("Share")
Result = TypeVar("Result")


class Marks(NamedTuple):
    """The mark of an app that a landing has found in a table, and the one that it leaves there."""

    before: int
    after: int


@dataclass(frozen=True)
class Staging(ABC):
    """The folder of a landing's files, which lasts as long as the landing."""

    warehouse: Warehouse
    path: str

    @property
    @abstractmethod
    def disk(self) -> Disk:
        """The folder's file system, for what this process reads and writes in the place of a worker."""

    @property
    @abstractmethod
    def cores(self) -> int:
        """The number of tasks that work at once."""

    def tasks(self, rows: int) -> int:
        """Returns the number of tasks that are to write so many rows."""
        return self.cores

    @abstractmethod
    def work(self, shares: Sequence[Share], do: Callable[[Share, Disk], Result], few: bool) -> list[Result]:
        """Returns the function's results for all shares, in their order; `few`: they are not worth a worker."""

    @abstractmethod
    def frame(self, struct: StructType, files: Sequence[DataFile]) -> DataFrame:
        """Returns the rows of files that have these columns."""

    @abstractmethod
    def remove(self) -> None:
        """Removes the folder with the files that are not part of a table."""

    def append_once(self, name: str, files: Sequence[DataFile], rows: DataFrame | None, app: str, marks: Marks) -> None:
        """Makes the files, and rows beside them, part of a table: once for an app and its mark."""
        kept = self.not_erased(name, files, rows)
        every = self._every(name, files, rows) if kept is None else kept
        if self.warehouse.marker(name, app) != marks.before:  # sending takes long, and no lock keeps others out
            raise TransientError(f"another landing has written to {name} meanwhile: start again, it goes on from there")
        self.warehouse.commit(name, every, Marker(app, marks.after))

    def append(self, name: str, files: Sequence[DataFile]) -> None:
        """Makes the files part of a table; a second call appends them again."""
        kept = self.not_erased(name, files)
        self.warehouse.commit(name, self.rows(name, files) if kept is None else kept)

    def not_erased(self, name: str, files: Sequence[DataFile], rows: DataFrame | None = None) -> DataFrame | None:
        """Returns the rows that nobody has erased; None if these are all for sure, without a look at any."""
        if not files and rows is None:
            return None
        gone = may_be_erased(self.warehouse, name, near_files(files) if rows is None else None)
        return None if gone is None else without_erased(self.warehouse, self._every(name, files, rows), gone)

    def _every(self, name: str, files: Sequence[DataFile], rows: DataFrame | None) -> DataFrame:
        of_files = self.rows(name, files)
        return of_files if rows is None else of_files.unionByName(self.warehouse.in_form(name, rows))

    def rows(self, name: str, files: Sequence[DataFile]) -> DataFrame:
        """Returns the rows of files that have a table's columns."""
        return self.frame(table(name).struct, files)


@dataclass(frozen=True)
class BesideTables(Staging):
    """A folder of the warehouse. Spark reads the files and writes the table only if nothing else may."""

    warehouse: KernelWarehouse

    @cached_property
    def disk(self) -> Disk:
        files = self.warehouse.files
        return LocalDisk() if files.local(self.path) is not None else WholeFiles(files)

    @property
    def cores(self) -> int:
        return int(self.warehouse.spark.sparkContext.defaultParallelism)

    def tasks(self, rows: int) -> int:
        return max(self.cores, self.warehouse.tasks(rows))

    def work(self, shares: Sequence[Share], do: Callable[[Share, Disk], Result], few: bool) -> list[Result]:
        return [do(share, self.disk) for share in shares] if few else in_workers(self.warehouse, shares, do)

    def frame(self, struct: StructType, files: Sequence[DataFile]) -> DataFrame:
        return frame_of_files(self.warehouse, struct, files)

    def remove(self) -> None:
        self.warehouse.files.remove(self.path)

    def append_once(self, name: str, files: Sequence[DataFile], rows: DataFrame | None, app: str, marks: Marks) -> None:
        warehouse = self.warehouse
        if (kept := self.not_erased(name, files, rows)) is not None:
            files, rows = [], kept
        if not warehouse.takes_files(name):
            super().append_once(name, files, rows, app, marks)
            return
        added = self._moved(name, files)
        if rows is not None:
            added += files_apart(warehouse, name, rows, f"{self.path}/apart-{uuid.uuid4().hex}")
        warehouse.commit_files(name, added, Marker(app, marks.after))

    def append(self, name: str, files: Sequence[DataFile]) -> None:
        if (kept := self.not_erased(name, files)) is not None:
            self.warehouse.commit(name, kept)
        elif self.warehouse.takes_files(name):
            self.warehouse.commit_files(name, self._moved(name, files))
        else:
            super().append(name, files)

    def _moved(self, name: str, files: Sequence[DataFile]) -> list[DataFile]:
        folder, move = self.warehouse.path(name), self.warehouse.files.move
        return [replace(file, path=move(file.path, folder)) for file in files]


@dataclass(frozen=True)
class OnClient(Staging):
    """A folder on this machine's disk, whose files only this process writes and reads: no server sees it."""

    warehouse: SparkWarehouse
    cores = 1

    @cached_property
    def disk(self) -> Disk:
        return ClientDisk(self.warehouse.spark, self.path)

    def work(self, shares: Sequence[Share], do: Callable[[Share, Disk], Result], few: bool) -> list[Result]:
        threads = pa.cpu_count()
        try:
            return [do(share, self.disk) for share in shares]
        finally:
            pa.set_cpu_count(threads)  # a worker takes one

    def frame(self, struct: StructType, files: Sequence[DataFile]) -> DataFrame:
        schema = arrow_schema(struct)
        parts = (ParquetPart(self.disk, Split(file.path, 0, file.size), schema) for file in files)
        rows = self.warehouse.sent(schema, (b for part in parts for b in part.batches()), self._sent)
        return self.warehouse.stage.take(rows)

    @property
    def _sent(self) -> str:
        return f"{STAGING}/{_SENT}{Path(self.path).name}"

    def remove(self) -> None:
        rmtree(self.path)
        with or_else("emptying what was sent", *SPARK_ERRORS):
            self.warehouse.forget(self._sent)


@contextmanager
def staging(warehouse: Warehouse) -> Iterator[Staging]:
    """A folder that lasts as long as the block. Removes what killed landings left; hold the lock of landings."""
    remove_left(warehouse)
    made = new_folder(warehouse)
    try:
        yield made
    finally:
        made.remove()


def new_folder(warehouse: Warehouse) -> Staging:
    """A new folder for files of a landing that do not belong to a table yet; whoever asks for it removes it."""
    if isinstance(warehouse, SparkWarehouse):
        return OnClient(warehouse, tempfile.mkdtemp(prefix=_ON_CLIENT))
    store = files_of(warehouse, "a landing")
    return BesideTables(store, store.files.qualified(store.path(f"{STAGING}/{_OURS}{uuid.uuid4().hex}")))


def remove_left(warehouse: Warehouse) -> None:
    """Removes what dead landings have left. Elsewhere than on a local disk others may land now: it must be old.

    So must be what clients of Spark Connect have sent: no lock keeps them out.
    """
    old = time.time() - _OLD
    if not isinstance(warehouse, KernelWarehouse):
        for folder in Path(tempfile.gettempdir()).glob(f"{_ON_CLIENT}*"):
            with suppress(OSError):  # another user's
                if folder.stat().st_mtime < old:
                    rmtree(folder)
        return
    files, top = warehouse.files, warehouse.path(STAGING)
    local, before = files.local(top) is not None, old * 1_000
    for left in files.folders(top):
        is_ours = left.startswith(_OURS)
        if (is_ours and local) or ((is_ours or left.startswith(_SENT)) and files.last_change(f"{top}/{left}") < before):
            files.remove(f"{top}/{left}")


def forms(lives: Lives, source: str, landed_at: int) -> dict[str, RowForm]:
    """The forms of rows by their kind."""
    return {kind: form_of(name, lives, source, landed_at) for kind, name in TABLES.items()}


def searched_columns() -> Mapping[str, Sequence[str]]:
    """The columns of each kind whose bounds the tables keep."""
    return {kind: searched(table(name)) for kind, name in TABLES.items()}
