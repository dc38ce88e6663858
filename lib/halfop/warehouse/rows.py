"""Rows of two kinds: *here*, an Arrow table in this process, and *there*, a frame that Spark's tasks read.

A table's rows come as one of the two, and go back into a table as one of the two; between them they are frames, on
which the rules work. A stage of work is here as long as all rows that it has read are. All that differs follows from
that: Spark's settings, how frames are kept, and what a frame becomes when it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, TypeAlias, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from halfop.warehouse.session import few_rows_settings

Rows: TypeAlias = "pa.Table | DataFrame"  # here | there
_NESTED = (ArrayType, MapType, StructType)


class FoundRows(NamedTuple):
    """Rows of a table, and the number of files that may hold them; None if nobody has counted them."""

    rows: Rows
    files: int | None


class Stage:
    """Says whether a step of work is here: from its beginning until it takes rows that are there.

    Before and after that it is there. A block within a block, or in a thread of it, belongs to the outer block.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._begun = spark, False
        self.is_here = False

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Begins a stage: it is here, with Spark's settings for rows in memory."""
        if self._begun:
            yield
            return
        self._begun = self.is_here = True
        try:
            with few_rows_settings(self._spark).held():
                yield
        finally:
            self._begun = self.is_here = False

    def take(self, rows: Rows) -> DataFrame:
        """Returns rows as a frame. With rows there, the stage is there, with the session's own settings."""
        if isinstance(rows, pa.Table):
            return frame_of(self._spark, rows)
        self.is_here = False
        few_rows_settings(self._spark).leave()
        return rows

    def rows(self, frame: DataFrame, struct: StructType | None = None) -> Rows:
        """Returns what a frame has come to, with the types of the schema: computed now if the stage is here."""
        return arrow(frame, struct or cast(StructType, _nullable(frame.schema))) if self.is_here else frame

    # ---- frames that are needed more than once ----

    def computed(self, frame: DataFrame) -> DataFrame | None:
        """Returns a frame that no longer knows how it was made, computed now; None if the stage is there."""
        struct = cast(StructType, _nullable(frame.schema))
        rows = self.rows(frame, struct)
        return None if isinstance(rows, DataFrame) else self._spark.createDataFrame(_with_a_batch(rows), schema=struct)

    def at_hand(self, frame: DataFrame) -> DataFrame:
        """Returns the frame computed now, cut off from the plan that made it; Spark frees it when nobody holds it."""
        found = self.computed(frame)
        return frame.localCheckpoint() if found is None else found


class Kept(ExitStack):
    """Keeps frames of a stage until its block ends, whatever the block ends with."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    def persisted(self, frame: DataFrame) -> DataFrame:
        """Returns the frame, kept when it is first read, or computed now if the stage is here."""
        found = self._stage.computed(frame)
        if found is None:
            self.callback(frame.unpersist)
            return frame.persist()
        return found

    def computed(self, frame: DataFrame) -> DataFrame:
        """Returns the frame computed now, cut off from the plan that made it.

        Without that, Spark would analyse a plan that grows tenfold with every step that joins the steps before it.
        """
        found = self._stage.computed(frame)
        if found is None:
            found = frame.localCheckpoint()
            self.callback(_release, found)
        return found


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Returns rows as a frame; if they are few, Spark keeps them in the plan itself."""
    if not rows.num_rows:
        return spark.createDataFrame(_with_a_batch(rows), schema=from_arrow_schema(rows.schema))
    return spark.createDataFrame(_with_a_batch(rows))


def arrow(frame: DataFrame, struct: StructType) -> pa.Table:
    """Returns a frame's rows, computed now, with the types of the schema."""
    nested = {f.name: f.dataType for f in struct if isinstance(f.dataType, _NESTED)}
    typed = frame.withColumns({name: F.col(name).cast(kind) for name, kind in nested.items()}) if nested else frame
    return typed.toArrow()


def _release(found: DataFrame) -> None:
    """Frees the blocks of a local checkpoint: DataFrame.unpersist knows nothing of them."""
    if not isinstance(found, ClassicFrame):  # a server of Spark Connect frees them itself
        return
    found._jdf.queryExecution().analyzed().rdd().unpersist(False)


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
