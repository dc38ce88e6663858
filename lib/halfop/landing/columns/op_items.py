"""Bodies of op messages, split into items as RocketMQ wrote them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.values import whole_number_sql
from halfop.landing.columns.values import at_least_zero
from halfop.rocketmq.names import END_TAG


def items(rows: DataFrame) -> DataFrame:
    """One row for each item of a body, numbered from 0; one for a body that can't be split, or a row with `item`."""
    split = rows.select(*[c for c in rows.columns if c not in ("body", "item")], "item", F.posexplode(item_texts()))
    numbered = split.withColumns({"item": F.coalesce("item", "pos"), "given": F.col("item").isNotNull()})
    named = numbered.withColumn("half_offset", _half_offset()).withColumnRenamed("col", "body")
    return named.withColumn("outcome", _outcome()).drop("pos", "given", "outcomes")


def item_texts() -> Column:
    """The texts of a row's items, in their order; at least one, null if there is no body."""
    texts = F.array_remove(F.split("body", ","), "")
    whole = F.col("item").isNull() & (F.col("tag") == END_TAG) & (F.size(texts) > 0)
    return F.when(whole, texts).otherwise(F.array("body"))


def half_offset(text: str) -> Column:
    """The half queue offset that the text in a column names; null if it names none."""
    return F.expr(at_least_zero(whole_number_sql(text, "BIGINT")))


def _half_offset() -> Column:
    given = F.when(F.col("half_offset") >= 0, F.col("half_offset"))
    parsed = F.when(F.col("tag") == END_TAG, half_offset("col"))
    return F.when(F.col("given") & F.col("half_offset").isNotNull(), given).otherwise(parsed)


def _outcome() -> Column:
    by_offset = F.try_element_at("outcomes", F.col("half_offset").cast("string"))
    return F.coalesce(by_offset, F.try_element_at("outcomes", "body"), "outcome")
