"""Most transactions are simple: one half message whose op and final message agree. Those are only counted.

All others are found by numbers and hashes alone, without the texts of any message.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.rules.transactions import KIN, kin

PLACE = ["broker_name", "place"]


def overview(halves: DataFrame, ops: DataFrame, finals: DataFrame, discards: DataFrame) -> DataFrame:
    """Returns a row a half message, and one for each op or final message whose half message is not there.

    `fate` is null if the transaction is not simple; `half`, `op_items` and `final_rows` count its rows.
    """
    one = _one_a_half_key(halves)
    rows = one.join(_by_half(ops), HALF_KEY, "full").join(_by_place(finals), PLACE, "full")
    related = one.where("marked").select(KIN).unionByName(discards.select(_kin().alias(KIN))).distinct()
    rows = rows.join(related.withColumn("related", F.lit(True)), KIN, "left")
    return rows.select(
        *HALF_KEY,
        "place",
        F.when(_is_simple(), _fate()).alias("fate"),
        *[F.coalesce(c, F.lit(0)).alias(c) for c in ("half", "op_items", "final_rows")],
        F.when(~F.col("marked"), F.col("key")).alias("key"),
    )


def of_others(rows: DataFrame, overview: DataFrame, count: str, keys: list[str]) -> DataFrame:
    """Returns the half, op or final rows of transactions that are not simple; `count` is their column of `overview`."""
    wanted = overview.where(F.col("fate").isNull() & (F.col(count) > 0)).select(keys).distinct()
    return rows.join(wanted, keys, "left_semi")


def _kin() -> Column:
    return F.xxhash64(kin())


def _one_a_half_key(halves: DataFrame) -> DataFrame:
    key = F.when(F.col("uniq_key").isNotNull(), F.xxhash64("uniq_key"))
    rows = halves.select(*HALF_KEY, "place", "marked", key.alias("key"), F.when(key.isNotNull(), _kin()).alias(KIN))
    each = [F.min(c).alias(c) for c in ("place", "key", KIN)]
    return rows.groupBy(HALF_KEY).agg(*each, F.max("marked").alias("marked"), F.lit(1).alias("half"))


def _by_half(ops: DataFrame) -> DataFrame:
    def says(outcome: str) -> Column:
        return F.coalesce(F.max(F.col("outcome") == outcome), F.lit(False))

    number = F.count("*").alias("op_items")
    return ops.groupBy(HALF_KEY).agg(says("COMMIT").alias("commit"), says("ROLLBACK").alias("rollback"), number)


def _by_place(finals: DataFrame) -> DataFrame:
    key = F.when(F.col("final_key").isNotNull(), F.xxhash64("final_key"))
    which = F.xxhash64("topic", "queue_id", "queue_offset")
    rows = finals.select("final_broker", "half_place", key.alias("key"), which.alias("which"))
    return rows.groupBy(F.col("final_broker").alias("broker_name"), F.col("half_place").alias("place")).agg(
        *[F.min(c).alias(f"least_{c}") for c in ("key", "which")],
        *[F.max(c).alias(f"most_{c}") for c in ("key", "which")],
        F.count("*").alias("final_rows"),
    )


def _is_simple() -> Column:
    delivered = F.col("final_rows").isNotNull()
    alone = F.col("half").isNotNull() & F.col("related").isNull() & ~F.col("marked")
    same_key = [F.coalesce(F.col(c) == F.col("key"), F.lit(True)) for c in ("least_key", "most_key")]
    one_final = ~delivered | ((F.col("least_which") == F.col("most_which")) & same_key[0] & same_key[1])
    commit, rollback = [F.coalesce(c, F.lit(False)) for c in ("commit", "rollback")]
    return alone & one_final & (commit == delivered) & ~(commit & rollback)


def _fate() -> Column:
    """The fate of a simple transaction."""
    committed = F.when(F.col("commit"), "COMMITTED_AND_DELIVERED").when(F.col("rollback"), "ROLLED_BACK")
    return committed.when(F.col("op_items") > 0, "ENDED").otherwise("OPEN")
