"""Delta's log without a Spark job: versions, markers of written runs, and commits of files already written.

Delta Kernel is the public API for this and one of the jars that Delta's Spark connector brings.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from halfop.frame.errors import HalfopError
from halfop.warehouse.actions import DataFile, appends, each, removes
from halfop.warehouse.java import Names
from halfop.warehouse.schema import TableSpec
from halfop.warehouse.spark_errors import first_line, is_java
from halfop.warehouse.sql import delta_table, literal

log = logging.getLogger("halfop.warehouse")

ENGINE_INFO = "halfop"
_FORGETS = "delta.setTransactionRetentionDuration"
# Features of a table that ask nothing of a writer but what Kernel does.
_WRITTEN = {"appendOnly", "changeDataFeed", "rowTracking", "domainMetadata", "invariants", "inCommitTimestamp"}
_PLAIN_WRITER = 2
_INVARIANTS = ("delta.invariants", '"nullable":false,"metadata"')
_MADE_MEANWHILE = ("TableAlreadyExistsException", "ConcurrentWriteException", "ProtocolChangedException")


class AlreadyWrittenError(Exception):
    """The table holds this run's write, or a later run's."""


class DeltaLog:
    def __init__(self, spark: SparkSession) -> None:
        jvm = Names(spark._jvm)
        jsc: Any = spark._jsc
        self._spark, self.jvm = spark, jvm
        self.kernel = jvm.io.delta.kernel
        self.engine = self.kernel.defaults.engine.DefaultEngine.create(jsc.hadoopConfiguration())
        self._waiting: list[tuple[str, Any]] | None = None

    def version(self, path: str) -> int:
        """The table's newest version; -1 if there is no table."""
        snapshot = self.snapshot(path)
        return -1 if snapshot is None else int(snapshot.getVersion())

    def marker(self, path: str, app: str) -> int:
        """The last run that wrote under this app id; -1 if none did."""
        snapshot = self.snapshot(path)
        if snapshot is None:
            return -1
        if snapshot.getTableProperties().containsKey(_FORGETS):
            raise HalfopError(
                f"{path} has {_FORGETS} set: it would forget the runs that it holds, and get their rows twice. Repair: "
                f"ALTER TABLE {delta_table(path)} UNSET TBLPROPERTIES ('{_FORGETS}')"
            )
        found = snapshot.getLatestTransactionVersion(self.engine, app)
        return int(found.get()) if found.isPresent() else -1

    def snapshot(self, path: str, version: int | None = None) -> Any | None:
        """The table at a version, or the newest one; None if there is no table."""
        if version is not None:
            return self.kernel.Table.forPath(self.engine, path).getSnapshotAsOfVersion(self.engine, version)
        try:
            return self.kernel.Table.forPath(self.engine, path).getLatestSnapshot(self.engine)
        except Py4JJavaError as error:
            if is_java(error, "TableNotFoundException"):
                return None
            raise

    def commit_files(self, path: str, spec: TableSpec, app: str, run_id: int, files: Collection[DataFile]) -> None:
        """Appends files to a table, made if missing, in one commit that happens at most once for a run.

        Raises AlreadyWrittenError if the table has this run's marker.
        """
        try:
            self._commit(path, spec, files, (app, run_id))
        except Py4JJavaError as error:
            if is_java(error, "ConcurrentTransactionException"):
                raise AlreadyWrittenError(path) from None
            raise

    def replace_files(self, path: str, spec: TableSpec, version: int, files: Collection[DataFile]) -> bool:
        """Replaces all files of a version in one commit; returns whether no other commit came before."""
        old = self.snapshot(path, version)
        transaction = self._builder(path, spec, False).build(self.engine)
        if transaction.getReadTableVersion() != version:
            return False
        replaced = [*removes(self, old), *appends(self, transaction, spec.struct, files)]
        self._maintain(path, transaction.commit(self.engine, self._actions(replaced)))
        return True

    def append_files(self, path: str, spec: TableSpec, files: Collection[DataFile]) -> None:
        """Appends files to a table, made if missing, in one commit; a second call appends them again."""
        self._commit(path, spec, files, None)

    def _commit(self, path: str, spec: TableSpec, files: Collection[DataFile], marker: tuple[str, int] | None) -> None:
        missing = self.complete(path, spec) is None
        try:
            builder = self._builder(path, spec, missing)
            builder = builder if marker is None else builder.withTransactionId(self.engine, *marker)
            transaction = builder.build(self.engine)
            committed = transaction.commit(self.engine, self._actions(appends(self, transaction, spec.struct, files)))
        except Py4JJavaError as error:
            if not (missing and is_java(error, *_MADE_MEANWHILE)):
                raise
            self._commit(path, spec, files, marker)
        else:
            self._maintain(path, committed)

    def takes_files(self, path: str, spec: TableSpec) -> bool:
        """Returns whether Kernel can append to the table: a user may have given it a constraint, or a column mapping.

        Version 0.1 made columns that only Spark can fill.
        """
        snapshot = self.snapshot(path)
        if snapshot is None:
            return True
        protocol = snapshot.getProtocol()
        features = set(self._strings(protocol.getWriterFeatures()))
        known = features <= _WRITTEN if features else protocol.getMinWriterVersion() <= _PLAIN_WRITER
        invariant = any(mark in snapshot.getSchema().toJson() for mark in _INVARIANTS)
        return known and not invariant and self.is_plain(snapshot, spec)

    def is_plain(self, snapshot: Any, spec: TableSpec) -> bool:
        """Returns whether the files of a table are all that it takes to read it: no column mapping, our own partitions.

        A user's own pipeline may have made it.
        """
        if snapshot.getProtocol().getMinReaderVersion() > 1:
            return False
        names = self.columns(snapshot)
        other_case = {name.lower() for name in names} & {name.lower() for name in set(spec.names) - names}
        return not other_case and tuple(self._strings(snapshot.getPartitionColumnNames())) == spec.partitioned_by

    def _strings(self, collection: Any) -> list[str]:
        return [text for text in self.jvm.java.lang.String.join("\n", collection).split("\n") if text]

    def _actions(self, actions: Iterable[Any]) -> Any:
        found = self.jvm.java.util.ArrayList()
        for action in actions:
            found.add(action)
        to_closeable = self.kernel.internal.util.Utils.toCloseableIterator
        return self.kernel.utils.CloseableIterable.inMemoryIterable(to_closeable(found.iterator()))

    def complete(self, path: str, spec: TableSpec) -> Any | None:
        """The table's newest snapshot; None if there is no table. An older table gets the columns it lacks."""
        snapshot = self.snapshot(path)
        if snapshot is None:
            return None
        known = self.columns(snapshot)
        later = [column for column in spec.columns if column.name not in known]
        if later:
            added = ", ".join(f"`{c.name}` {c.type} COMMENT {literal(c.comment)}" for c in later)
            log.info("%s gets new columns: %s", path, ", ".join(column.name for column in later))
            self._spark.sql(f"ALTER TABLE {delta_table(path)} ADD COLUMNS ({added})")
        return snapshot

    def columns(self, snapshot: Any) -> set[str]:
        """The names of a table's columns."""
        return set(self.jvm.java.lang.String.join("\n", snapshot.getSchema().fieldNames()).split("\n"))

    def _maintain(self, path: str, committed: Any) -> None:
        """Writes a checkpoint if one is due, for a log that is quick to read; or notes that it is due."""
        due = [(path, hook) for hook in committed.getPostCommitHooks()]
        if self._waiting is None:
            self._invoke(due)
        else:
            self._waiting += due

    def defer_upkeep(self) -> None:
        """Makes commits leave their upkeep to `upkeep`, so that a result need not wait for it."""
        self._waiting = []

    def upkeep(self) -> None:
        """Does the upkeep that commits have left, for a log that is quick to read."""
        due, self._waiting = self._waiting or [], []
        self._invoke(due)

    def _invoke(self, due: Iterable[tuple[str, Any]]) -> None:
        for path, hook in due:
            self._invoke_one(path, hook)

    def _invoke_one(self, path: str, hook: Any) -> None:
        """A failure does not undo the commit."""
        try:
            hook.threadSafeInvoke(self.engine)
        except Py4JError as error:
            log.warning("%s: upkeep of its log failed: %s", path, first_line(error))

    def only_appends(self, path: str, after: int, upto: int) -> bool:
        """Returns whether the commits after version `after`, up to `upto`, only added files, with a change feed.

        Other commits replace files, as OPTIMIZE does, or switch the feed off and on.
        """
        if self.properties(path, upto).get("delta.enableChangeDataFeed") != "true":
            return False
        return not self._holds(path, after, upto, REMOVE="remove", METADATA="metaData")

    def takes_files_away(self, path: str, after: int, upto: int) -> bool:
        """Returns whether a commit after version `after`, up to version `upto`, replaced or deleted files."""
        return upto > after and self._holds(path, after, upto, REMOVE="remove")

    def first_removal(self, path: str, after: int, upto: int) -> int | None:
        """The time when those commits first removed a file, in epoch milliseconds; None if they removed none."""
        removed = [_removed_at(batch) for batch in self.actions(path, after, upto, "REMOVE")] if upto > after else []
        return min((at for batch in removed for at in batch), default=None)

    def _holds(self, path: str, after: int, upto: int, **wanted: str) -> bool:
        """Returns whether one of the commits has an action of these kinds, each with its column."""
        actions = self.actions(path, after, upto, *wanted)
        return any(has_any(batch, column) for batch in actions for column in wanted.values())

    def actions(self, path: str, after: int, upto: int, *wanted: str) -> Iterator[Any]:
        """Batches of the actions of these kinds, in the commits after version `after`, up to version `upto`."""
        kinds = self.jvm.java.util.HashSet()
        for kind in wanted:
            kinds.add(getattr(self.kernel.internal.DeltaLogActionUtils.DeltaAction, kind))
        table = self.kernel.Table.forPath(self.engine, path)
        return each(table.getChanges(self.engine, after + 1, upto, kinds))

    def properties(self, path: str, version: int | None) -> dict[str, str]:
        """The table's properties at a version, or now; none if there is no table."""
        snapshot = self.snapshot(path, version)
        return {} if snapshot is None else dict(snapshot.getTableProperties())

    def data_files(self, path: str, version: int | None, run_id: int | None) -> list[str] | None:
        """The files of a table that may hold the run's rows; None if reading them takes more than Parquet."""
        engine = self.engine
        snapshot = self.snapshot(path, version)
        if snapshot is None:
            return []
        if snapshot.getProtocol().getMinReaderVersion() > 1:
            return None
        scan = snapshot.getScanBuilder()
        if run_id is not None:
            scan = scan.withFilter(self._equals("run_id", run_id))
        found = scan.build().getScanFiles(engine)
        add = self.kernel.internal.InternalScanFileUtils.getAddFileStatus
        return [add(row).getPath() for batch in each(found) for row in each(batch.getRows())]

    def _equals(self, column: str, value: int) -> Any:
        expressions = self.kernel.expressions
        operands = self.jvm.java.util.ArrayList()
        operands.add(expressions.Column(column))
        operands.add(expressions.Literal.ofLong(value))
        return expressions.Predicate("=", operands)

    def create(self, path: str, spec: TableSpec) -> None:
        """Creates an empty table, unless another process makes it at the same moment."""
        none = self.kernel.utils.CloseableIterable.emptyIterable()
        try:
            self._builder(path, spec, True).build(self.engine).commit(self.engine, none)
        except Py4JJavaError as error:
            if not is_java(error, *_MADE_MEANWHILE):
                raise

    def _builder(self, path: str, spec: TableSpec, missing: bool) -> Any:
        kernel, engine = self.kernel, self.engine
        operation = kernel.Operation.CREATE_TABLE if missing else kernel.Operation.WRITE
        builder = kernel.Table.forPath(engine, path).createTransactionBuilder(engine, ENGINE_INFO, operation)
        if not missing:
            return builder
        # Kernel writes no description; Spark shows a property of that name as the table's comment.
        properties = {**spec.properties, "comment": spec.comment}
        builder = builder.withSchema(engine, self.struct(spec.struct)).withTableProperties(engine, properties)
        return builder.withPartitionColumns(engine, list(spec.partitioned_by)) if spec.partitioned_by else builder

    def struct(self, schema: StructType) -> Any:
        return self.kernel.internal.types.DataTypeJsonSerDe.deserializeStructType(schema.json())


def has_any(batch: Any, column: str) -> bool:
    """Returns whether a batch has an action in this column."""
    vector = batch.getColumnVector(batch.getSchema().indexOf(column))
    return any(not vector.isNullAt(row) for row in range(batch.getSize()))


def _removed_at(batch: Any) -> list[int]:
    schema = batch.getSchema()
    removes = batch.getColumnVector(schema.indexOf("remove"))
    at = removes.getChild(schema.get("remove").getDataType().indexOf("deletionTimestamp"))
    return [at.getLong(row) for row in range(batch.getSize()) if not removes.isNullAt(row)]
