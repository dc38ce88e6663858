"""The rows of all files of a kind as one frame, and where each row stands in its file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from halfop.frame.errors import InputRefused
from halfop.landing.files import json_rows, parquet_rows
from halfop.landing.files.sources import InputFile, contents
from halfop.landing.paths import shown_path
from halfop.warehouse.session import few_rows_settings
from halfop.warehouse.spark_errors import innermost

_THREADS = 4
_FILE_IN_ERROR = re.compile(r"(?:reading|footer for) file:? '?([a-z0-9]+:/[^\s'\]]+)", re.IGNORECASE)


class Rows:
    """Typed rows of files of one kind, with `problem`, `unknown`, `file`, `block` and `place`; nothing is read yet
    but the schemas of Parquet files."""

    def __init__(self, spark: SparkSession, kind: str, files: Sequence[InputFile]) -> None:
        self.kind, self.files, self._spark = kind, files, spark
        self._json = [f for f in files if f.format == "json"]
        self._parquet = [f for f in files if f.format == "parquet"]
        self.unknown: set[str] = set()

    @cached_property
    def _lines(self) -> DataFrame:
        few = contents(self._spark, self._json)
        if few is None:
            few_rows_settings(self._spark).leave()
            return json_rows.read_lines(self._spark, [f.path for f in self._json])
        return json_rows.lines_of(self._spark, few)

    @cached_property
    def frame(self) -> DataFrame:
        frames = [json_rows.typed_rows(self._lines, self.kind)] if self._json else []
        return reduce(DataFrame.unionByName, frames + self._parquet_frames())

    def _parquet_frames(self) -> list[DataFrame]:
        by_schema: dict[StructType, list[str]] = defaultdict(list)
        with ThreadPoolExecutor(_THREADS) as pool:
            schemas = list(pool.map(self._schema, self._parquet))
        for file, schema in zip(self._parquet, schemas, strict=True):
            parquet_rows.check_schema(file, schema)
            self.unknown |= parquet_rows.unknown_names(schema, self.kind)
            by_schema[schema].append(file.path)
        return [parquet_rows.read_rows(self._spark, paths, schema, self.kind) for schema, paths in by_schema.items()]

    def _schema(self, file: InputFile) -> StructType:
        try:
            return parquet_rows.file_schema(self._spark, file)
        except (PySparkException, Py4JJavaError) as error:
            raise InputRefused(file.shown, None, f"not a readable Parquet file: {innermost(error)}") from error

    def bad(self, most: int | None = None) -> DataFrame:
        """The rows with a problem, at most `most`, with `line`: from 1 in JSON lines, Parquet's row_index."""
        bad = self.frame.where(F.col("problem").isNotNull())
        if most is not None:
            bad = bad.orderBy("file", "block", "place").limit(most)
        if not self._json:
            return bad.withColumn("line", F.col("place"))
        ahead = F.col("lines_before") + F.col("place") - F.col("first_place") + 1
        return bad.join(self._blocks(), ["file", "block"], "left").withColumn("line", F.coalesce(ahead, "place"))

    def _blocks(self) -> DataFrame:
        """The number of lines before each block of the text files; only needed if there are bad rows."""
        blocks = self._lines.groupBy("file", "block").agg(F.count("*").alias("n"), F.min("place").alias("first_place"))
        before = Window.partitionBy("file").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
        counted = blocks.withColumn("lines_before", F.coalesce(F.sum("n").over(before), F.lit(0)))
        return F.broadcast(counted.drop("n"))


def refused_reading(error: PySparkException | Py4JJavaError, files: Sequence[InputFile]) -> InputRefused | None:
    """The refusal that a failed Spark job stands for; None if it did not fail on reading an input file."""
    named = {shown_path(found.rstrip(".")) for found in _FILE_IN_ERROR.findall(str(error))}
    file = next((f for f in files if f.shown in named), None)
    return None if file is None else InputRefused(file.shown, None, f"cannot be read: {innermost(error)}")
