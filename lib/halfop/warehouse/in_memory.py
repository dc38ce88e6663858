"""Frames whose rows are in memory, and frames that a run keeps at hand.

Spark plans what is done with rows in memory, and reads no file for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType
from pyspark.util import PythonEvalType

_NESTED = (ArrayType, MapType, StructType)
_IN_MEMORY = ("LocalRelation", "OneRowRelation")


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """The rows as a frame; if they are few, Spark keeps them in the plan itself."""
    return spark.createDataFrame(_with_a_batch(rows))


def is_in_memory(rows: DataFrame) -> bool:
    """Returns whether all that the frame is made of is in memory: then its rows are few, too."""
    query: Any = rows._jdf.queryExecution()  # the optimizer leaves out what an empty part makes needless
    return _are_in_memory(query.analyzed()) or _are_in_memory(query.optimizedPlan())


def _are_in_memory(plan: Any) -> bool:
    leaves = plan.collectLeaves()
    return all(_name(leaves.apply(n)) in _IN_MEMORY for n in range(leaves.size()))


def _name(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


def computed(rows: DataFrame) -> DataFrame | None:
    """A frame in memory as one that no longer knows how it was made, computed now; None of any other frame."""
    struct = cast(StructType, _nullable(rows.schema))
    found = as_arrow(rows, struct)
    return None if found is None else rows.sparkSession.createDataFrame(_with_a_batch(found), schema=struct)


def at_hand(rows: DataFrame) -> DataFrame:
    """The rows, computed now and cut off from the plan that made them; Spark frees them when nobody holds them."""
    found = computed(rows)
    return rows.localCheckpoint() if found is None else found


def as_arrow(rows: DataFrame, struct: StructType | None = None) -> pa.Table | None:
    """The rows of a frame in memory, with the types of the schema; None of any other frame.

    Spark makes the plan of a frame once: what looks at it and what runs it must be the same frame.
    """
    wanted = struct or cast(StructType, _nullable(rows.schema))
    nested = {f.name: f.dataType for f in wanted if isinstance(f.dataType, _NESTED)}
    typed = rows.withColumns({name: F.col(name).cast(kind) for name, kind in nested.items()}) if nested else rows
    return typed.toArrow() if is_in_memory(typed) else None


def through_arrow(rows: DataFrame, make: Callable[[pa.RecordBatch], pa.RecordBatch], struct: StructType) -> DataFrame:
    """The rows that a function over Arrow makes of rows: here if they are in memory, else in Spark's workers."""
    here, schema = as_arrow(rows), to_arrow_schema(struct, timezone="UTC")

    def made(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (make(batch).select(schema.names).cast(schema) for batch in batches)

    if here is None:
        return map_in_arrow(rows, made, struct)
    return frame_of(rows.sparkSession, pa.Table.from_batches(made(_with_a_batch(here).to_batches()), schema))


def map_in_arrow(
    rows: DataFrame, make: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], struct: StructType
) -> DataFrame:
    """Does the same as DataFrame.mapInArrow, which requires pandas although it uses none of it."""
    udf = vectorized_udf(make, struct, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*(rows[name] for name in rows.columns))
    jdf: Any = rows._jdf
    return DataFrame(jdf.mapInArrow(column._jc, False, None), rows.sparkSession)


def _nullable(kind: DataType) -> DataType:
    """The type with nulls allowed everywhere: Arrow refuses a null struct whose fields may not be null."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable(f.dataType)) for f in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    return MapType(kind.keyType, _nullable(kind.valueType)) if isinstance(kind, MapType) else kind


def _with_a_batch(rows: pa.Table) -> pa.Table:
    """The rows in batches as PySpark can convert them.

    PySpark needs a batch also of no rows; and it takes an empty batch among others for the end, and drops what follows.
    """
    filled = [batch for batch in rows.to_batches() if len(batch)]
    return pa.Table.from_batches(filled or [pa.RecordBatch.from_pylist([], schema=rows.schema)], rows.schema)


class Kept(ExitStack):
    """Keeps frames until its block ends, whatever the block ends with."""

    def persisted(self, rows: DataFrame) -> DataFrame:
        """The rows, kept when they are first read, or computed now if they are in memory."""
        found = computed(rows)
        if found is None:
            self.callback(rows.unpersist)
            return rows.persist()
        return found

    def computed(self, rows: DataFrame) -> DataFrame:
        """The rows, computed now and cut off from the plan that made them.

        Without that, Spark would analyse a plan that grows tenfold with every step that joins the steps before it.
        """
        found = computed(rows)
        if found is None:
            found = rows.localCheckpoint()
            self.callback(_release, found)
        return found


def _release(found: DataFrame) -> None:
    """Frees the blocks of a local checkpoint: DataFrame.unpersist knows nothing of them."""
    found._jdf.queryExecution().analyzed().rdd().unpersist(False)
