"""Delta's log without a Spark job: versions, markers of written runs, and commits of files already written.

Delta Kernel is the public API for this and one of the jars that Delta's Spark connector brings. `halfop.TableLogs` (in
lib/java) calls it, so that a method here is one call of Java or two.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from halfop.frame.openlineage import TableColumn, Touched, WrittenTable
from halfop.frame.trouble import plainly
from halfop.warehouse.disk import DataFile, Listed
from halfop.warehouse.files import Files
from halfop.warehouse.growth import lacking
from halfop.warehouse.schema import CHANGE_FEED, VALUE, TableSpec, delta_table
from halfop.warehouse.sound import SoundTables
from halfop.warehouse.spark_errors import is_java, removed_file
from halfop.warehouse.tables import AlreadyWrittenError, refuse_forgetful
from halfop.warehouse.where import Predicate

log = logging.getLogger("halfop.warehouse")

_NEWEST = -1
# Features of a table that ask nothing of a writer but what Kernel does.
_WRITTEN = {
    "appendOnly",
    "changeDataFeed",
    "rowTracking",
    "domainMetadata",
    "invariants",
    "inCommitTimestamp",
    "clustering",
}
_PLAIN_WRITER = 2
_INVARIANTS = ("delta.invariants", '"nullable":false,"metadata"')
_MADE_MEANWHILE = ("TableAlreadyExistsException", "ConcurrentWriteException", "ProtocolChangedException")
_MANY = 2**63 - 1  # the largest long of Java


@dataclass(frozen=True)
class Snapshot:
    """A table at a version. `reader` and `writer` are of its protocol; `features` are those that a writer must know."""

    version: int
    schema: str
    names: Sequence[str]
    partitions: Sequence[str]
    properties: dict[str, str]
    reader: int
    writer: int
    features: Sequence[str]
    checkpoint: int  # with which its log begins; -1 if that begins with the first commit
    empty: Sequence[int]  # commits after it that have no bytes

    @property
    def struct(self) -> StructType:
        """The columns."""
        return StructType.fromJson(json.loads(self.schema))

    def is_plain(self, spec: TableSpec) -> bool:
        """Returns whether the files of a table are all that it takes to read it: no column mapping, our own partitions.

        A user's own pipeline may have made it.
        """
        if self.reader > 1:
            return False
        names = set(self.names)
        other_case = {name.lower() for name in names} & {name.lower() for name in set(spec.names) - names}
        return not other_case and tuple(self.partitions) == spec.partitioned_by

    def takes_files(self, spec: TableSpec) -> bool:
        """Returns whether Kernel can append to the table: a user may have given it a constraint or a column mapping."""
        known = _WRITTEN.issuperset(self.features) if self.features else self.writer <= _PLAIN_WRITER
        return known and not any(mark in self.schema for mark in _INVARIANTS) and self.is_plain(spec)


class Changes(NamedTuple):
    """Changes by some commits: files added, as path, size and whether they bring rows, and the times of removals."""

    added: Sequence[tuple[str, int, bool]]
    removed: Sequence[int]
    changed: int  # how often the table's schema or properties were changed


class DeltaLog:
    def __init__(self, spark: SparkSession, files: Files, touched: Touched) -> None:
        jvm: Any = spark._jvm
        jsc: Any = spark._jsc
        self._spark, self.sound = spark, SoundTables(files, files.is_local)
        self._files, self._touched, self._uris = files, touched, dict[str, str]()
        self._logs = jvm.halfop.TableLogs(jsc.hadoopConfiguration())

    def version(self, path: str) -> int:
        """The table's newest version; -1 if there is no table."""
        snapshot = self.snapshot(path)
        return -1 if snapshot is None else snapshot.version

    def marker(self, path: str, app: str) -> int:
        """The last run that wrote under this app id; -1 if none did."""
        refuse_forgetful(path, self.properties(path, None))
        return int(self._logs.marker(path, app))

    def snapshot(self, path: str, version: int | None = None) -> Snapshot | None:
        """The table at a version, or the newest one; None if there is no table. Raises DamagedTable."""
        with self.sound.or_damaged(path):
            about = self._logs.look(path, _numbered(version))
        if about is None:
            return None
        found = Snapshot(**json.loads(about))
        self.sound.refuse_damaged(path, found.checkpoint, found.version, found.empty, newest=version is None)
        return found

    def properties(self, path: str, version: int | None) -> dict[str, str]:
        """The table's properties at a version, or now; none if there is no table."""
        snapshot = self.snapshot(path, version)
        return {} if snapshot is None else snapshot.properties

    def files(
        self, path: str, version: int | None, where: Predicate | None, most: int = _MANY, most_bytes: int = _MANY
    ) -> list[Listed] | None:
        """The files that may hold such rows; None if they are more or larger."""
        condition = None if where is None else json.dumps(where)
        limits = (min(each, _MANY) for each in (most, most_bytes))
        with self.sound.or_damaged(path):
            found = self._logs.files(path, _numbered(version), condition, *limits)
        self.was_read(path, version)
        return None if found is None else [Listed(*each) for each in json.loads(found)]

    def data_files(self, path: str, version: int | None, run_id: int | None) -> list[str] | None:
        """The files of a table that may hold the run's rows; None if reading them takes more than Parquet."""
        snapshot = self.snapshot(path, version)
        if snapshot is None:
            return []
        where = None if run_id is None else ["=", "run_id", "long", run_id]
        found = None if snapshot.reader > 1 else self.files(path, version, where)
        return None if found is None else [file.path for file in found]

    # ---- commits of the past ----

    def changes(self, path: str, after: int, upto: int, *kinds: str) -> Changes:
        """The actions of these kinds (ADD, REMOVE, METADATA) after version `after`, up to version `upto`."""
        self.sound.refuse_damaged_commits(path, after, upto)
        if "ADD" in kinds:
            self.was_read(path, upto)
        return Changes(**json.loads(self._logs.changes(path, after, upto, " ".join(kinds))))

    def only_appends(self, path: str, after: int, upto: int) -> bool:
        """Returns whether the commits after version `after`, up to `upto`, only added files, with a change feed.

        Other commits replace files, as OPTIMIZE does, or switch the feed off and on.
        """
        if self.properties(path, upto).get(CHANGE_FEED) != "true":
            return False
        found = self.changes(path, after, upto, "REMOVE", "METADATA")
        return not found.removed and not found.changed

    def keeps(self, path: str, version: int) -> bool:
        """Returns whether a version can still be read: log clean-up removes versions of long ago."""
        try:
            return self.snapshot(path, version) is not None
        except Py4JJavaError as error:
            if removed_file(error) is None:
                raise
            return False

    def first_removal(self, path: str, after: int, upto: int) -> int | None:
        """The time when those commits first removed a file, in epoch milliseconds; None if they removed none.

        It is 0 if log clean-up has removed commits, so that nobody knows.
        """
        if upto > after and not self.keeps(path, after):
            return 0
        removed = self.changes(path, after, upto, "REMOVE").removed if upto > after else []
        return min(removed, default=None)

    # ---- commits ----

    def commit_files(
        self, path: str, spec: TableSpec, files: Collection[DataFile], marker: tuple[str, int] | None
    ) -> None:
        """Appends files to a table, made if missing, in one commit; a second call appends them again.

        With a marker, an app and its number, the commit happens once: AlreadyWrittenError if the table has the marker.
        """
        try:
            self._commit(path, spec, files, marker)
        except Py4JJavaError as error:
            if is_java(error, "ConcurrentTransactionException"):
                raise AlreadyWrittenError(path) from None
            raise

    def replace_files(self, path: str, spec: TableSpec, version: int, files: Collection[DataFile]) -> bool:
        """Replaces all files of a version in one commit; returns whether no other commit came before."""
        commit = self._begun(path, None, None)
        if commit.readVersion() != version:
            return False
        self._warn(commit.replace(version, _as_json(files), spec.json))
        self.was_written(path, spec, files)
        return True

    def create(self, path: str, spec: TableSpec) -> None:
        """Creates an empty table, unless another process makes it at the same moment."""
        try:
            self._warn(self._begun(path, spec, None).append("[]", spec.json))
        except Py4JJavaError as error:
            if not is_java(error, *_MADE_MEANWHILE):
                raise

    def _commit(self, path: str, spec: TableSpec, files: Collection[DataFile], marker: tuple[str, int] | None) -> None:
        missing = self.complete(path, spec) is None
        try:
            self._warn(self._begun(path, spec if missing else None, marker).append(_as_json(files), spec.json))
            self.was_written(path, spec, files)
        except Py4JJavaError as error:
            if not (missing and is_java(error, *_MADE_MEANWHILE)):
                raise
            self._commit(path, spec, files, marker)

    def was_read(self, path: str, version: int | None) -> None:
        """Notes for the lineage that a table was read."""
        self._touched.read[self._uri(path)] = version

    def was_written(self, path: str, spec: TableSpec, files: Collection[DataFile] = ()) -> None:
        """Notes for the lineage that a table was written, by these files or by Spark."""
        columns = [TableColumn(c.name, c.type, c.comment) for c in spec.columns]
        written = self._touched.written.setdefault(self._uri(path), WrittenTable(columns))
        written.rows += sum(json.loads(file.stats or "{}").get("numRecords", 0) for file in files)
        written.bytes += sum(file.size for file in files)
        written.files += len(files)

    def _uri(self, path: str) -> str:
        if path not in self._uris:
            self._uris[path] = self._files.qualified(path)
        return self._uris[path]

    def _begun(self, path: str, created: TableSpec | None, marker: tuple[str, int] | None) -> Any:
        """A commit from the table's newest version, or to a table that is created by it."""
        app, number = marker or (None, 0)
        return self._logs.begin(path, None if created is None else json.dumps(_about(created)), app, number)

    def complete(self, path: str, spec: TableSpec) -> Snapshot | None:
        """The table's newest snapshot; None if there is no table. An older table gets the columns it lacks."""
        snapshot = self.snapshot(path)
        if snapshot is None:
            return None
        has_all = set(spec.names) <= set(snapshot.names)
        later = [] if has_all and VALUE not in spec.names else lacking(snapshot.struct, spec)
        if later:
            log.info("%s gets new columns: %s", path, ", ".join(later))
            self._spark.sql(f"ALTER TABLE {delta_table(path)} ADD COLUMNS ({', '.join(later)})")
        return snapshot

    def takes_files(self, path: str, spec: TableSpec) -> bool:
        """Returns whether Kernel can append to the table, or make it."""
        snapshot = self.snapshot(path)
        return snapshot is None or snapshot.takes_files(spec)

    def defer_upkeep(self) -> None:
        """Makes commits leave their upkeep to `upkeep`, so that a result need not wait for it."""
        self._logs.deferUpkeep()

    def upkeep(self) -> None:
        """Does the upkeep that commits have left, such as a checkpoint, for a log that is quick to read."""
        self._warn(self._logs.upkeep())

    def _warn(self, failed: str) -> None:
        """A failed upkeep does not undo the commit."""
        for path, problem in json.loads(failed):
            log.warning("%s: upkeep of its log failed: %s", path, plainly(OSError(problem)) or problem)


def _numbered(version: int | None) -> int:
    return _NEWEST if version is None else version


def _as_json(files: Collection[DataFile]) -> str:
    return json.dumps([vars(file) for file in files])


def _about(spec: TableSpec) -> dict[str, object]:
    """Kernel writes no description; Spark shows a property of that name as the table's comment."""
    properties = {**spec.properties, "comment": spec.comment}
    return {"schema": spec.json, "properties": properties, "partitions": spec.partitioned_by}
