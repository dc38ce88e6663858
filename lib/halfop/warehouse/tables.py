"""The warehouse: tables by name, made from their schemas, read at a version, appended to at most once a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from halfop.frame.errors import LostRows
from halfop.frame.lineage import Touched
from halfop.warehouse.delta_log import AlreadyWrittenError, DeltaLog
from halfop.warehouse.disk import DataFile, Listed
from halfop.warehouse.files import Files, refuse_unsafe
from halfop.warehouse.in_memory import as_arrow, frame_of
from halfop.warehouse.parquet import ParquetReader, UnreadableFile, arrow_schema, write_files
from halfop.warehouse.reading import ANY, FewRows, TableFiles, limits, rows_of
from halfop.warehouse.schema import TableSpec, table
from halfop.warehouse.session import few_rows_settings
from halfop.warehouse.spark_errors import READ_ERRORS, SPARK_ERRORS, or_else, overtaken
from halfop.warehouse.where import Where, equal

NO_TABLE = -1
_FEWEST_ROWS_A_TASK, _MOST_ROWS_A_TASK = 50_000, 1_000_000
_MOST_BYTES_A_TASK = 256 << 20


class Selected(NamedTuple):
    """Rows of a table, and the number of files that may hold them; None if nobody has counted them."""

    rows: DataFrame
    files: int | None


@dataclass(frozen=True)
class Warehouse:
    spark: SparkSession
    root: str
    touched: Touched = field(default_factory=Touched, repr=False)
    _made: set[str] = field(default_factory=set, repr=False)

    @cached_property
    def log(self) -> DeltaLog:
        return DeltaLog(self.spark, self.files, self.touched)

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

    def schema(self, name: str) -> StructType:
        return spec_of(name).struct

    def declared(self, name: str) -> dict[str, str]:
        """The table's properties as its schema declares them."""
        return spec_of(name).properties

    def read(self, name: str, version: int | None = None, where: Where | None = None) -> DataFrame:
        """The table's rows, at a version, that meet the condition; none if there is no table (NO_TABLE).

        If the files that may hold them are few, the rows are read here and now, and are in memory; else Spark reads
        them. Columns that the schema got later are null.
        """
        return self._select(name, version, where).rows

    def select(self, name: str, version: int | None = None, where: Where | None = None) -> Selected:
        """The rows as `read` gives them, with the number of files that may hold them."""
        found = self._select(name, version, where)
        return found if found.files is not None else found._replace(files=len(found.rows.inputFiles()))

    def _select(self, name: str, version: int | None, where: Where | None) -> Selected:
        if version == NO_TABLE or (version is None and self.version(name) == NO_TABLE):
            return Selected(self.empty(name), 0)
        spec = spec_of(name)
        found = self._few_rows.of(self.path(name), spec, version, where)
        if found is not None:
            return Selected(frame_of(self.spark, found.rows), found.files)
        files = self._files(name).of(version, where)
        rows = self._by_spark(name, version) if files is None else rows_of(self.spark, spec, files)
        rows = rows if where is None else rows.where(where.column(spec.struct))
        return Selected(rows, None if files is None else len(files))

    @contextmanager
    def for_few_rows(self) -> Iterator[None]:
        """Spark's settings for rows in memory while the block runs, or until a read of it meets more."""
        with few_rows_settings(self.spark).held():
            yield

    def _files(self, name: str) -> TableFiles:
        return TableFiles(self.log, self.path(name), spec_of(name), limits(self.files.local(self.root) is not None))

    def _by_spark(self, name: str, version: int | None = None, **options: str) -> DataFrame:
        few_rows_settings(self.spark).leave()
        self.log.was_read(self.path(name), version)
        options |= {} if version is None else {"versionAsOf": str(version)}
        rows = self.spark.read.format("delta").options(**options).load(self.path(name))
        later = {f.name: F.lit(None).cast(f.dataType) for f in spec_of(name).struct if f.name not in rows.columns}
        return rows.withColumns(later) if later else rows

    def few_of_files(self, files: Sequence[Listed], struct: StructType) -> pa.Table | None:
        """The rows of Parquet files that are no table's; None if they are not few."""
        return self._few_rows.of_files(files, struct)

    def empty(self, name: str) -> DataFrame:
        """No rows: Spark's optimizer drops all that joins with them."""
        return frame_of(self.spark, arrow_schema(spec_of(name).struct).empty_table())

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

    def landed_between(self, name: str, before: int, upto: int) -> DataFrame:
        """The rows that landed after version `before`, up to and with version `upto`.

        They are in the files that they landed in. If a VACUUM has removed those files after an OPTIMIZE wrote others,
        the rows are found by the version that each row carries. No landing table: all its rows come.
        """
        if before == upto:
            return self.empty(name)
        if before == NO_TABLE:
            return self.read(name, upto)
        with or_else(f"reading {name}", *READ_ERRORS, UnreadableFile):  # its log, or files, may be cleaned up
            found = self._few_rows.added(self.path(name), spec_of(name), before, upto)
            if found is not None:
                return frame_of(self.spark, found.rows)
            files = TableFiles(self.log, self.path(name), spec_of(name), ANY).added(before, upto)
            if files is not None:
                return rows_of(self.spark, spec_of(name), files)
        return self._landed_by_spark(name, before, upto)

    def _landed_by_spark(self, name: str, before: int, upto: int) -> DataFrame:
        """What landed in a table that takes more than its files to read: by its change feed, if it still has that."""
        with or_else(f"reading {name}", *SPARK_ERRORS):  # its log, or files, may be cleaned up
            if self.log.only_appends(self.path(name), before, upto):
                feed = {"readChangeFeed": "true", "startingVersion": str(before + 1), "endingVersion": str(upto)}
                return self._by_spark(name, None, **feed).where("_change_type = 'insert'").select(*spec_of(name).names)
        versions = F.col("_metadata.row_commit_version") if table(name).landing else F.lit(upto)
        return self._by_spark(name, upto).where((versions > before) & (versions <= upto))

    def landed_until(self, name: str, before: int, upto: int, where: Where) -> Selected:
        """The rows up to version `before` that meet the condition, as version `upto` has them; and their files."""
        with or_else(f"reading {name}", *READ_ERRORS):  # its log, or files, may be cleaned up
            if not self.log.takes_files_away(self.path(name), before, upto):
                return self.select(name, before, where)
        rows = self._by_spark(name, upto).where(where.column(spec_of(name).struct))
        rows = rows.where(F.col("_metadata.row_commit_version") <= before)
        return Selected(rows, len(rows.inputFiles()))

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

    def append(self, name: str, rows: DataFrame | pa.Table) -> None:
        """Appends rows plainly, for landing: a row that lands twice counts once by the rules, not by the write."""
        if isinstance(rows, pa.Table):
            if self.takes_files(name):
                self._append_here(name, rows)
                return
            rows = frame_of(self.spark, rows)
        rows = self.in_form(name, rows)
        few = self.few(name, rows)
        if few is None:
            rows.write.format("delta").mode("append").save(self.path(name))
            self.log.was_written(self.path(name), spec_of(name))
        else:
            self._append_here(name, few)

    def _append_here(self, name: str, rows: pa.Table) -> None:
        self.log.append_files(self.path(name), spec_of(name), self.files_of(name, rows))

    def append_once(self, name: str, rows: DataFrame, app: str, run_id: int) -> None:
        """Appends a run's rows. A second write under the same app and run, now or ever, changes nothing."""
        rows = self.in_form(name, rows)
        few = self.few(name, rows)
        if few is not None:
            self.append_arrow_once(name, few, app, run_id)
            return
        try:
            rows.write.format("delta").mode("append").options(txnAppId=app, txnVersion=run_id).save(self.path(name))
            self.log.was_written(self.path(name), spec_of(name))
        except SPARK_ERRORS as error:
            if not overtaken(error) or self.marker(name, app) < run_id:
                raise

    def append_rows(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Appends a few rows plainly; columns that are not given are null."""
        if not rows:
            return
        self.append(name, pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema(self.schema(name))))

    def replace_rows(self, name: str, version: int, rows: Sequence[Mapping[str, object]]) -> bool:
        """Puts these rows in the place of all that a version has; returns whether no other commit came before."""
        found = pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema(self.schema(name)))
        return self.log.replace_files(self.path(name), spec_of(name), version, self.files_of(name, found))

    def append_arrow_once(self, name: str, rows: pa.Table, app: str, run_id: int) -> None:
        """The same for rows that are here."""
        if not self.log.takes_files(self.path(name), spec_of(name)):
            self.append_once(name, frame_of(self.spark, rows), app, run_id)
        elif self.marker(name, app) < run_id:
            with suppress(AlreadyWrittenError):
                self.log.commit_files(self.path(name), spec_of(name), app, run_id, self.files_of(name, rows))

    def files_of(self, name: str, rows: pa.Table) -> list[DataFile]:
        """Writes the rows to files in the table's folder; a commit makes them part of it."""
        return write_files(self.files, self.path(name), spec_of(name), rows)

    def in_form(self, name: str, rows: DataFrame) -> DataFrame:
        """The table's columns, with those that are made of others."""
        lacking = {c.name: c.made for c in spec_of(name).columns if c.made and c.name not in rows.columns}
        made = {name: F.try_element_at(of, F.lit(entry)) for name, (of, entry) in lacking.items()}
        return rows.withColumns(made).select(*spec_of(name).names)

    def few(self, name: str, rows: DataFrame) -> pa.Table | None:
        """The rows, computed now, if they are in memory and this process may write them."""
        return as_arrow(rows, self.schema(name)) if self.takes_files(name) else None

    def takes_files(self, name: str) -> bool:
        """Returns whether this process may write the table's files."""
        return self.log.takes_files(self.path(name), spec_of(name))

    # ---- tables of few rows, without a Spark job ----

    def rows(self, name: str, version: int | None = None, run_id: int | None = None) -> list[dict[str, Any]]:
        """All rows of a small table, or one run's; times with their zone, UTC."""
        return list(self.arrow(name, version, run_id).to_pylist(maps_as_pydicts="strict"))

    def arrow(self, name: str, version: int | None = None, run_id: int | None = None) -> pa.Table:
        """The same as Arrow has them."""
        spec, where = spec_of(name), None if run_id is None else equal("run_id", run_id)
        if version == NO_TABLE or (version is None and self.version(name) == NO_TABLE):
            return arrow_schema(spec.struct).empty_table()
        found = self._few_rows.of(self.path(name), spec, version, where)
        return self.read(name, version, where).toArrow() if found is None else found.rows

    def append_rows_once(self, name: str, rows: Sequence[Mapping[str, object]], app: str, run_id: int) -> None:
        """Appends a few rows of a table that has run_id, once as append_once does."""
        self.append_arrow_once(name, pa.Table.from_pylist(rows, schema=arrow_schema(self.schema(name))), app, run_id)

    def marker(self, name: str, app: str) -> int:
        """The last run that appended to the table under this app id; -1 if none did."""
        return self.log.marker(self.path(name), app)

    def refuse_lost(self, name: str, run_id: int) -> None:
        """Raises LostRows if the rows of a run were removed: RESTORE keeps the marker, not the rows."""
        if self.log.data_files(self.path(name), None, run_id) == []:
            raise LostRows(self.path(name), run_id)


def spec_of(name: str) -> TableSpec:
    return table("real_topic" if name.startswith("topics/") else name)
