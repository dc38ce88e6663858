"""A table's files, listed from Delta's log without a Spark job: as long as they are few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

from halfop.warehouse.actions import each
from halfop.warehouse.delta_log import DeltaLog, has_any
from halfop.warehouse.schema import TableSpec
from halfop.warehouse.where import Value, Where


class Listed(NamedTuple):
    """A data file of a table, with the values of its partition."""

    path: str
    size: int
    partition: Mapping[str, str]


@dataclass(frozen=True)
class Limits:
    """The most that counts as few."""

    files: int
    bytes: int
    rows: int


@dataclass(frozen=True)
class TableFiles:
    """The files of one table."""

    log: DeltaLog
    path: str
    spec: TableSpec
    limits: Limits

    def of(self, version: int | None, where: Where | None) -> list[Listed] | None:
        """The files of a version that may hold such rows.

        None if they are not few, or if more than Parquet is needed to read them.
        """
        snapshot = self.log.snapshot(self.path, version)
        if snapshot is None:
            return []
        if not self.log.is_plain(snapshot, self.spec):
            return None
        scan = snapshot.getScanBuilder()
        if where is not None:
            if not set(self.spec.names) <= self.log.columns(snapshot):  # of an older version of halfop
                return None
            scan = scan.withFilter(where.predicate(self.spec.struct, _Predicates(self.log)))
        found = scan.build().getScanFiles(self.log.engine)
        files = _few((self._listed(row) for batch in each(found) for row in each(batch.getRows())), self.limits)
        return files if all(_beside(self.path, file.path) for file in files or ()) else None

    def _listed(self, row: Any) -> Listed:
        utils = self.log.kernel.internal.InternalScanFileUtils
        status = utils.getAddFileStatus(row)
        partition = dict(utils.getPartitionValues(row)) if self.spec.partitioned_by else {}
        return Listed(status.getPath(), status.getSize(), partition)

    def added(self, after: int, upto: int) -> list[Listed] | None:
        """The files that commits after version `after`, up to `upto`, added to a table without partitions.

        None if they are not few, or if a commit did more than append.
        """
        if self.spec.partitioned_by or not self.log.is_plain(self.log.snapshot(self.path, upto), self.spec):
            return None
        batches = list(self.log.actions(self.path, after, upto, "ADD", "REMOVE", "METADATA"))
        if any(has_any(batch, other) for batch in batches for other in ("remove", "metaData")):
            return None
        found = [file for batch in batches for file in _added(batch, self.path)]
        return None if any(file is None for file in found) else _few(filter(None, found), self.limits)


def _added(batch: Any, path: str) -> Iterator[Listed | None]:
    """The files that a batch adds; None for one that adds no rows, but others' rows once more."""
    schema = batch.getSchema()
    at, kind = schema.indexOf("add"), schema.get("add").getDataType()
    adds = batch.getColumnVector(at)
    paths, sizes, changes = (adds.getChild(kind.indexOf(name)) for name in ("path", "size", "dataChange"))
    for row in range(batch.getSize()):
        if not adds.isNullAt(row):
            name = unquote(paths.getString(row))
            file = Listed(name if ":/" in name else f"{path}/{name}", sizes.getLong(row), {})
            yield file if changes.getBoolean(row) else None


def _beside(table: str, file: str) -> bool:
    """Returns whether a file lies on its table's file system; that of a shallow clone may lie elsewhere."""
    here, there = (urlparse(path)[:2] for path in (table, file))
    return (here[0] or "file", here[1]) == (there[0] or "file", there[1])


def _few(files: Iterable[Listed], limits: Limits) -> list[Listed] | None:
    found: list[Listed] = []
    size = 0
    for file in files:
        found.append(file)
        size += file.size
        if len(found) > limits.files or size > limits.bytes:
            return None
    return found


@dataclass(frozen=True)
class _Predicates:
    log: DeltaLog

    def compared(self, sign: str, column: str, literal: str, value: Value) -> Any:
        expressions = self.log.kernel.expressions
        return self._predicate(sign, expressions.Column(column), getattr(expressions.Literal, literal)(value))

    def is_null(self, column: str) -> Any:
        return self._predicate("IS_NULL", self.log.kernel.expressions.Column(column))

    def joined(self, sign: str, left: Any, right: Any) -> Any:
        return self._predicate(sign, left, right)

    def _predicate(self, sign: str, *operands: Any) -> Any:
        all_operands = self.log.jvm.java.util.ArrayList()
        for operand in operands:
            all_operands.add(operand)
        return self.log.kernel.expressions.Predicate(sign, all_operands)
