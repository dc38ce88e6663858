"""Files that the server of Spark Connect sees: listed, and fetched in pieces, by Spark's reader of whole files."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import IO, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from halfop.frame.errors import InputRefused
from halfop.warehouse.disk import LocalDisk, NewFile, local_path
from halfop.warehouse.files import without_patterns
from halfop.warehouse.spark_errors import innermost
from halfop.warehouse.spark_log import is_missing

_PIECE = 1 << 20  # bytes: the server puts as many pieces into a message as it may send
_PIECES = (
    f"transform(sequence(0, greatest(length(content) - 1, 0) div {_PIECE}), "
    f"n -> substring(content, n * {_PIECE} + 1, {_PIECE}))"
)


class ServerFile(NamedTuple):
    """A file: its path with its scheme, without escapes."""

    path: str
    size: int
    sha256: str


def listed(spark: SparkSession, pattern: str) -> list[ServerFile]:
    """Returns the files of a path or a glob, also in folders below; none if nothing matches.

    Names that start with _ or . are left out.
    """
    literal = without_patterns(pattern)
    found = _listed(spark, pattern, literal)
    return found or (_listed(spark, pattern, pattern) if pattern != literal else [])


def fetch(spark: SparkSession, path: str, into: IO[bytes]) -> None:
    """Writes a file's content, without ever holding all of it."""
    try:
        for row in _read(spark, without_patterns(path)).selectExpr(f"explode({_PIECES}) AS piece").toLocalIterator():
            into.write(row["piece"])
    except PySparkException as error:
        raise InputRefused(path, None, f"cannot be read: {innermost(error)}") from error


@dataclass(frozen=True)
class ClientDisk:
    """A folder of this machine, with copies of files that the server sees."""

    spark: SparkSession
    folder: str

    def open(self, path: str) -> pa.NativeFile:
        if not local_path(path).startswith(f"{self.folder}/"):
            path = self._copied(path)
        return LocalDisk().open(path) if os.path.getsize(local_path(path)) else pa.BufferReader(b"")

    def create(self, path: str) -> NewFile:
        return LocalDisk().create(path)

    def _copied(self, path: str) -> str:
        copy = f"{self.folder}/copy-{uuid.uuid5(uuid.NAMESPACE_URL, path)}"
        if not os.path.exists(copy):
            with open(f"{copy}.part", "wb") as file:
                fetch(self.spark, path, file)
            os.rename(f"{copy}.part", copy)
        return copy


def _listed(spark: SparkSession, pattern: str, path: str) -> list[ServerFile]:
    try:
        rows = _read(spark, path).selectExpr("path", "length", "sha2(content, 256)").collect()
    except PySparkException as error:
        if is_missing(error):
            return []
        raise InputRefused(pattern, None, f"cannot be read: {innermost(error)}") from error
    return [ServerFile(*row) for row in rows]


def _read(spark: SparkSession, path: str) -> DataFrame:
    return spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(path)
