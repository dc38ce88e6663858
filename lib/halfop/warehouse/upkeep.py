"""Upkeep of a Delta table: compaction up to a version, deleting rows, removing files that no version needs."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import PurePath

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.schema import CHANGE_FEED, delta_table, literal
from halfop.warehouse.tables import Marker, Warehouse, spec_of

SMALL = 256 * 1024 * 1024
# Bytes that Delta clusters together: at most so many at once, and again with what comes while they are fewer.
_LEAST_CLUSTER, _MOST_CLUSTER = 2 * SMALL, 4 * SMALL
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_LOG_KEPT, _FILES_KEPT = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
# Set while nothing is deleted from a table. The change feed would write every deleted row a second time.
_GUARDS = ("delta.appendOnly", CHANGE_FEED)
# Settings of the session. Delta's own least retention is a week; here our settings say what must be kept.
UPKEEP = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Delta 4.4 would take the table's own retention for the one that a VACUUM names.
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # Delta writes its last commit there: the caller's session does not get it.
    "spark.databricks.delta.lastCommitVersionInSession": "0",
    # What is deleted leaves the files, also of a table that somebody has given deletion vectors.
    **{f"spark.databricks.delta.{by}.deletionVectors.persistent": "false" for by in ("delete", "merge", "update")},
    "spark.databricks.delta.optimize.minFileSize": str(SMALL),
    "spark.databricks.delta.optimize.maxFileSize": str(SMALL),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold": str(_LEAST_CLUSTER),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize": str(_MOST_CLUSTER),
    "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
}


@dataclass(frozen=True)
class Size:
    files: int
    bytes: int


class TableUpkeep:
    """Upkeep of one table. Every step is one commit, and only `delete` and `forget` change what a reader sees."""

    def __init__(self, warehouse: Warehouse, name: str) -> None:
        self._warehouse, self.name, self._spark = warehouse, name, warehouse.spark
        self._path = warehouse.path(name)

    # ---- compaction ----

    def small(self, version: int) -> Size:
        """The files of a version that compaction would join: those of partitions that have several small ones.

        Of a clustered table: those that are not clustered.
        """
        if self.clustered_by:
            new = [file.size for file in self._warehouse.listed(self.name, version) if not file.clustered]
            return Size(len(new), sum(new))
        sizes = defaultdict[tuple[tuple[str, str], ...], list[int]](list)
        for file in self._warehouse.listed(self.name, version):
            if file.size < SMALL:
                sizes[tuple(sorted(file.partition.items()))].append(file.size)
        joined = [each for each in sizes.values() if len(each) > 1]
        return Size(sum(map(len, joined)), sum(map(sum, joined)))

    def compact(self, version: int) -> bool:
        """Returns whether it joined files: Delta leaves those that are laid out, and not every store shows which."""
        before = self._warehouse.version(self.name)
        self._warehouse.compact(self.name, version)
        return self._warehouse.version(self.name) != before

    @property
    def clustered_by(self) -> list[str]:
        """The columns by which Delta lays out the rows."""
        return [".".join(names) for names in json.loads(self.properties.get("clusteringColumns", "[]"))]

    def cluster(self, columns: Sequence[str]) -> None:
        by = ", ".join(".".join(f"`{name}`" for name in column.split(".")) for column in columns)
        self._spark.sql(f"ALTER TABLE {self._table} CLUSTER BY {f'({by})' if by else 'NONE'}")

    # ---- deleting ----

    def delete(self, rows: str, recorded: dict[str, str]) -> None:
        """Deletes rows of an append-only table by a condition of SQL; `recorded` are properties that are set before."""
        with self._unguarded(recorded):
            self._spark.sql(f"DELETE FROM {self._table} WHERE {rows}")  # noqa: S608 - our own condition

    def forget(self, keys: DataFrame, same: Column, cells: Sequence[str]) -> None:
        """Deletes the rows that have one of the keys by the condition `same`, or only empties these cells of theirs."""
        with self._unguarded({}):
            rows = keys.mergeInto(self._table, same)
            struct = spec_of(self.name).struct
            empty = {n: F.lit(None).cast(struct[n].dataType) for n in cells}
            (rows.whenMatched().update(empty) if cells else rows.whenMatched().delete()).merge()

    def purge(self) -> None:
        """Writes files again without the rows that deletion vectors only hide, if it has such files."""
        self._spark.sql(f"REORG TABLE {self._table} APPLY (PURGE)")

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
        return {name: text for name, text in texts.items() if _days(known[name]) < wanted[name]}

    def vacuum(self, keep: timedelta) -> None:
        """Removes files that no version of the last `keep` needs."""
        self._spark.sql(f"VACUUM {self._table} RETAIN {_hours(keep)} HOURS")

    def removable(self, keep: timedelta) -> int:
        """The number of files that `vacuum` would remove; Delta counts up to a thousand."""
        if not self._holds_others(keep):
            return 0
        return self._spark.sql(f"VACUUM {self._table} RETAIN {_hours(keep)} HOURS DRY RUN").count()

    def _holds_others(self, keep: timedelta) -> bool:
        """Returns whether the folder may hold files that old and not of the newest version: a look, without Spark."""
        folder = self._warehouse.files.local(self._path) if isinstance(self._warehouse, KernelWarehouse) else None
        if folder is None:
            return True
        current = {PurePath(file.path).name for file in self._warehouse.listed(self.name)}
        before = time.time() - keep.total_seconds()
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


# Landed rows, or committed ones of topics, that are older than this instant are trimmed: they had ended long ago.
TRIMMED_BEFORE = "halfop.trimmedBefore"
# On `decisions`: runs before this one have lost rows that only carried open messages along.
TRIMMED_RUNS = "halfop.trimmedRuns"


def trimmed_before(
    warehouse: Warehouse, version: int | None, name: str = "half_messages", topic: str = ""
) -> int | None:
    """The instant up to which a table is trimmed in a version, in epoch microseconds; None if it is not.

    `topic`: that of one topic, in the table of all of them.
    """
    text = warehouse.properties(name, version).get(trimmed_property(topic))
    if text is None:
        return None
    whole, _, fraction = text.partition(".")
    since = datetime.fromisoformat(f"{whole}+00:00") - datetime.fromtimestamp(0, timezone.utc)
    return since // timedelta(seconds=1) * 1_000_000 + int(fraction.ljust(6, "0"))


def trimmed_property(topic: str) -> str:
    """The table property that has this instant: of the table, or of one topic in the table of all of them."""
    return f"{TRIMMED_BEFORE}.{topic}" if topic else TRIMMED_BEFORE


def first_whole_run(warehouse: Warehouse) -> int:
    """The first run whose decisions are all there."""
    return int(warehouse.properties("decisions").get(TRIMMED_RUNS, 1))


_INTERVAL, _IN_DAYS = re.compile(r"(?:interval )?(\d+) (hour|day|week)s?"), {"hour": 1 / 24, "day": 1, "week": 7}


def _days(interval: str) -> float:
    """Returns the days of an interval as people write it; 0 for another form."""
    found = _INTERVAL.fullmatch(interval.strip().lower())
    return int(found[1]) * _IN_DAYS[found[2]] if found else 0
