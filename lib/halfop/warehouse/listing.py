"""A table's files, listed from Delta's log without a Spark job: as long as they are few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, urlparse

from halfop.warehouse.delta_log import DeltaLog
from halfop.warehouse.schema import TableSpec
from halfop.warehouse.where import Where


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
        of_older_version = where is not None and not set(self.spec.names) <= set(snapshot.names)
        if of_older_version or not snapshot.is_plain(self.spec):
            return None
        near = None if where is None else where.predicate(self.spec.struct)
        found = self.log.files(self.path, snapshot.version, near, self.limits.files, self.limits.bytes)
        files = None if found is None else [Listed(*each) for each in found]
        return files if all(_beside(self.path, file.path) for file in files or ()) else None

    def added(self, after: int, upto: int) -> list[Listed] | None:
        """The files that commits after version `after`, up to `upto`, added to a table without partitions.

        None if they are not few, or if a commit did more than append.
        """
        snapshot = self.log.snapshot(self.path, upto)
        if self.spec.partitioned_by or snapshot is None or not snapshot.is_plain(self.spec):
            return None
        found = self.log.changes(self.path, after, upto, "ADD", "REMOVE", "METADATA")
        others_rows_again = not all(brings_rows for _, _, brings_rows in found.added)
        if found.removed or found.changed or others_rows_again:
            return None
        files = [Listed(self._whole(unquote(name)), size, {}) for name, size, _ in found.added]
        few = len(files) <= self.limits.files and sum(file.size for file in files) <= self.limits.bytes
        return files if few else None

    def _whole(self, name: str) -> str:
        return name if ":/" in name else f"{self.path}/{name}"


def _beside(table: str, file: str) -> bool:
    """Returns whether a file lies on its table's file system; that of a shallow clone may lie elsewhere."""
    here, there = (urlparse(path)[:2] for path in (table, file))
    return (here[0] or "file", here[1]) == (there[0] or "file", there[1])
