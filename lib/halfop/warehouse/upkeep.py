"""Upkeep of a Delta table: compaction up to a version, deleting rows, removing files that no version needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.warehouse.sql import delta_table
from halfop.warehouse.tables import Warehouse

SMALL = 256 * 1024 * 1024
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_LOG_KEPT, _FILES_KEPT = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
# Set while nothing is deleted from a table. The change feed would write every deleted row a second time.
_GUARDS = ("delta.appendOnly", "delta.enableChangeDataFeed")
# A setting of the session. Delta's own least retention is a week; here our settings say what must be kept.
UPKEEP = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.optimize.minFileSize": str(SMALL),
    "spark.databricks.delta.optimize.maxFileSize": str(SMALL),
}


@dataclass(frozen=True)
class Size:
    files: int
    bytes: int


class Upkeep:
    """Upkeep of one table. Every step is one commit, and only `delete` changes what a reader sees."""

    def __init__(self, warehouse: Warehouse, name: str) -> None:
        self._warehouse, self.name, self._spark = warehouse, name, warehouse.spark
        self._path = warehouse.path(name)
        jvm: Any = self._spark._jvm
        self._jvm, self._none = jvm, jvm.scala.Option.empty()
        self._log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, self._path)

    # ---- compaction ----

    def small(self, version: int) -> Size:
        """The files of a version that compaction would join: those of partitions that have several small ones."""
        files = self._files(version).where(F.col("size") < SMALL).groupBy("partitionValues").agg(*_sums())
        found = files.where("files > 1").agg(F.sum("files"), F.sum("bytes")).collect()[0]
        return Size(found[0] or 0, found[1] or 0)

    def compact(self, version: int) -> None:
        """Joins the small files of a version, and leaves later files alone.

        It calls the class that OPTIMIZE calls: the statement takes the newest version, and all of it if there is no
        partition.
        """
        commands, scala = self._jvm.org.apache.spark.sql.delta.commands, self._jvm.scala
        nothing = getattr(getattr(scala.collection.immutable, "Nil$"), "MODULE$")
        context = commands.DeltaOptimizeContext(self._none, self._none, self._none, self._none, False)
        session = self._spark._jsparkSession
        executor = commands.OptimizeExecutor(session, self._at(version), self._none, nothing, nothing, False, context)
        executor.optimize()

    def _at(self, version: int) -> Any:
        return self._log.getSnapshotAt(version, self._none, self._none, False)

    def _files(self, version: int) -> DataFrame:
        return DataFrame(self._at(version).allFiles().toDF(), self._spark)

    # ---- deleting ----

    def delete(self, rows: Column, recorded: dict[str, str]) -> None:
        """Deletes rows of an append-only table; `recorded` are properties that are set before."""
        with self._unguarded(recorded):
            DeltaTable.forPath(self._spark, self._path).delete(rows)

    @contextmanager
    def _unguarded(self, recorded: dict[str, str]) -> Iterator[None]:
        guards = {name: "true" for name in _GUARDS if name in self._declared}
        self._set(dict.fromkeys(guards, "false") | recorded)
        try:
            yield
        finally:
            self._set(guards)

    def guard(self) -> None:
        """Sets the guards again that a killed deletion left unset."""
        lacking = {name: "true" for name in _GUARDS if name in self._declared and self.properties.get(name) != "true"}
        self._set(lacking)

    @property
    def _declared(self) -> Mapping[str, str]:
        return self._warehouse.declared(self.name)

    # ---- versions ----

    def keep_versions(self, at_least: timedelta) -> None:
        """Makes Delta's own clean-up, and a VACUUM of the user's, keep the versions that verify runs of that time."""
        days = math.ceil(at_least / _DAY)
        wanted = {_LOG_KEPT: max(days, 30), _FILES_KEPT: max(days, 7)}
        defaults = {_LOG_KEPT: "interval 30 days", _FILES_KEPT: "interval 7 days"}
        texts = {name: f"interval {n} days" for name, n in wanted.items()}
        known = defaults | dict(self.properties)
        self._set({name: text for name, text in texts.items() if known[name] != text})

    def vacuum(self, keep: timedelta) -> None:
        """Removes files that no version of the last `keep` needs."""
        DeltaTable.forPath(self._spark, self._path).vacuum(_hours(keep))

    def removable(self, keep: timedelta) -> int:
        """The number of files that `vacuum` would remove; Delta counts up to a thousand."""
        return self._spark.sql(f"VACUUM {self._table} RETAIN {_hours(keep)} HOURS DRY RUN").count()

    # ---- properties ----

    @property
    def properties(self) -> Mapping[str, str]:
        return self._warehouse.log.properties(self._path, None)

    def _set(self, properties: Mapping[str, str]) -> None:
        if properties:
            pairs = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
            self._spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ({pairs})")

    @property
    def _table(self) -> str:
        return delta_table(self._path)


def _hours(keep: timedelta) -> int:
    """Whole hours, rounded up: Delta would round less than half an hour to none."""
    return math.ceil(keep / _HOUR)


def _sums() -> list[Column]:
    return [F.count("*").alias("files"), F.sum("size").alias("bytes")]
