"""Upkeep of a Delta table: compaction up to a version, deleting rows, removing files that no version needs."""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import PurePath
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame

from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.schema import delta_table, literal
from halfop.warehouse.tables import Marker, Warehouse, spec_of

SMALL = 256 * 1024 * 1024
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_LOG_KEPT, _FILES_KEPT = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
# Set while nothing is deleted from a table. The change feed would write every deleted row a second time.
_GUARDS = ("delta.appendOnly", "delta.enableChangeDataFeed")
# A setting of the session. Delta's own least retention is a week; here our settings say what must be kept.
UPKEEP = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Delta 4.4 would take the table's own retention for the one that a VACUUM names.
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    "spark.databricks.delta.optimize.minFileSize": str(SMALL),
    "spark.databricks.delta.optimize.maxFileSize": str(SMALL),
}


@dataclass(frozen=True)
class Size:
    files: int
    bytes: int


class TableUpkeep:
    """Upkeep of one table. Every step is one commit, and only `delete` changes what a reader sees."""

    def __init__(self, warehouse: KernelWarehouse, name: str) -> None:
        self._warehouse, self.name, self._spark = warehouse, name, warehouse.spark
        self._path = warehouse.path(name)

    # ---- compaction ----

    def small(self, version: int) -> Size:
        """The files of a version that compaction would join: those of partitions that have several small ones."""
        sizes = defaultdict[tuple[tuple[str, str], ...], list[int]](list)
        for _, size, partition in self._current(version):
            if size < SMALL:
                sizes[tuple(sorted(partition.items()))].append(size)
        joined = [each for each in sizes.values() if len(each) > 1]
        return Size(sum(map(len, joined)), sum(map(sum, joined)))

    def compact(self, version: int) -> None:
        """Joins the small files of a version, and leaves later files alone.

        It calls the class that OPTIMIZE calls: the statement takes the newest version, and all of it if there is no
        partition.
        """
        jvm: Any = self._spark._jvm
        delta, scala, session = jvm.org.apache.spark.sql.delta, jvm.scala, self._spark._jsparkSession
        none, nothing = scala.Option.empty(), getattr(getattr(scala.collection.immutable, "Nil$"), "MODULE$")
        snapshot = delta.DeltaLog.forTable(session, self._path).getSnapshotAt(version, none, none, False)
        context = delta.commands.DeltaOptimizeContext(none, none, none, none, False)
        delta.commands.OptimizeExecutor(session, snapshot, none, nothing, nothing, False, context).optimize()

    def _current(self, version: int | None) -> Sequence[tuple[str, int, Mapping[str, str]]]:
        return self._warehouse.log.files(self._path, version, None) or ()

    # ---- deleting ----

    def delete(self, rows: Column, recorded: dict[str, str]) -> None:
        """Deletes rows of an append-only table; `recorded` are properties that are set before."""
        with self._unguarded(recorded):
            DeltaTable.forPath(self._spark, self._path).delete(rows)

    @contextmanager
    def _unguarded(self, recorded: dict[str, str]) -> Iterator[None]:
        guards = {name: "true" for name in _GUARDS if name in self._declared}
        self.set(dict.fromkeys(guards, "false") | recorded)
        try:
            yield
        finally:
            self.set(guards)

    @property
    def lacking_guards(self) -> dict[str, str]:
        """The guards that a killed deletion left unset."""
        return {name: "true" for name in _GUARDS if name in self._declared and self.properties.get(name) != "true"}

    @property
    def _declared(self) -> Mapping[str, str]:
        return spec_of(self.name).properties

    def rewrite(self, rows: DataFrame, marker: Marker, recorded: dict[str, str]) -> None:
        """Puts other rows in the place of all, also of other types, in one commit that the marker numbers."""
        with self._unguarded(recorded):
            writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
            writer.options(txnAppId=marker.app, txnVersion=marker.number).save(self._path)

    # ---- versions ----

    def lacking_retention(self, at_least: timedelta) -> dict[str, str]:
        """The properties that make Delta's own clean-up, and a VACUUM of the user's, keep what verifies runs so old."""
        days = math.ceil(at_least / _DAY)
        wanted = {_LOG_KEPT: max(days, 30), _FILES_KEPT: max(days, 7)}
        defaults = {_LOG_KEPT: "interval 30 days", _FILES_KEPT: "interval 7 days"}
        texts = {name: f"interval {n} days" for name, n in wanted.items()}
        known = defaults | dict(self.properties)
        return {name: text for name, text in texts.items() if known[name] != text}

    def vacuum(self, keep: timedelta) -> None:
        """Removes files that no version of the last `keep` needs."""
        DeltaTable.forPath(self._spark, self._path).vacuum(_hours(keep))

    def removable(self, keep: timedelta) -> int:
        """The number of files that `vacuum` would remove; Delta counts up to a thousand."""
        if not self._holds_others(keep):
            return 0
        return self._spark.sql(f"VACUUM {self._table} RETAIN {_hours(keep)} HOURS DRY RUN").count()

    def _holds_others(self, keep: timedelta) -> bool:
        """Returns whether the folder may hold files that old and not of the newest version: a look, without Spark."""
        folder = self._warehouse.files.local(self._path)
        if folder is None:
            return True
        current, before = (
            {PurePath(path).name for path, _, _ in self._current(None)},
            time.time() - keep.total_seconds(),
        )
        return any(each.name not in current and each.stat().st_mtime < before for each in _data_files(folder))

    # ---- properties ----

    @property
    def properties(self) -> Mapping[str, str]:
        return self._warehouse.properties(self.name)

    def set(self, properties: Mapping[str, str]) -> None:
        if properties:
            pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
            self._spark.sql(f"ALTER TABLE {self._table} SET TBLPROPERTIES ({pairs})")

    @property
    def _table(self) -> str:
        return delta_table(self._path)


def _hours(keep: timedelta) -> int:
    """Whole hours, rounded up: Delta would round less than half an hour to none."""
    return math.ceil(keep / _HOUR)


def _data_files(folder: str) -> Iterator[os.DirEntry[str]]:
    """The files in a table's folder and its partitions' folders; what begins with _ or . is no data."""
    with os.scandir(folder) as entries:
        for each in entries:
            if each.name[0] not in "_.":
                if each.is_dir(follow_symlinks=False):
                    yield from _data_files(each.path)
                else:
                    yield each


# On landing tables: rows that landed before this instant had ended long ago, and are trimmed.
TRIMMED_BEFORE = "halfop.trimmedBefore"
# On `decisions`: runs before this one have lost rows that only carried open messages along.
TRIMMED_RUNS = "halfop.trimmedRuns"


def trimmed_before(warehouse: Warehouse, version: int, name: str = "half_messages") -> int | None:
    """The instant up to which a landing table is trimmed in a version, in epoch microseconds; None if it is not."""
    text = warehouse.properties(name, version).get(TRIMMED_BEFORE)
    if text is None:
        return None
    whole, _, fraction = text.partition(".")
    since = datetime.fromisoformat(f"{whole}+00:00") - datetime.fromtimestamp(0, timezone.utc)
    return since // timedelta(seconds=1) * 1_000_000 + int(fraction.ljust(6, "0"))


def first_whole_run(warehouse: Warehouse) -> int:
    """The first run whose decisions are all there."""
    return int(warehouse.properties("decisions").get(TRIMMED_RUNS, 1))
