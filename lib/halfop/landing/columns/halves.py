"""Columns of a half message that its properties hold too."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.values import whole_number_sql
from halfop.rocketmq import names

_IN_PROPERTIES = {
    "uniq_key": names.UNIQ_KEY,
    "producer_group": names.PRODUCER_GROUP,
    "real_topic": names.REAL_TOPIC,
    "tags": names.TAGS,
    "keys": names.KEYS,
}


def completed(rows: DataFrame) -> DataFrame:
    """Rows with columns that were null taken from their properties."""
    made = {column: F.coalesce(column, _property(name)) for column, name in _IN_PROPERTIES.items()}
    made["real_queue_id"] = F.coalesce(
        "real_queue_id", F.expr(whole_number_sql(f"properties['{names.REAL_QUEUE_ID}']", "INT"))
    )
    return rows.withColumns(made)


def _property(name: str) -> Column:
    return F.col("properties")[name]
