"""Delta's log as Spark's public API shows it: no JVM, no file of this machine, so that it works through Spark Connect.

A table's version and properties are SQL's to say. Markers of written runs and removals of files are actions of commits,
which Spark reads as the JSON and Parquet files that Delta's protocol says they are.
"""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from halfop.frame.openlineage import TableColumn, Touched, WrittenTable
from halfop.warehouse.files import without_patterns
from halfop.warehouse.growth import lacking
from halfop.warehouse.schema import CHANGE_FEED, TableSpec, delta_table, literal
from halfop.warehouse.spark_errors import overtaken, removed_file
from halfop.warehouse.tables import refuse_forgetful

NO_VERSION = -1
_MADE_MEANWHILE = (
    "DELTA_TABLE_ALREADY_EXISTS",
    "TABLE_OR_VIEW_ALREADY_EXISTS",
    "FIELD_ALREADY_EXISTS",
    "COLUMN_ALREADY_EXISTS",
)
_NO_TABLE = (
    "DELTA_TABLE_ONLY_OPERATION",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
    "PATH_NOT_FOUND",
)
# N.checkpoint.parquet, one of several parts, or one with a name of its own (V2), whose top file has all but files.
_CHECKPOINT = re.compile(
    r"/(?P<version>\d{20})\.checkpoint(\.\d{10}\.(?P<parts>\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)$"
)
_FEW_COMMITS = 20  # more of them are read from a checkpoint on
_LATELY = 3600  # seconds, in which no clean-up removes a commit that nobody has seen
_ACTIONS = (
    "txn STRUCT<appId: STRING, version: BIGINT>, remove STRUCT<deletionTimestamp: BIGINT>, metaData STRUCT<id: STRING>"
)
# A server may give new tables deletion vectors, which take Delta's reader version 3.
_FOR_OLD_READERS = {"delta.enableDeletionVectors": "false"}
_CHANGED = ""  # a change of the table itself, of its properties for instance, counts as an app of this name
_MARKS = (f"coalesce(txn.appId, '{_CHANGED}') AS app", "coalesce(txn.version, 0L) AS number")


class Markers(NamedTuple):
    """The greatest number of each app at a version."""

    version: int
    numbers: Mapping[str, int]


class TableSize(NamedTuple):
    """The files of a table at a version, and their bytes."""

    version: int
    files: int
    bytes: int


