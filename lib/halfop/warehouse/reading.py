"""Rows of a table at a version: files that Delta's log lists, without a Spark job, read here if few, else by Spark.

The first query of Delta's connector in a process costs seconds, whatever it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from halfop.warehouse.delta_log import DeltaLog
from halfop.warehouse.disk import Listed
from halfop.warehouse.files import without_patterns
from halfop.warehouse.parquet import ParquetReader, arrow_schema
from halfop.warehouse.rows import FoundRows
from halfop.warehouse.schema import TableSpec
from halfop.warehouse.where import Where


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
        files = self.log.files(self.path, snapshot.version, near, self.limits.files, self.limits.bytes)
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


# More is Spark's: its tasks read side by side, and with compiled code. By bench/few.py a warm run over 10,000 messages,
# of some 260 bytes each, takes as long either way. A thousand files of three rows, which a day of cycles leaves, take
# half as long as by Spark.
FEW = Limits(files=1_024, bytes=4 * 1024 * 1024, rows=16_000)
ANY = Limits(files=2**31, bytes=2**62, rows=2**62)


def are_few(files: Sequence[Listed]) -> bool:
    """Returns whether these files are so few that this process reads them."""
    return len(files) <= FEW.files and sum(file.size for file in files) <= FEW.bytes


@dataclass(frozen=True)
class FewRows:
    """Reads of one warehouse's tables; None if the rows are not few."""

    log: DeltaLog
    reader: ParquetReader

    def of(self, path: str, spec: TableSpec, version: int | None, where: Where | None) -> FoundRows | None:
        """The rows of a version that meet the condition."""
        found = self._read(spec, TableFiles(self.log, path, spec, FEW).of(version, where))
        if found is None or where is None:
            return found
        return found._replace(rows=found.rows.filter(where.expression(spec.struct)))

    def added(self, path: str, spec: TableSpec, after: int, upto: int) -> FoundRows | None:
        """The rows that the commits after version `after`, up to `upto`, appended."""
        return self._read(spec, TableFiles(self.log, path, spec, FEW).added(after, upto))

    def of_files(self, files: Sequence[Listed], struct: StructType) -> pa.Table | None:
        """The rows of these files."""
        return self.reader.table(files, arrow_schema(struct), FEW.rows)

    def _read(self, spec: TableSpec, files: Sequence[Listed] | None) -> FoundRows | None:
        rows = None if files is None else self.of_files(files, spec.struct)
        return None if files is None or rows is None else FoundRows(rows, len(files))


# This process lists the files, and Spark looks at each before it plans, which is a request elsewhere than on a local
# disk. More files are the connector's, whose tasks list them.
_MOST_FILES, _MOST_FILES_ELSEWHERE = 1_000, 100


def limits(is_local: bool) -> Limits:
    """The most that is read so."""
    return Limits(files=_MOST_FILES if is_local else _MOST_FILES_ELSEWHERE, bytes=2**63, rows=2**63)


def rows_of(spark: SparkSession, spec: TableSpec, files: Sequence[Listed]) -> DataFrame:
    """The rows of some files of a table that takes no more than Parquet to read."""
    if not files:
        return spark.createDataFrame([], spec.struct)
    parts = [
        _of_partition(spark, spec.struct, dict(values), [file.path for file in same])
        for values, same in groupby(sorted(files, key=_values), key=_values)
    ]
    return reduce(DataFrame.unionByName, parts)


def _values(file: Listed) -> list[tuple[str, str]]:
    return sorted(file.partition.items())


def _of_partition(spark: SparkSession, struct: StructType, values: dict[str, str], paths: Sequence[str]) -> DataFrame:
    """Reads the files of one partition; its columns do not count if the files have them, too."""
    in_files = StructType([StructField(f.name, f.dataType) for f in struct if f.name not in values])
    given = {name: F.lit(text).cast(struct[name].dataType) for name, text in values.items()}
    return parquet(spark, in_files, paths).withColumns(given).select(struct.names)


def parquet(spark: SparkSession, struct: StructType, paths: Sequence[str]) -> DataFrame:
    """The rows of Parquet files; columns that a file lacks are null."""
    return spark.read.schema(struct).parquet(*map(without_patterns, paths))
