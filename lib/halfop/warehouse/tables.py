"""The warehouse: tables by name, made from their schemas, read at a version, appended to at most once a run."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from halfop.frame.errors import LostRows
from halfop.warehouse.delta_log import AlreadyWrittenError, DataFile, DeltaLog
from halfop.warehouse.files import Files
from halfop.warehouse.schema import TableSpec, table
from halfop.warehouse.spark_errors import SPARK_ERRORS, overtaken

NO_TABLE = -1
_FEWEST_ROWS_A_TASK, _MOST_ROWS_A_TASK = 50_000, 1_000_000


@dataclass(frozen=True)
class Warehouse:
    spark: SparkSession
    root: str
    _made: set[str] = field(default_factory=set, repr=False)

    @cached_property
    def log(self) -> DeltaLog:
        return DeltaLog(self.spark)

    @cached_property
    def files(self) -> Files:
        return Files(self.spark, self.root)

    def path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def version(self, name: str) -> int:
        return self.log.version(self.path(name))

    def schema(self, name: str) -> StructType:
        return table(name).struct

    def declared(self, name: str) -> dict[str, str]:
        """The table's properties as its schema declares them."""
        return _spec(name).properties

    def read(self, name: str, version: int | None = None) -> DataFrame:
        """The table, at a version; an empty frame if there is no table (NO_TABLE).

        Columns that the schema got later are null.
        """
        if version == NO_TABLE or (version is None and self.version(name) == NO_TABLE):
            return self.empty(name)
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        rows = reader.load(self.path(name))
        later = {f.name: F.lit(None).cast(f.dataType) for f in _spec(name).struct if f.name not in rows.columns}
        return rows.withColumns(later) if later else rows

    def empty(self, name: str) -> DataFrame:
        nulls = [F.lit(None).cast(f.dataType).alias(f.name) for f in _spec(name).struct]
        return self.spark.range(1).select(nulls).limit(0)  # a limit of 0 lets the optimizer drop all that joins with it

    def frame(self, rows: Iterable[Sequence[object]], columns: str) -> DataFrame:
        """A small frame of given values (`columns` as DDL), made without a Python worker."""
        struct = cast(StructType, StructType.fromDDL(columns))
        named = [dict(zip(struct.names, row, strict=True)) for row in rows]
        return self.spark.createDataFrame(pa.Table.from_pylist(named, schema=_arrow(struct)))

    def tasks(self, rows: int) -> int:
        """The number of tasks to write so many rows: few, for large files, but every core busy in each round."""
        cores = int(self.spark.sparkContext.defaultParallelism)
        most = math.ceil(rows / _MOST_ROWS_A_TASK / cores) * cores
        return max(1, min(most, math.ceil(rows / _FEWEST_ROWS_A_TASK)))

    def landed_between(self, name: str, before: int, upto: int) -> DataFrame:
        """The rows that landed after version `before`, up to and with version `upto`.

        The change feed reads just these, from the files that they landed in. If a VACUUM has removed those files after
        an OPTIMIZE wrote others, the rows are found by the version that each row carries.
        """
        if before == upto:
            return self.empty(name)
        if before == NO_TABLE:
            return self.read(name, upto)
        with suppress(*SPARK_ERRORS):  # of versions whose log has been cleaned up
            if self.log.only_appends(self.path(name), before, upto):
                return self._feed(name, before, upto)
        versions = F.col("_metadata.row_commit_version")
        return self.read(name, upto).where((versions > before) & (versions <= upto))

    def _feed(self, name: str, before: int, upto: int) -> DataFrame:
        feed = self.spark.read.format("delta").option("readChangeFeed", "true")
        rows = feed.option("startingVersion", before + 1).option("endingVersion", upto).load(self.path(name))
        inserted: Column = F.col("_change_type") == "insert"
        return rows.where(inserted).drop("_change_type", "_commit_version", "_commit_timestamp")

    def make(self, *names: str) -> None:
        """Creates the tables that are missing, and adds columns that an older version of halfop did not know.

        Landing tables need features that only Spark's connector switches on.
        """
        missing = [name for name in names if name not in self._made]
        with ThreadPoolExecutor(max(len(missing), 1)) as pool:  # they wait for the log's files more than they work
            list(pool.map(self._complete, missing))
        self._made.update(missing)

    def _complete(self, name: str) -> None:
        if self.log.complete(self.path(name), table(name)) is None:
            self._create(table(name))

    def _create(self, spec: TableSpec) -> None:
        if not spec.landing:
            self.log.create(self.path(spec.name), spec)
            return
        builder = DeltaTable.createIfNotExists(self.spark).location(self.path(spec.name)).comment(spec.comment)
        for column, kind in zip(spec.columns, spec.struct.fields, strict=True):
            builder = builder.addColumn(
                column.name, kind.dataType, comment=column.comment, generatedAlwaysAs=column.generated
            )
        for key, value in spec.properties.items():
            builder = builder.property(key, value)
        builder.execute()

    def append(self, name: str, rows: DataFrame) -> None:
        """Appends rows plainly, for landing: a row that lands twice counts once by the rules, not by the write."""
        rows.select(*table(name).written).write.format("delta").mode("append").save(self.path(name))

    def append_once(self, name: str, rows: DataFrame, app: str, run_id: int) -> None:
        """Appends a run's rows. A second write under the same app and run, now or ever, changes nothing."""
        spec = table(name)
        writer = rows.select(*spec.written).write.format("delta").mode("append")
        try:
            writer.option("txnAppId", app).option("txnVersion", run_id).save(self.path(name))
        except SPARK_ERRORS as error:
            if not overtaken(error) or self.marker(name, app) < run_id:
                raise

    # ---- tables of few rows, without a Spark job ----

    def rows(self, name: str, version: int | None = None, run_id: int | None = None) -> list[dict[str, Any]]:
        """All rows of a small table, or one run's; times with their zone, UTC."""
        if version == NO_TABLE or (version is None and self.version(name) == NO_TABLE):
            return []
        paths = self.log.data_files(self.path(name), version, run_id)
        if paths is None:
            parts = [self.read(name, version).toArrow()]
        else:
            schema = _arrow(table(name).struct)
            parts = [_as_declared(_parquet(self.files.read(path)), schema) for path in paths]
        found = [row for part in parts for row in part.to_pylist(maps_as_pydicts="strict")]
        return [row for row in found if run_id is None or row["run_id"] == run_id]

    def append_rows_once(self, name: str, rows: Sequence[Mapping[str, object]], app: str, run_id: int) -> None:
        """Appends a few rows of a table that has run_id, once as append_once does."""
        spec = table(name)
        content = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows, schema=_arrow(spec.struct)), content)
        file = self.files.write(f"{self.path(name)}/part-{uuid.uuid4()}.parquet", content.getvalue().to_pybytes())
        bounds = {"minValues": {"run_id": run_id}, "maxValues": {"run_id": run_id}, "nullCount": {"run_id": 0}}
        stats = json.dumps({"numRecords": len(rows)} | bounds)
        with suppress(AlreadyWrittenError):
            self.log.commit_files(self.path(name), spec, app, run_id, [DataFile(*file, stats)])

    def marker(self, name: str, app: str) -> int:
        """The last run that appended to the table under this app id; -1 if none did."""
        return self.log.marker(self.path(name), app)

    def refuse_lost(self, name: str, run_id: int) -> None:
        """Raises LostRows if the rows of a run were removed: RESTORE keeps the marker, not the rows."""
        if self.log.data_files(self.path(name), None, run_id) == []:
            raise LostRows(self.path(name), run_id)


def _spec(name: str) -> TableSpec:
    return table("real_topic" if name.startswith("topics/") else name)


def _arrow(struct: StructType) -> pa.Schema:
    return to_arrow_schema(struct, timezone="UTC")


def _parquet(content: bytes) -> pa.Table:
    # In this thread: with a pool's under way, Arrow may abort the process when it ends (apache/arrow#34314).
    file = pq.ParquetFile(pa.BufferReader(content), coerce_int96_timestamp_unit="us")
    return file.read(use_threads=False)


def _as_declared(part: pa.Table, schema: pa.Schema) -> pa.Table:
    """A file's columns as the schema has them; null if an older version did not know the column."""
    known = [part[f.name].cast(f.type) if f.name in part.column_names else pa.nulls(len(part), f.type) for f in schema]
    return pa.Table.from_arrays(known, schema=schema)