@dataclass(frozen=True)
class SparkLog:
    """The logs of tables, by their paths."""

    spark: SparkSession
    touched: Touched
    _sizes: dict[str, TableSize] = field(default_factory=dict, repr=False)
    _markers: dict[str, Markers] = field(default_factory=dict, repr=False)
    _versions: dict[str, tuple[int, float]] = field(default_factory=dict, repr=False)

    def version(self, path: str) -> int:
        """Returns the table's newest version; -1 if there is no table.

        To ask whether a file is there takes no job, unlike a look into the history.
        """
        version, looked = self._versions.get(path, (NO_VERSION, -math.inf))
        for _ in range(_FEW_COMMITS if time.monotonic() - looked < _LATELY else 0):
            if not self.has(_commit(path, version)):
                break
            if not self.has(_commit(path, version + 1)):
                return version
            version += 1
            self._versions[path] = version, looked
        version = self._described(path)
        if version != NO_VERSION:
            self._versions[path] = version, time.monotonic()
        return version

    def _described(self, path: str) -> int:
        try:
            newest = self.spark.sql(f"DESCRIBE HISTORY {delta_table(path)} LIMIT 1").select("version").collect()
        except PySparkException as error:
            if is_missing(error):
                return NO_VERSION
            raise
        return int(newest[0][0])

    def has(self, path: str) -> bool:
        """Returns whether there is such a file. No row is read: Spark gives none of an empty file."""
        try:
            _ = self.spark.read.format("binaryFile").load(without_patterns(path)).columns
        except PySparkException as error:
            if is_missing(error):
                return False
            raise
        return True

    def size(self, path: str, version: int) -> TableSize:
        """Returns how large the table is, at that version or a later one."""
        known = self._sizes.get(path)
        if known is None or known.version < version:
            about = self.spark.sql(f"DESCRIBE DETAIL {delta_table(path)}").select("numFiles", "sizeInBytes").collect()
            known = self._sizes[path] = TableSize(version, *about[0])
        return known

    def keeps(self, path: str, version: int) -> bool:
        """Returns whether a version can still be read."""
        try:
            _ = self.spark.read.format("delta").option("versionAsOf", version).load(path).columns
        except PySparkException as error:
            if removed_file(error) is None and not is_missing(error):
                raise
            return False
        return True

    def properties(self, path: str) -> dict[str, str]:
        """Returns the table's properties; none if there is no table."""
        try:
            found = self.spark.sql(f"SHOW TBLPROPERTIES {delta_table(path)}").collect()
        except PySparkException as error:
            if is_missing(error):
                return {}
            raise
        return {row["key"]: row["value"] for row in found}

    def marker(self, path: str, app: str) -> int:
        """Returns the last run that wrote under this app id; -1 if none did."""
        version = self.version(path)
        if version == NO_VERSION:
            return NO_VERSION
        known = self._markers.get(path)
        if known is None or known.version != version:
            numbers = self._numbers(path, version, known)
            if numbers.pop(_CHANGED, None) is not None or known is None:
                refuse_forgetful(path, self.properties(path))
            known = self._markers[path] = Markers(version, numbers)
        return known.numbers.get(app, NO_VERSION)

    def _numbers(self, path: str, version: int, known: Markers | None) -> dict[str, int]:
        """The numbers at a version: those of a checkpoint, or known ones, with what the commits after it say."""
        before, numbers = (NO_VERSION, {}) if known is None else (known.version, dict(known.numbers))
        if (known is None or version - before > _FEW_COMMITS) and (
            checkpoint := self._checkpoint(path, version)
        ) is not None:
            before, files = checkpoint
            numbers = _greatest(self._read(files))
        later = _greatest(self._commits(path, before, version))
        return numbers | {app: max(number, numbers.get(app, NO_VERSION)) for app, number in later.items()}

    def _checkpoint(self, path: str, version: int) -> tuple[int, list[str]] | None:
        """The newest checkpoint up to a version: its own, and its files; None if there is none."""
        try:
            files = self.spark.read.format("binaryFile").load(f"{without_patterns(path)}/_delta_log/*.checkpoint*")
            listed = files.select("path").collect()
        except PySparkException as error:
            if is_missing(error):
                return None
            raise
        found = defaultdict[int, dict[str, list[str]]](lambda: defaultdict(list))
        for file in sorted(row["path"] for row in listed):
            if name := _CHECKPOINT.search(file):
                found[int(name["version"])][name["parts"] or file].append(file)
        whole = {
            number: files
            for number, kinds in found.items()
            for parts, files in kinds.items()
            if number <= version and (not parts.isdigit() or len(files) == int(parts))
        }
        return max(whole.items(), default=None)

    def _commits(self, path: str, after: int, upto: int) -> DataFrame | None:
        return self._read([_commit(path, n) for n in range(after + 1, upto + 1)])

    def _read(self, files: Sequence[str]) -> DataFrame | None:
        """Their actions. A line that is no JSON ends the read: what it says would be missed."""
        if not files:
            return None
        form = "json" if files[0].endswith(".json") else "parquet"
        read = self.spark.read.schema(_ACTIONS).option("mode", "FAILFAST").format(form)
        return read.load(list(map(without_patterns, files)))

    # ---- commits of the past ----

    def only_appends(self, path: str, after: int, upto: int) -> bool:
        """Returns whether the commits after version `after`, up to `upto`, only added files, with a change feed."""
        if self.properties(path).get(CHANGE_FEED) != "true":
            return False
        return self._least(path, after, upto, "remove IS NOT NULL OR metaData IS NOT NULL", "0L") is None

    def first_removal(self, path: str, after: int, upto: int) -> int | None:
        """Returns when those commits first removed a file, in epoch milliseconds; None if they removed none.

        It is 0 if log clean-up has removed one of them, so that nobody knows.
        """
        if upto > after and not self.keeps(path, after):
            return 0
        return self._least(path, after, upto, "remove IS NOT NULL", "remove.deletionTimestamp")

    def _least(self, path: str, after: int, upto: int, condition: str, value: str) -> int | None:
        """Returns the least value of such actions of the commits; None without one, 0 if log clean-up removed one."""
        commits = self._commits(path, after, upto)
        if commits is None:
            return None
        try:
            found: int | None = commits.where(condition).agg(F.expr(f"min(coalesce({value}, 0L))")).collect()[0][0]
        except PySparkException as error:
            if removed_file(error) is None and not is_missing(error):
                raise
            return 0
        return found

    # ---- new tables and columns ----

    def columns(self, path: str) -> StructType:
        """Returns the columns that a table has."""
        return self.spark.read.format("delta").load(path).schema

    def complete(self, path: str, spec: TableSpec) -> None:
        """Makes the table if it is missing; an older table gets the columns that it lacks."""
        try:
            columns = self.columns(path)
        except PySparkException as error:
            if not is_missing(error):
                raise
            self._unless_overtaken(_created(path, spec))
            columns = self.columns(path)
        if later := lacking(columns, spec):
            self._unless_overtaken(f"ALTER TABLE {delta_table(path)} ADD COLUMNS ({', '.join(later)})")

    def _unless_overtaken(self, statement: str) -> None:
        """Another client may do the same at the same moment."""
        try:
            self.spark.sql(statement)
        except PySparkException as error:
            if not overtaken(error) and not any(name in str(error) for name in _MADE_MEANWHILE):
                raise

    # ---- lineage ----

    def was_read(self, path: str, version: int | None) -> None:
        """Notes for the lineage that a table was read."""
        self.touched.read[path] = version

    def was_written(self, path: str, spec: TableSpec) -> None:
        """Notes for the lineage that a table was written."""
        columns = [TableColumn(c.name, c.type, c.comment) for c in spec.columns]
        self.touched.written.setdefault(path, WrittenTable(columns))


def is_missing(error: PySparkException) -> bool:
    """Returns whether Spark says that there is no such table, or file."""
    return any(name in f"{error.getCondition()} {error}" for name in _NO_TABLE)


def _commit(path: str, version: int) -> str:
    return f"{path}/_delta_log/{version:020}.json"


def _greatest(actions: DataFrame | None) -> dict[str, int]:
    if actions is None:
        return {}
    marks = actions.where("txn IS NOT NULL OR metaData IS NOT NULL").selectExpr(*_MARKS)
    return {row["app"]: row["number"] for row in marks.groupBy("app").agg(F.max("number").alias("number")).collect()}


def _created(path: str, spec: TableSpec) -> str:
    columns = ", ".join(column.ddl for column in spec.columns)
    by = f"PARTITIONED BY ({', '.join(spec.partitioned_by)})" if spec.partitioned_by else ""
    given = spec.properties | _FOR_OLD_READERS
    properties = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in given.items())
    return (
        f"CREATE TABLE IF NOT EXISTS {delta_table(path)} ({columns}) USING delta {by} "
        f"COMMENT {literal(spec.comment)} TBLPROPERTIES ({properties})"
    )
