"""Input files read by Spark: on file systems that its workers' Python cannot read, or if a listener must see it all.

Spark hands the rows to the same functions as the other ways use: once to be checked, and once to be landed.
"""

from __future__ import annotations

import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import BinaryType, StructField, StructType

from halfop.frame.errors import InputRefused
from halfop.landing.columns.fields import fields
from halfop.landing.files import json_rows, parquet_rows
from halfop.landing.files.own_life import Stamp, in_own_life
from halfop.landing.files.pieces import Found
from halfop.landing.files.rows import BAD_ROW, bad_rows, table_rows
from halfop.landing.files.sources import InputFile
from halfop.landing.files.typed import Typed
from halfop.landing.paths import one_form, shown_path
from halfop.landing.tables import TABLES
from halfop.warehouse.in_memory import map_in_arrow
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.schema import table
from halfop.warehouse.session import few_rows_settings
from halfop.warehouse.spark_errors import innermost
from halfop.warehouse.tables import Warehouse

_THREADS = 4
_FILE_IN_ERROR = re.compile(r"(?:reading|footer for) file:? '?([a-z0-9]+:/[^\s'\]]+)", re.IGNORECASE)
_PLACE = ["file", "block", "place"]
Make = Callable[[Found, Typed], pa.RecordBatch]


class BySpark:
    """Files of any number of rows."""

    def __init__(self, warehouse: Warehouse, files: Sequence[InputFile], stamp: Stamp) -> None:
        few_rows_settings(warehouse.spark).leave()
        self._warehouse, self._stamp, self._files = warehouse, stamp, files
        self._frames = [part for kind in TABLES for part in _frames(warehouse.spark, kind, files)]
        self.found = self._counted()

    def append(self, kind: str) -> None:
        rows = self.rows(kind)
        if rows is not None:
            self._warehouse.append(TABLES[kind], rows)

    def rows(self, kind: str) -> DataFrame | None:
        if not any(part.kind == kind for part in self._frames):
            return None
        name, stamp = TABLES[kind], self._stamp
        schema = arrow_schema(table(name).struct)

        def make(_: Found, typed: Typed) -> pa.RecordBatch:
            return table_rows(in_own_life(typed, stamp), stamp).cast(schema)

        return self._mapped(make, table(name).struct, kind)

    def bad(self) -> DataFrame:
        return self._mapped(lambda found, typed: bad_rows(found.uri, found.start, typed), from_arrow_schema(BAD_ROW))

    def close(self) -> None:
        """Spark has kept nothing."""

    def _mapped(self, make: Make, struct: StructType, *kinds: str) -> DataFrame:
        frames = [part.mapped(make, struct) for part in self._frames if part.kind in (kinds or TABLES)]
        return reduce(DataFrame.unionAll, frames)

    def _counted(self) -> list[Found]:
        counted = [part.counted(self._stamp) for part in self._frames]
        try:
            rows = reduce(DataFrame.unionAll, counted).collect() if counted else []
        except (PySparkException, Py4JJavaError) as error:
            refused = _refused(error, self._files)
            raise error if refused is None else refused from error
        unknown = [Found(part.kind, part.format, "", unknown=part.unknown) for part in self._frames]
        return unknown + [pickle.loads(row["found"]) for row in rows]  # noqa: S301 - our own worker made it


class _Frame(NamedTuple):
    """Rows of one kind as Spark reads them, each with its place; `unknown` are names of columns that none knows."""

    kind: str
    format: str
    rows: DataFrame
    unknown: set[str]

    def mapped(self, make: Make, struct: StructType) -> DataFrame:
        kind, format_ = self.kind, self.format

        def of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return (make(found, typed) for found, typed in _typed(kind, format_, batches, {}))

        return map_in_arrow(self.rows, of_task, struct)

    def counted(self, stamp: Stamp) -> DataFrame:
        kind, format_ = self.kind, self.format

        def of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            pieces: dict[tuple[str, int], Found] = {}
            for found, given in _typed(kind, format_, batches, pieces):
                typed = in_own_life(given, stamp)
                found.see(typed)
                found.good += len(table_rows(typed, stamp))
            yield pa.RecordBatch.from_pydict({"found": pa.array(map(pickle.dumps, pieces.values()), pa.binary())})

        return map_in_arrow(self.rows, of_task, StructType([StructField("found", BinaryType())]))


