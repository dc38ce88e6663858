"""The fate of each transaction: how it ended, or that it is open.

Most are simple: one half message whose op and final message agree. Those are only counted, by numbers and hashes,
without the texts of any message. All others are examined for what is wrong with them.
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.audit import findings as f
from halfop.columns.keys import HALF_KEY, QUEUE, in_micros
from halfop.rules.transactions import KIN, kin

FATES = {
    "COMMITTED_AND_DELIVERED": "a final message, and an op",
    "DELIVERED": "a final message, no op (yet)",
    "COMMITTED": "an op that says commit, no final message",
    "ROLLED_BACK": "an op that says rollback",
    "ENDED": "an op, outcome not known",
    "DISCARDED": "discarded by the broker",
    "OPEN": "none of these",
    "HALF_NOT_LANDED": "an op, final message or discard whose half message has not landed",
}

# ---- simple ones ----


def overview(halves: DataFrame, ops: DataFrame, finals: DataFrame, discards: DataFrame) -> DataFrame:
    """Returns a row a half message, and one for each op or final message whose half message is not there.

    `fate` is null if the transaction is not simple; `half`, `op_items` and `final_rows` count its rows.
    """
    one = _one_a_half_key(halves)
    rows = one.join(_by_half(ops), HALF_KEY, "full").join(_by_place(finals), ["broker_name", "place"], "full")
    related = one.where("marked").select(KIN).unionByName(discards.select(_kin().alias(KIN))).distinct()
    rows = rows.join(related.withColumn("related", F.lit(True)), KIN, "left")
    return rows.select(
        *HALF_KEY,
        "place",
        F.when(_is_simple(), _simple_fate()).alias("fate"),
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


def _simple_fate() -> Column:
    committed = F.when(F.col("commit"), "COMMITTED_AND_DELIVERED").when(F.col("rollback"), "ROLLED_BACK")
    return committed.when(F.col("op_items") > 0, "ENDED").otherwise("OPEN")


# ---- all others ----


def examine(transactions: DataFrame, coverage: DataFrame, finals: DataFrame, op_lag: timedelta) -> DataFrame:
    """Returns the fate of each transaction, counts of its copies, and what is wrong with it."""
    rows = _with_coverage(transactions, coverage, finals, op_lag)
    copies = F.filter("members", lambda m: m["marked"] & ~m["resumes"])
    size = F.aggregate(copies, F.lit(0).cast("bigint"), lambda n, m: n + F.coalesce(m["record_size"], F.lit(0)))
    return rows.select(
        "broker_name",
        "queue_id",
        f.first()["queue_offset"].alias("queue_offset"),
        "producer_group",
        _fate().alias("fate"),
        f.ended().alias("ended"),
        f.answers_a_check().alias("answers"),
        F.size("discards").alias("discards"),
        F.size(copies).alias("copies"),
        F.coalesce(size, F.lit(0)).alias("bytes"),
        F.size(F.filter(copies, lambda m: m["asked"])).alias("checks"),
        F.greatest(F.size(f.late_checks()), F.lit(0)).alias("late_checks"),
        f.found().alias("found"),
    )


def _with_coverage(rows: DataFrame, coverage: DataFrame, finals: DataFrame, op_lag: timedelta) -> DataFrame:
    rows = rows.withColumns(
        {
            "queue_id": F.coalesce(f.first()["queue_id"], F.lit(0)),
            "real_topic": f.first()["real_topic"],
            "real_queue_id": f.first()["real_queue_id"],
            "finals": F.flatten(F.transform("members", _finals_of)),
            "ops": F.flatten(F.transform("members", _ops_of)),
            "op_lag": F.lit(in_micros(op_lag)),
        }
    )
    rows = rows.join(_real_queues(finals), ["broker_name", "real_topic", "real_queue_id"], "left")
    return rows.join(coverage, QUEUE, "left")


def _real_queues(finals: DataFrame) -> DataFrame:
    """The first and last instant of each real queue that has been read."""
    queues = finals.groupBy("broker_name", F.col("topic").alias("real_topic"), F.col("queue_id").alias("real_queue_id"))
    return queues.agg(F.min("store_timestamp").alias("topic_since"), F.max("store_timestamp").alias("topic_until"))


def _finals_of(m: Column) -> Column:
    own = ["topic", "queue_id", "queue_offset", "store", "place"]
    more = [m["queue_offset"].alias("half"), (F.size(m["ops"]) > 0).alias("op")]
    return F.transform(m["finals"], lambda each: F.struct(*[each[c].alias(c) for c in own], *more))


def _ops_of(m: Column) -> Column:
    return F.transform(m["ops"], lambda each: each.withField("half", m["queue_offset"]))


def _fate() -> Column:
    outcomes = F.transform("ops", lambda o: o["outcome"])
    delivered, ended = F.size("finals") > 0, F.size("ops") > 0
    return (
        F.when(~f.landed(), "HALF_NOT_LANDED")
        .when(delivered & ended, "COMMITTED_AND_DELIVERED")
        .when(delivered, "DELIVERED")
        .when(F.array_contains(outcomes, "COMMIT"), "COMMITTED")
        .when(F.array_contains(outcomes, "ROLLBACK"), "ROLLED_BACK")
        .when(ended, "ENDED")
        .when(f.given_up(), "DISCARDED")
        .otherwise("OPEN")
    )
