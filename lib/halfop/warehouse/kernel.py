"""Tables as files: read and written by this process if their rows are few, else by Spark, with Delta Kernel's log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from halfop.frame.errors import UsageError
from halfop.warehouse.connector import Connector
from halfop.warehouse.delta_log import DeltaLog
from halfop.warehouse.disk import DataFile, Listed
from halfop.warehouse.files import Files, refuse_unsafe
from halfop.warehouse.growth import as_it_is
from halfop.warehouse.parquet import ParquetReader, UnreadableFile, write_files
from halfop.warehouse.reading import ANY, FewRows, TableFiles, limits, rows_of
from halfop.warehouse.rows import FoundRows, Rows, frame_of
from halfop.warehouse.schema import TableSpec, table
from halfop.warehouse.spark_errors import READ_ERRORS, or_else
from halfop.warehouse.tables import NO_TABLE, AlreadyWrittenError, Marker, Warehouse, is_topic, no_rows, spec_of
from halfop.warehouse.where import Where, equal

_FEWEST_ROWS_A_TASK, _MOST_ROWS_A_TASK = 50_000, 1_000_000
_MOST_BYTES_A_TASK = 256 << 20


def files_of(warehouse: Warehouse, what: str) -> KernelWarehouse:
    """Returns a warehouse whose files this process reaches. Raises UsageError if only Spark can reach them."""
    if not isinstance(warehouse, KernelWarehouse):
        raise UsageError(
            f"{what} works on files, which Spark Connect does not show: it needs a Spark of its own (no --remote)"
        )
    return warehouse


@dataclass(frozen=True)
class KernelWarehouse(Warehouse):
    """A warehouse in a file system that this process and Spark's workers reach.

    What takes more than files to read or write is left to Delta's connector.
    """

    _made: set[str] = field(default_factory=set, repr=False)

    @cached_property
    def log(self) -> DeltaLog:
        return DeltaLog(self.spark, self.files, self.touched)

    @cached_property
    def connector(self) -> Connector:
        return Connector(self.spark, self.log)

    @cached_property
    def _few_rows(self) -> FewRows:
        return FewRows(self.log, ParquetReader(self.files))

    @cached_property
    def files(self) -> Files:
        return Files(self.spark, self.root)

    def uri(self, name: str) -> str:
        return self.files.qualified(self.path(name))

    def has(self, file: str) -> bool:
        return self.files.size(self.path(file)) is not None

    def version(self, name: str) -> int:
        if (found := self.log.version(self.path(name))) == NO_TABLE and self.files.is_local:
            self.files.size(f"{self.path(name)}/_delta_log")  # raises if Hadoop, which may not look there, saw nothing
        return found

    def keeps(self, name: str, version: int) -> bool:
        return self.log.keeps(self.path(name), version)

    def properties(self, name: str, version: int | None = None) -> Mapping[str, str]:
        return self.log.properties(self.path(name), version)

    def marker(self, name: str, app: str) -> int:
        return self.log.marker(self.path(name), app)

    def holds(self, name: str, run_id: int) -> bool:
        files = self.log.data_files(self.path(name), None, run_id)
        if files is None:
            rows = self.connector.read_as_it_is(self.path(name))
            return not rows.where(equal("run_id", run_id).column(self.schema(name))).isEmpty()
        return files != []

    def first_removal(self, name: str, after: int, upto: int) -> int | None:
        return self.log.first_removal(self.path(name), after, upto)

    def listed(self, name: str, version: int | None = None) -> Sequence[Listed]:
        return self.log.files(self.path(name), version, None) or []

    def spec(self, name: str) -> TableSpec:
        snapshot = self.log.snapshot(self.path(name)) if is_topic(name) else None
        return spec_of(name) if snapshot is None else as_it_is(spec_of(name), snapshot.struct)

    # ---- reads ----

    def found(self, name: str, version: int | None = None, where: Where | None = None) -> FoundRows:
        """The rows are here if the files that may hold them are few."""
        if version == NO_TABLE or (version is None and self.version(name) == NO_TABLE):
            return FoundRows(no_rows(name), 0)
        spec = self.spec(name)
        found = self._few_rows.of(self.path(name), spec, version, where)
        if found is not None:
            return found
        files = self._files(name).of(version, where)
        if files is None:
            rows = self.connector.read(self.path(name), spec, version)
        else:
            rows = rows_of(self.spark, spec, files)
        rows = rows if where is None else rows.where(where.column(spec.struct))
        return FoundRows(rows, None if files is None else len(files))

    def added(self, name: str, before: int, upto: int) -> Rows:
        """They are in the files that they landed in.

        If a VACUUM has removed those files after an OPTIMIZE wrote others, the rows are found by the version that each
        row carries. No landing table: all its rows come.
        """
        if before == upto:
            return no_rows(name)
        if before == NO_TABLE:
            return self.found(name, upto).rows
        with or_else(f"reading {name}", *READ_ERRORS, UnreadableFile):  # its log, or files, may be cleaned up
            found = self._few_rows.added(self.path(name), self.spec(name), before, upto)
            if found is not None:
                return found.rows
            files = TableFiles(self.log, self.path(name), self.spec(name), ANY).added(before, upto)
            if files is not None:
                return rows_of(self.spark, self.spec(name), files)
        return self.connector.added(self.path(name), self.spec(name), before, upto)

    def found_before(self, name: str, before: int, upto: int, where: Where) -> FoundRows:
        with or_else(f"reading {name}", *READ_ERRORS):  # its log, or files, may be cleaned up
            if not self.replaced(name, before, upto):
                return self.found(name, before, where)
        spec = self.spec(name)
        rows = self.connector.before(self.path(name), spec, before, upto)
        return FoundRows(rows.where(where.column(spec.struct)), None)

    def _files(self, name: str) -> TableFiles:
        return TableFiles(self.log, self.path(name), self.spec(name), limits(self.files.local(self.root) is not None))

    def few_of_files(self, files: Sequence[Listed], struct: StructType) -> pa.Table | None:
        """Returns the rows of Parquet files that are no table's; None if they are not few."""
        return self._few_rows.of_files(files, struct)

    # ---- tasks ----

    def tasks(self, rows: int) -> int:
        """Returns the number of tasks to write so many rows: few, but every core is busy in each round."""
        cores = int(self.spark.sparkContext.defaultParallelism)
        most = math.ceil(rows / _MOST_ROWS_A_TASK / cores) * cores
        return max(1, min(most, math.ceil(rows / _FEWEST_ROWS_A_TASK)))

    def tasks_for(self, files: Sequence[Listed]) -> int:
        """Returns the number of tasks to read these files."""
        cores = int(self.spark.sparkContext.defaultParallelism)
        return max(1, math.ceil(sum(file.size for file in files) / _MOST_BYTES_A_TASK / cores)) * cores

    # ---- writes ----

    def make(self, *names: str) -> None:
        missing = [name for name in names if name not in self._made]
        with ThreadPoolExecutor(max(len(missing), 1)) as pool:  # they wait for the log's files more than they work
            list(pool.map(self._complete, missing))
        self._made.update(missing)

    def _complete(self, name: str) -> None:
        if self.log.complete(self.path(name), table(name)) is None:
            refuse_unsafe(self.spark, self.files, self.root)
            self.log.create(self.path(name), table(name))

    def commit(
        self,
        name: str,
        rows: Rows | Sequence[Mapping[str, object]],
        marker: Marker | None = None,
        spec: TableSpec | None = None,
    ) -> None:
        """This process writes rows that are here, Spark others: a frame's rows are here in a stage that is."""
        if isinstance(rows, Sequence) and not rows and marker is None:
            return
        if spec is not None:
            self.log.complete(self.path(name), spec)
        found = self.given(name, rows)
        if isinstance(found, pa.Table) and self.takes_files(name):
            if marker is None or self.marker(name, marker.app) < marker.number:
                self.commit_files(name, self.files_from(name, found), marker)
            return
        frame = self.in_form(name, frame_of(self.spark, found)) if isinstance(found, pa.Table) else found
        self.connector.commit(self.path(name), self.spec(name), frame, marker)

    def commit_files(
        self, name: str, files: Sequence[DataFile], marker: Marker | None = None, spec: TableSpec | None = None
    ) -> None:
        """Makes files in the table's folder part of it. With a marker once, and into a form, as by `commit`.

        If Kernel cannot write the table, Spark appends the files' rows, and the files are removed.
        """
        path, spec = self.path(name), spec or self.spec(name)
        if self.log.takes_files(path, spec):
            with suppress(AlreadyWrittenError):
                self.log.commit_files(path, spec, files, marker)
            return
        self.log.complete(path, spec)
        rows = rows_of(self.spark, spec, [Listed(file.path, file.size, file.partition) for file in files])
        self.connector.commit(path, spec, rows, marker)
        for file in files:
            self.files.remove(file.path)

    def commit_first(self, name: str, rows: pa.Table, marker: Marker) -> None:
        """Appends rows that are here. Raises AlreadyWrittenError if another call has made the marker's commit."""
        path, spec = self.path(name), self.spec(name)
        if self.takes_files(name):
            self.log.commit_files(path, spec, self.files_from(name, rows), marker)
        elif not self.connector.commit_first(path, self.in_form(name, frame_of(self.spark, rows)), marker):
            raise AlreadyWrittenError(path)

    def compact(self, name: str, version: int) -> None:
        """Leaves later files alone.

        It calls the class that OPTIMIZE calls: the statement takes the newest version, and all of it if there is no
        partition.
        """
        jvm: Any = self.spark._jvm
        delta, scala, session = jvm.org.apache.spark.sql.delta, jvm.scala, self.spark._jsparkSession
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)  # a thread of a pool has none
        none, nothing = scala.Option.empty(), getattr(getattr(scala.collection.immutable, "Nil$"), "MODULE$")
        snapshot = delta.DeltaLog.forTable(session, self.path(name)).getSnapshotAt(version, none, none, False)
        context = delta.commands.DeltaOptimizeContext(none, none, none, none, False)
        delta.commands.OptimizeExecutor(session, snapshot, none, nothing, nothing, False, context).optimize()

    def replace_rows(self, name: str, version: int, rows: Sequence[Mapping[str, object]]) -> bool:
        """Puts these rows in the place of all that a version has; returns whether no other commit came before."""
        files = self.files_from(name, self.given(name, rows))
        return self.log.replace_files(self.path(name), self.spec(name), version, files)

    def rows_of(self, name: str, frame: DataFrame) -> Rows:
        """They are there if only Spark may write the table."""
        return super().rows_of(name, frame) if self.takes_files(name) else self.in_form(name, frame)

    def files_from(self, name: str, rows: pa.Table) -> list[DataFile]:
        """Writes the rows to files in the table's folder; a commit makes them part of it."""
        return write_files(self.files, self.path(name), self.spec(name), rows)

    def takes_files(self, name: str) -> bool:
        """Returns whether this process may write the table's files."""
        return self.log.takes_files(self.path(name), self.spec(name))
