"""The life of a broker that a row's half message is of, where Spark lands rows."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.lives import Lives, owner
from halfop.landing.table_rows import NAMED_BY, cuts_by


def named(rows: DataFrame, table: str, lives: Lives) -> DataFrame:
    """Rows of a table with their broker's name; ops and final messages have that of their half message's life."""
    named_by = NAMED_BY.get(table) if lives.later else None
    if named_by is None:
        return rows.withColumn("broker_name", F.lit(lives.current))
    queue = F.col("queue_id") if named_by == "half_offset" else F.lit(0)
    of = F.coalesce(owner(cuts_by(lives, named_by), queue, F.col(named_by)), F.lit(lives.number - 1))
    of = F.when(F.col(named_by).isNull(), lives.number - 1).otherwise(of)
    rows = rows.withColumn("broker_name", F.get(F.array(*map(F.lit, lives.names)), of))
    if table != "op_messages":
        return rows
    return rows.withColumn("life", F.when(of != lives.number - 1, lives.number).cast("int"))
