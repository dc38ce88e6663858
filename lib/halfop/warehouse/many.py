"""Many rows of a table, read by Spark from the files that Delta's log lists.

The first query of Delta's connector in a process costs seconds, whatever it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import groupby

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from halfop.warehouse.files import without_patterns
from halfop.warehouse.listing import Limits, Listed
from halfop.warehouse.schema import TableSpec
from halfop.warehouse.session import few_rows_settings

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
    few_rows_settings(spark).leave()
    return spark.read.schema(struct).parquet(*map(without_patterns, paths))
