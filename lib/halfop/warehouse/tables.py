"""The warehouse: tables by name, made from their schemas, read at a version, appended to at most once a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from halfop.frame.errors import LostRows
from halfop.frame.openlineage import Touched
from halfop.warehouse.connector import Connector, Marker
from halfop.warehouse.delta_log import AlreadyWrittenError, DeltaLog
from halfop.warehouse.disk import DataFile, Listed
from halfop.warehouse.files import Files, refuse_unsafe
from halfop.warehouse.parquet import ParquetReader, UnreadableFile, arrow_schema, write_files
from halfop.warehouse.reading import ANY, FewRows, TableFiles, limits, rows_of
from halfop.warehouse.rows import FoundRows, Rows, Stage, frame_of
from halfop.warehouse.schema import TableSpec, table
from halfop.warehouse.spark_errors import READ_ERRORS, or_else
from halfop.warehouse.where import Where, equal

NO_TABLE = -1
_FEWEST_ROWS_A_TASK, _MOST_ROWS_A_TASK = 50_000, 1_000_000
_MOST_BYTES_A_TASK = 256 << 20


class Selected(NamedTuple):
    """Rows of a table, and the number of files that may hold them."""

    rows: DataFrame
    files: int


@dataclass(frozen=True)
class Warehouse:
    """All tables below a root. `lands_again`: whether a row may be in more than one landing."""

    lands_again: ClassVar[bool] = True
    spark: SparkSession
    root: str
    touched: Touched = field(default_factory=Touched, repr=False)
    _made: set[str] = field(default_factory=set, repr=False)

    @cached_property
    def stage(self) -> Stage:
        """The kind of the work at hand."""
        return Stage(self.spark)

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

    def path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def version(self, name: str) -> int:
        if (found := self.log.version(self.path(name))) == NO_TABLE and self.files.is_local:
            self.files.size(f"{self.path(name)}/_delta_log")  # raises if Hadoop, which may not look there, saw nothing
        return found

    def keeps(self, name: str, version: int) -> bool:
        """Returns whether a version can still be read: log clean-up removes versions of long ago."""
        return self.log.keeps(self.path(name), version)

    def schema(self, name: str) -> StructType:
        return spec_of(name).struct

    def declared(self, name: str) -> dict[str, str]:
        """The table's properties as its schema declares them."""
        return spec_of(name).properties

    # ---- reads: rows of one of both kinds ----

    def found(self, name: str, version: int | None = None, where: Where | None = None) -> FoundRows:
        """The table's rows, at a version, that meet the condition; none if there is no table (NO_TABLE).

        They are here if the files that may hold them are few. Columns that the schema got later are null.
        """
        if version == NO_TABLE or (version is None and self.version(name) == NO_TABLE):
            return FoundRows(no_rows(name), 0)
        spec = spec_of(name)
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
        """The rows that landed after version `before`, up to and with version `upto`.

        They are in the files that they landed in. If a VACUUM has removed those files after an OPTIMIZE wrote others,
        the rows are found by the version that each row carries. No landing table: all its rows come.
        """
        if before == upto:
            return no_rows(name)
        if before == NO_TABLE:
            return self.found(name, upto).rows
        with or_else(f"reading {name}", *READ_ERRORS, UnreadableFile):  # its log, or files, may be cleaned up
            found = self._few_rows.added(self.path(name), spec_of(name), before, upto)
            if found is not None:
                return found.rows
            files = TableFiles(self.log, self.path(name), spec_of(name), ANY).added(before, upto)
            if files is not None:
                return rows_of(self.spark, spec_of(name), files)
        return self.connector.added(self.path(name), spec_of(name), before, upto)

    def found_before(self, name: str, before: int, upto: int, where: Where) -> FoundRows:
        """The rows up to version `before` that meet the condition, as version `upto` has them."""
        with or_else(f"reading {name}", *READ_ERRORS):  # its log, or files, may be cleaned up
            if not self.log.takes_files_away(self.path(name), before, upto):
                return self.found(name, before, where)
        spec = spec_of(name)
        rows = self.connector.before(self.path(name), spec, before, upto)
        return FoundRows(rows.where(where.column(spec.struct)), None)

    # ---- reads as frames of the stage ----

    def for_few_rows(self) -> AbstractContextManager[None]:
        """A stage of work that is here until it takes rows that are there."""
        return self.stage.begun()

    def read(self, name: str, version: int | None = None, where: Where | None = None) -> DataFrame:
        """The rows that `found` returns."""
        return self.stage.take(self.found(name, version, where).rows)

    def select(self, name: str, version: int | None = None, where: Where | None = None) -> Selected:
        """Returns these rows with the number of files that may hold them."""
        return self._selected(self.found(name, version, where))

    def landed_between(self, name: str, before: int, upto: int) -> DataFrame:
        """The rows that `added` returns."""
        return self.stage.take(self.added(name, before, upto))

    def landed_until(self, name: str, before: int, upto: int, where: Where) -> Selected:
        """The rows that `found_before` returns, and the number of files that may hold them."""
        return self._selected(self.found_before(name, before, upto, where))

    def _selected(self, found: FoundRows) -> Selected:
        rows = self.stage.take(found.rows)
        return Selected(rows, len(rows.inputFiles()) if found.files is None else found.files)

    def _files(self, name: str) -> TableFiles:
        return TableFiles(self.log, self.path(name), spec_of(name), limits(self.files.local(self.root) is not None))

    def few_of_files(self, files: Sequence[Listed], struct: StructType) -> pa.Table | None:
        """The rows of Parquet files that are no table's; None if they are not few."""
        return self._few_rows.of_files(files, struct)

    def empty(self, name: str) -> DataFrame:
        """No rows: Spark's optimizer drops all that joins with them."""
        return frame_of(self.spark, no_rows(name))

    def frame(self, rows: Iterable[Sequence[object]], columns: str) -> DataFrame:
        """A small frame of given values (`columns` as DDL), made without a Python worker."""
        struct = cast(StructType, StructType.fromDDL(columns))
        named = [dict(zip(struct.names, row, strict=True)) for row in rows]
        return self.spark.createDataFrame(pa.Table.from_pylist(named, schema=arrow_schema(struct)))

    def tasks(self, rows: int) -> int:
        """The number of tasks to write so many rows: few, for large files, but every core busy in each round."""
        cores = int(self.spark.sparkContext.defaultParallelism)
        most = math.ceil(rows / _MOST_ROWS_A_TASK / cores) * cores
        return max(1, min(most, math.ceil(rows / _FEWEST_ROWS_A_TASK)))

    def tasks_for(self, files: Sequence[Listed]) -> int:
        """The number of tasks to read these files."""
        cores = int(self.spark.sparkContext.defaultParallelism)
        return max(1, math.ceil(sum(file.size for file in files) / _MOST_BYTES_A_TASK / cores)) * cores

    def make(self, *names: str) -> None:
        """Creates the tables that are missing, and adds columns that an older version of halfop did not know."""
        missing = [name for name in names if name not in self._made]
        with ThreadPoolExecutor(max(len(missing), 1)) as pool:  # they wait for the log's files more than they work
            list(pool.map(self._complete, missing))
        self._made.update(missing)

    def _complete(self, name: str) -> None:
        if self.log.complete(self.path(name), table(name)) is None:
            refuse_unsafe(self.spark, self.files, self.root)
            self.log.create(self.path(name), table(name))

    # ---- writes ----

    def commit(self, name: str, rows: Rows | Sequence[Mapping[str, object]], marker: Marker | None = None) -> None:
        """Appends rows. With a marker once: a second commit with it, now or ever, changes nothing.

        Columns that given mappings lack are null. This process writes rows that are here, Spark others: a frame's rows
        are here in a stage that is (`for_few_rows`).
        """
        if isinstance(rows, Sequence) and not rows and marker is None:
            return
        found = self._given(name, rows)
        if isinstance(found, pa.Table) and self.takes_files(name):
            if marker is None or self.marker(name, marker.app) < marker.number:
                self.commit_files(name, self.files_of(name, found), marker)
            return
        frame = self.in_form(name, frame_of(self.spark, found)) if isinstance(found, pa.Table) else found
        self.connector.commit(self.path(name), spec_of(name), frame, marker)

    def commit_files(self, name: str, files: Sequence[DataFile], marker: Marker | None = None) -> None:
        """Makes files in the table's folder part of it. With a marker once, as by `commit`."""
        with suppress(AlreadyWrittenError):
            self.log.commit_files(self.path(name), spec_of(name), files, marker)

    def commit_first(self, name: str, rows: pa.Table, marker: Marker) -> None:
        """Appends rows that are here. Raises AlreadyWrittenError if another call has made the marker's commit."""
        path, spec = self.path(name), spec_of(name)
        if self.takes_files(name):
            self.log.commit_files(path, spec, self.files_of(name, rows), marker)
        elif not self.connector.commit_first(path, self.in_form(name, frame_of(self.spark, rows)), marker):
            raise AlreadyWrittenError(path)

    def _given(self, name: str, rows: Rows | Sequence[Mapping[str, object]]) -> Rows:
        if isinstance(rows, pa.Table):
            return rows
        if isinstance(rows, DataFrame):
            return self.rows_of(name, rows)
        return pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema(self.schema(name)))

    def replace_rows(self, name: str, version: int, rows: Sequence[Mapping[str, object]]) -> bool:
        """Puts these rows in the place of all that a version has; returns whether no other commit came before."""
        files = self.files_of(name, self._given(name, rows))
        return self.log.replace_files(self.path(name), spec_of(name), version, files)

    def rows_of(self, name: str, frame: DataFrame) -> Rows:
        """A frame's rows in the table's form, of the stage's kind; there if only Spark may write the table."""
        frame = self.in_form(name, frame)
        return self.stage.rows(frame, self.schema(name)) if self.takes_files(name) else frame

    def files_of(self, name: str, rows: pa.Table) -> list[DataFile]:
        """Writes the rows to files in the table's folder; a commit makes them part of it."""
        return write_files(self.files, self.path(name), spec_of(name), rows)

    def in_form(self, name: str, rows: DataFrame) -> DataFrame:
        """The table's columns, with those that are made of others."""
        lacking = {c.name: c.made for c in spec_of(name).columns if c.made and c.name not in rows.columns}
        made = {name: F.try_element_at(of, F.lit(entry)) for name, (of, entry) in lacking.items()}
        return rows.withColumns(made).select(*spec_of(name).names)

    def takes_files(self, name: str) -> bool:
        """Returns whether this process may write the table's files."""
        return self.log.takes_files(self.path(name), spec_of(name))

    # ---- tables of few rows, without a Spark job ----

    def rows(self, name: str, version: int | None = None, run_id: int | None = None) -> list[dict[str, Any]]:
        """All rows of a small table, or one run's; times with their zone, UTC."""
        return list(self.arrow(name, version, run_id).to_pylist(maps_as_pydicts="strict"))

    def arrow(self, name: str, version: int | None = None, run_id: int | None = None) -> pa.Table:
        """Returns these rows as an Arrow table."""
        where = None if run_id is None else equal("run_id", run_id)
        found = self.found(name, version, where).rows
        return found if isinstance(found, pa.Table) else self.stage.take(found).toArrow()

    def marker(self, name: str, app: str) -> int:
        """The last run that appended to the table under this app id; -1 if none did."""
        return self.log.marker(self.path(name), app)

    def refuse_lost(self, name: str, run_id: int) -> None:
        """Raises LostRows if the rows of a run were removed: RESTORE keeps the marker, not the rows."""
        if self.log.data_files(self.path(name), None, run_id) == []:
            raise LostRows(self.path(name), run_id)


def spec_of(name: str) -> TableSpec:
    return table("real_topic" if name.startswith("topics/") else name)


def no_rows(name: str) -> pa.Table:
    """Returns no rows of a table, with its columns."""
    return arrow_schema(spec_of(name).struct).empty_table()
