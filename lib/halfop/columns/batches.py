"""Rows that a function over Arrow batches makes, in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

Making = Callable[[pa.RecordBatch], pa.RecordBatch]


def made_of(rows: DataFrame, make: Making, gives: StructType) -> DataFrame:
    """Returns the rows that a function makes of batches of these.

    This is `DataFrame.mapInArrow`, which asks for pandas and then uses none: only Spark Connect's client has it anyway.
    Spark 4.0 has no Arrow UDF.
    """
    if not isinstance(rows, ClassicFrame):
        return rows.mapInArrow(partial(_each, make), gives)
    udf = UserDefinedFunction(partial(_each, make), gives, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    made = rows._jdf.mapInArrow(udf(*rows.columns)._jc, False, None)
    return DataFrame(made, rows.sparkSession)


def _each(make: Making, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return map(make, batches)
