"""Values of millions of half keys in few bytes: 64 neighbouring offsets of a queue packed into one row.

That is small enough to be broadcast, so what is looked up need not be shuffled and sorted.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import QUEUE

# One bit each in a long.
BLOCK_BITS = 6
_BROADCAST_ROWS = 50_000_000


def block(offset: str = "queue_offset") -> Column:
    return F.shiftright(offset, BLOCK_BITS)


def packed(rows: DataFrame, number: int, values: Sequence[str]) -> DataFrame:
    """`number` rows as one a block, with an array of the places that are taken and one of each value there."""
    entry = F.struct(_place().alias("place"), *values)
    blocks = rows.groupBy(*QUEUE, block().alias("block")).agg(F.collect_list(entry).alias("entries"))
    arrays = [F.col("entries")[c].alias(_packed(c)) for c in ("place", *values)]
    blocks = blocks.select(*QUEUE, "block", *arrays)
    return F.broadcast(blocks) if number <= _BROADCAST_ROWS else blocks


def look_up(rows: DataFrame, found: DataFrame, values: Sequence[str], how: str) -> DataFrame:
    """Joins packed values by half key; `how` is `inner` or `left`."""
    near = rows.withColumn("block", block()).join(found, [*QUEUE, "block"], how)
    near = near.withColumn("at", (F.array_position(_packed("place"), _place()) - 1).cast("int"))
    near = near.where(F.col("at") >= 0) if how == "inner" else near
    return near.select(*rows.columns, *[F.get(_packed(value), F.col("at")).alias(value) for value in values])


def _place() -> Column:
    return F.col("queue_offset").bitwiseAND(F.lit((1 << BLOCK_BITS) - 1)).cast("tinyint")


def _packed(value: str) -> str:
    return f"packed_{value}"
