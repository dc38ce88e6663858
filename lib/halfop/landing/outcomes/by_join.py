"""Outcomes of op items by a join with the half messages and final messages that have landed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.blocks import look_up, packed
from halfop.columns.keys import QUEUE

_HALF_AT = "half_log_offset"
_VALUES = [_HALF_AT, "seen", "final"]


def with_outcomes(items: DataFrame, halves: DataFrame, finals: DataFrame, known: Column, number: int) -> DataFrame:
    """Returns items of op messages with `outcome`: COMMIT, ROLLBACK, or null if it cannot be known.

    An outcome that an item has stays. A rollback is known if all of the log has been read that could hold the final
    message. `halves` may say so in `seen`, and `known` by an item and its `half_log_offset`. `number`: how many half
    rows there may be.
    """
    keyed = items.withColumnsRenamed({"queue_offset": "op_offset", "half_offset": "queue_offset"})
    placed = look_up(keyed, packed(_ends(halves, finals), number, _VALUES), _VALUES, "left")
    outcome = F.when(F.col("final"), "COMMIT").when(known & F.col("seen"), "ROLLBACK")
    if "outcome" in items.columns:
        outcome = F.coalesce(F.col("outcome"), outcome)
    back = {"queue_offset": "half_offset", "op_offset": "queue_offset"}
    return placed.withColumn("outcome", outcome).drop(*_VALUES).withColumnsRenamed(back)


def _ends(halves: DataFrame, finals: DataFrame) -> DataFrame:
    """Half messages by their place in the log, with `final`: whether a final message names it. Both in one grouping.

    The UNIQ_KEY must be the same: copies of final messages that a broker makes for a retry name place 0.
    """
    seen = F.col("seen") if "seen" in halves.columns else F.lit(True)
    message = F.xxhash64("uniq_key").alias("message")
    place = [F.col("commit_log_offset").alias(_HALF_AT), message]
    of_halves = halves.select(*QUEUE, "queue_offset", *place, seen.alias("seen"), F.lit(False).alias("final"))
    at = [F.col("prepared_transaction_offset").alias(_HALF_AT), message]
    of_finals = finals.select("broker_name", *at, F.lit(True).alias("final"))
    both = of_halves.unionByName(of_finals, allowMissingColumns=True)
    found = both.groupBy("broker_name", _HALF_AT, "message").agg(
        F.max("queue_id").alias("queue_id"),
        F.max("queue_offset").alias("queue_offset"),
        F.bool_or("seen").alias("seen"),
        F.bool_or("final").alias("final"),
    )
    return found.where(F.col("queue_offset").isNotNull())


def read_between(first: int, lost: Sequence[tuple[int, int]]) -> Column:
    """Returns whether the log between a half message and its op was read: all from `first` on, except lost ranges."""
    half, op = F.col(_HALF_AT), F.col("physical_offset")
    touched = [(half < upto) & (op >= since) for since, upto in lost]
    return reduce(lambda known, touches: known & ~touches, touched, half >= first)