def _typed(
    kind: str, format_: str, batches: Iterable[pa.RecordBatch], pieces: dict[tuple[str, int], Found]
) -> Iterator[tuple[Found, Typed]]:
    """The rows of a task, those of each piece of a file apart; all of a piece come to one task, in their order."""
    for batch in batches:
        for uri, block, rows in _of_pieces(batch):
            found = pieces.setdefault((uri, block), Found(kind, format_, uri, block))
            if format_ == "json":
                yield found, json_rows.typed(kind, rows["value"].to_pylist(), found.lines)
                found.lines += len(rows)
            else:
                yield found, parquet_rows.typed(kind, rows.drop_columns(_PLACE), rows["place"].to_numpy())


def _of_pieces(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    files, blocks = batch["file"].dictionary_encode(), batch["block"].to_numpy()
    code = files.indices.to_numpy()
    changes = np.flatnonzero((np.diff(code) != 0) | (np.diff(blocks) != 0)) + 1
    for start, end in pairwise([0, *changes.tolist(), len(batch)]):
        if end > start:
            yield one_form(files.dictionary[code[start]].as_py()), int(blocks[start]), batch.slice(start, end - start)


# ---- frames ----


def _frames(spark: SparkSession, kind: str, files: Sequence[InputFile]) -> Iterator[_Frame]:
    mine = [file for file in files if file.kind == kind]
    texts = [file.path for file in mine if file.format == "json"]
    if texts:
        yield _Frame(kind, "json", _lines(spark, texts), set())
    parquet = [file for file in mine if file.format == "parquet"]
    with ThreadPoolExecutor(_THREADS) as pool:
        schemas = list(pool.map(partial(_schema, spark), parquet))
    by_schema: dict[StructType, list[str]] = defaultdict(list)
    for file, struct in zip(parquet, schemas, strict=True):
        parquet_rows.check_schema(kind, file.shown, _in_arrow(kind, struct))
        by_schema[struct].append(file.path)
    for struct, paths in by_schema.items():
        schema = _in_arrow(kind, struct)
        names = parquet_rows.columns_read(kind, schema).names
        rows = _reader(spark).schema(struct).parquet(*paths)
        place = ["_metadata.file_path AS file", "0L AS block", "_metadata.row_index AS place"]
        yield _Frame(kind, "parquet", rows.selectExpr(*names, *place), parquet_rows.unknown_names(kind, schema))


def _lines(spark: SparkSession, paths: list[str]) -> DataFrame:
    place = ["_metadata.file_path AS file", "_metadata.file_block_start AS block"]
    return _reader(spark).text(paths).selectExpr("CAST(value AS BINARY) AS value", *place)


def _schema(spark: SparkSession, file: InputFile) -> StructType:
    try:
        return _reader(spark).parquet(file.path).schema
    except (PySparkException, Py4JJavaError) as error:
        raise InputRefused(file.shown, None, f"not a readable Parquet file: {innermost(error)}") from error


def _in_arrow(kind: str, struct: StructType) -> pa.Schema:
    """The columns as Arrow has them; those that nobody knows may be of any type."""
    known = {field.name for field in fields(kind)}
    return pa.schema(
        [(f.name, to_arrow_type(f.dataType, timezone="UTC") if f.name in known else pa.null()) for f in struct]
    )


def _reader(spark: SparkSession) -> DataFrameReader:
    return spark.read.option("recursiveFileLookup", "true").option("ignoreCorruptFiles", "false")


def _refused(error: PySparkException | Py4JJavaError, files: Sequence[InputFile]) -> InputRefused | None:
    """The refusal that a failed Spark job stands for; None if it did not fail on reading an input file."""
    named = {shown_path(found.rstrip(".")) for found in _FILE_IN_ERROR.findall(str(error))}
    file = next((f for f in files if f.shown in named), None)
    return None if file is None else InputRefused(file.shown, None, f"cannot be read: {innermost(error)}")
