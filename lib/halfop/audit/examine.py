"""Every transaction examined: what has become of it, and a row for each thing that is wrong with it."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.audit import findings as f
from halfop.audit import groups
from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.columns.values import in_micros

TWINS = "TWINS"
_OF_TRANSACTIONS = {each.name: each.meaning for each in f.FINDINGS}
MEANINGS = {**_OF_TRANSACTIONS, TWINS: "half messages that share a UNIQ_KEY and are no copies", **groups.MEANINGS}
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
_FOUND = ["finding", "broker_name", "queue_id", "queue_offset", "half_offsets", "uniq_key", "producer_group"]
_FOUND += ["real_topic", "born_timestamp", "detail"]


def examine(transactions: DataFrame, coverage: DataFrame, finals: DataFrame, op_lag: timedelta) -> DataFrame:
    """Returns what has become of each transaction, counts of its copies, and what is wrong with it."""
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
        _found().alias("found"),
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


def _found() -> Column:
    """The findings of a transaction, an array of rows."""
    topic = F.coalesce("real_topic", F.get("finals", F.lit(0))["topic"])
    about: dict[str, Column] = {
        "broker_name": F.col("broker_name"),
        "queue_id": f.first()["queue_id"],
        "queue_offset": f.first()["queue_offset"],
        "half_offsets": F.filter(F.transform("members", lambda m: m["queue_offset"]), lambda o: o.isNotNull()),
        "uniq_key": f.first()["uniq_key"],
        "producer_group": F.col("producer_group"),
        "real_topic": topic,
        "born_timestamp": F.col("born_timestamp"),
    }

    def row(finding: f.Finding) -> Column:
        detail = finding.rule()
        cells = {"finding": F.lit(finding.name), **about, "detail": detail}
        return F.when(detail.isNotNull(), F.struct(*[cells[c].alias(c) for c in _FOUND]))

    return F.array_compact(F.array(*[row(each) for each in f.FINDINGS]))


def _is_an_escape(half: Column) -> Column:
    """Returns whether another broker has the half message of which this one is a copy."""

    def is_original(other: Column) -> Column:
        same = [other[c].eqNullSafe(half[c]) for c in ("producer_group", "born_timestamp")]
        return (other["broker_name"] != half["broker_name"]) & same[0] & same[1]

    return half["escaped"] & F.exists("twins", is_original)


def twins(halves: DataFrame, overview: DataFrame) -> DataFrame:
    """Returns the half messages that are no copies and share a UNIQ_KEY, on whatever broker."""
    keys = overview.where(F.col("key").isNotNull()).groupBy("key").agg(F.count("*").alias("n")).where("n > 1")
    rows = halves.where(~F.col("marked")).withColumn("key", F.xxhash64("uniq_key"))
    rows = rows.join(keys, "key", "left_semi").where(F.col("uniq_key").isNotNull()).dropDuplicates(HALF_KEY)
    columns = ["broker_name", "queue_id", "queue_offset", "producer_group", "real_topic", "born_timestamp"]
    one = F.struct(*columns, "escaped", "landed_under")
    found = rows.groupBy("uniq_key").agg(F.sort_array(F.collect_list(one)).alias("twins"))
    found = found.withColumn("twins", F.filter("twins", lambda m: ~_is_an_escape(m))).where(F.size("twins") > 1)
    place = F.transform("twins", lambda m: F.concat_ws("/", m["landed_under"], m["queue_id"], m["queue_offset"]))
    twin = F.get("twins", F.lit(0))
    made = {
        "finding": F.lit(TWINS),
        "half_offsets": F.transform("twins", lambda m: m["queue_offset"]),
        "detail": F.concat(F.lit("half messages "), F.array_join(place, ", ")),
        "uniq_key": F.col("uniq_key"),
    }
    return found.select(*[(made[c] if c in made else twin[c]).alias(c) for c in _FOUND])
