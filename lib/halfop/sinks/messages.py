"""Whole messages of a run as rows of all their tables: committed, discarded, asked about."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructType

from halfop.sinks.bodies import with_bodies
from halfop.sinks.projections import projected_each
from halfop.sinks.targets import Target, WholeMessages
from halfop.warehouse.parquet import arrow_schema

TARGET = "target"  # the number of the table that a row goes to


def messages(whole: WholeMessages, once: bool = True) -> DataFrame:
    """Half messages with what was decided about them and their table's number.

    Without `once`, those alone that landed more than once, or that another copy stands for.
    """
    return _numbered(whole, with_bodies(whole, once)).select(*whole.columns, TARGET)


def in_tables_columns(rows: DataFrame, whole: WholeMessages) -> DataFrame:
    """Those rows with the columns of all tables; those that a row's table lacks are null."""
    struct, about, given = _all_columns(whole.due), whole.about, whole.columns
    kind = pa.struct(list(arrow_schema(struct)))

    def project(*columns: pa.Array) -> pa.Array:
        return projected_each(pa.RecordBatch.from_arrays(list(columns), names=given), kind, about)

    made = arrow_udf(project, struct)  # type: ignore[call-overload]
    return rows.select(TARGET, made(*given).alias("row")).select(TARGET, "row.*")


def _all_columns(due: Mapping[int, Target]) -> StructType:
    fields = {field.name: field for target in due.values() for field in target.spec.struct}
    return StructType(list(fields.values()))


def _numbered(whole: WholeMessages, rows: DataFrame) -> DataFrame:
    """Rows with the number of the table that they go to; rows of tables that have them already are left out."""
    given = [(target.decision, target.topic, n) for n, target in whole.due.items()]
    numbers = whole.warehouse.frame(given, f"decision STRING, to_topic STRING, {TARGET} INT")
    by_topic = (F.col("decision") == "COMMIT") & F.lit(whole.a_table_a_topic)
    rows = rows.withColumn("to_topic", F.when(by_topic, F.col("real_topic")).otherwise(""))
    return rows.join(F.broadcast(numbers), ["decision", "to_topic"])
