"""Delta's connector: the fallback for tables that take more than files to read or write, or more files than few.

A column mapping, deletion vectors, constraints, or columns still to come are such; so is a log that was cleaned up.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F

from halfop.warehouse.schema import TableSpec, delta_table
from halfop.warehouse.spark_errors import SPARK_ERRORS, or_else, overtaken
from halfop.warehouse.tables import Marker

_LATELY = 100  # commits: as many may come between a commit and the look for it
_VERSION = "_metadata.row_commit_version"


class ConnectorLog(Protocol):
    """The part of a log that the connector asks, and reports to."""

    def marker(self, path: str, app: str) -> int: ...
    def only_appends(self, path: str, after: int, upto: int) -> bool: ...
    def was_read(self, path: str, version: int | None) -> None: ...
    def was_written(self, path: str, spec: TableSpec) -> None: ...


@dataclass(frozen=True)
class Connector:
    """Reads and writes tables by their paths."""

    spark: SparkSession
    log: ConnectorLog

    def read(self, path: str, spec: TableSpec, version: int | None = None, **options: str) -> DataFrame:
        """Returns the table's rows; columns that it does not have yet are null."""
        return whole(self.read_as_it_is(path, version, **options), spec)

    def read_as_it_is(self, path: str, version: int | None = None, **options: str) -> DataFrame:
        """Returns the table's rows with the columns that it has."""
        self.log.was_read(path, version)
        options |= {} if version is None else {"versionAsOf": str(version)}
        return self.spark.read.format("delta").options(**options).load(path)

    def added(self, path: str, spec: TableSpec, before: int, upto: int) -> DataFrame:
        """Returns the rows that landed between two versions: by the change feed, if the table still has that."""
        with or_else(f"reading {spec.name}", *SPARK_ERRORS):  # its log, or files, may be cleaned up
            if self.log.only_appends(path, before, upto):
                feed = {"readChangeFeed": "true", "startingVersion": str(before + 1), "endingVersion": str(upto)}
                return self.read(path, spec, None, **feed).where("_change_type = 'insert'").select(*spec.names)
        versions = F.col(_VERSION) if spec.landing else F.lit(upto)
        return self.read(path, spec, upto).where((versions > before) & (versions <= upto))

    def before(self, path: str, spec: TableSpec, before: int, upto: int) -> DataFrame:
        """Returns the rows up to version `before`, as version `upto` has them."""
        return self.read(path, spec, upto).where(F.col(_VERSION) <= before)

    def commit(self, path: str, spec: TableSpec, rows: DataFrame, marker: Marker | None) -> None:
        """Appends rows in the table's form; with a marker once."""
        try:
            _appending(rows, marker).save(path)
        except SPARK_ERRORS as error:
            if marker is None or not overtaken(error) or self.log.marker(path, marker.app) < marker.number:
                raise
        else:
            self.log.was_written(path, spec)

    def commit_first(self, path: str, rows: DataFrame, marker: Marker) -> bool:
        """Appends rows; returns whether this call has: Delta passes in silence over a number that the table has."""
        mine = str(uuid.uuid4())
        try:
            _appending(rows, marker).option("userMetadata", mine).save(path)
        except SPARK_ERRORS as error:
            if not overtaken(error):  # by another, or by itself: an answer was lost
                raise
        lately = self.spark.sql(f"DESCRIBE HISTORY {delta_table(path)} LIMIT {_LATELY}")
        return not lately.where(F.col("userMetadata") == mine).isEmpty()


def whole(rows: DataFrame, spec: TableSpec) -> DataFrame:
    """Returns a table's rows with all of its columns, null where they are still to come; else the same frame."""
    later = {f.name: F.lit(None).cast(f.dataType) for f in spec.struct if f.name not in rows.columns}
    return rows.withColumns(later) if later else rows


def _appending(rows: DataFrame, marker: Marker | None) -> DataFrameWriter:
    writer = rows.write.format("delta").mode("append")
    return writer if marker is None else writer.options(txnAppId=marker.app, txnVersion=marker.number)
