"""Half, op, final and discard rows joined: one row a transaction, with all its copies and their ends."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.finals import is_put_again
from halfop.columns.keys import HALF_KEY, present, whole_number
from halfop.rocketmq import names
from halfop.rules.halves import carries_a_mark, is_resumed_copy, landed_check_times, landed_marks, may_have_escaped
from halfop.rules.settings_columns import RuleColumns
from halfop.rules.transactions import KIN

_MEMBER = [
    "queue_id",
    "queue_offset",
    "place",
    "store",
    "landed",
    "marked",
    "resumes",
    "asked",
    "times",
    "record_size",
    "uniq_key",
    "real_topic",
    "real_queue_id",
    "check_immunity",
    "ops",
    "finals",
]
# Columns in which the copies of a message agree on one broker; each broker's topics are compared by themselves.
_KIN = ["broker_name", "producer_group", "uniq_key", "born_timestamp"]
_OPS = "array<struct<op_offset:bigint,item:int,outcome:string,store:timestamp,place:bigint>>"
_FINALS = "array<struct<topic:string,queue_id:int,queue_offset:bigint,store:timestamp,place:bigint>>"


# ---- the four topics ----


def halves(rows: DataFrame, rules: RuleColumns) -> DataFrame:
    """Returns the half messages as landed. `asked`: a copy that was put back because its producer was asked."""
    narrow = rows.select(
        *HALF_KEY,
        "landed_under",
        "commit_log_offset",
        *[present(F.col(c)).alias(c) for c in ("uniq_key", "producer_group", "real_topic")],
        *("real_queue_id", "born_timestamp", "store_timestamp"),
        *[column.alias(name) for name, column in landed_marks(rows).items()],
        carries_a_mark(rows).alias("marked"),
        may_have_escaped(rows).alias("escaped"),
        "record_size",
    )
    made = {
        "times": F.coalesce(whole_number(F.col("landed_check_times")), F.lit(0)),
        "resumes": is_resumed_copy(),
        "asked": F.col("marked") & (landed_check_times(rules) > 0),
        "landed": F.lit(True),
    }
    renamed = {"commit_log_offset": "place", "store_timestamp": "store"}
    return narrow.withColumns(made).drop("landed_check_times").withColumnsRenamed(renamed)


def ops(rows: DataFrame) -> DataFrame:
    """Returns the items of op messages, under the half keys that they name.

    An op that was given by hand is left out, because it is in no broker's topic.
    """
    named = rows.where((F.col("tag") == names.END_TAG) & (F.col("half_offset") >= 0))
    return named.where(~F.col("source").eqNullSafe("RESOLVE")).select(
        F.col("half_offset").alias("queue_offset"),
        "queue_id",
        "broker_name",
        F.col("queue_offset").alias("op_offset"),
        "item",
        "outcome",
        F.col("store_timestamp").alias("store"),
        F.col("physical_offset").alias("place"),
    )


def finals(rows: DataFrame) -> DataFrame:
    """Returns the final messages; `half_place` is where in the log the half message was that was committed."""
    return rows.where(~is_put_again()).select(
        F.col("broker_name").alias("final_broker"),
        F.col("prepared_transaction_offset").alias("half_place"),
        present(F.col("uniq_key")).alias("final_key"),
        "topic",
        "queue_id",
        "queue_offset",
        F.col("store_timestamp").alias("store"),
        F.col("physical_offset").alias("place"),
    )


def discards(rows: DataFrame) -> DataFrame:
    """Returns the broker's discard records."""
    record = F.struct(F.col("store_timestamp").alias("store"), F.col("physical_offset").alias("place"), "check_times")
    return rows.dropDuplicates(["broker_name", "queue_id", "queue_offset"]).select(
        "broker_name",
        present(F.col("uniq_key")).alias("uniq_key"),
        present(F.col("producer_group")).alias("producer_group"),
        "born_timestamp",
        record.alias("discard"),
        F.concat_ws("/", F.lit("\0discard"), "queue_id", "queue_offset").alias("own_name"),
    )


# ---- together ----


def transactions(halves: DataFrame, ops: DataFrame, finals: DataFrame, discards: DataFrame) -> DataFrame:
    """Returns a row a transaction: `members` are its copies in the order of their offsets, `discards` its discards.

    An op or final message whose half message has not landed, or a discard, is a row by itself.
    """
    own_name = F.concat_ws("/", F.lit("\0half"), "queue_id", F.coalesce("queue_offset", "place"))
    rows = _with_ends(halves, ops, finals).withColumn("own_name", own_name)
    rows = rows.unionByName(discards, allowMissingColumns=True)
    rows = rows.withColumn("member", F.when(F.col("discard").isNull(), F.struct(_MEMBER)))
    # a message without a UNIQ_KEY has no kin
    rows = (
        rows.withColumn("uniq_key", F.coalesce("uniq_key", "own_name")).withColumn(KIN, F.struct(_KIN)).repartition(KIN)
    )
    grouped = rows.groupBy(KIN).agg(
        F.sort_array(F.collect_list("member")).alias("members"),
        F.sort_array(F.collect_list("discard")).alias("of_all"),
    )
    each = grouped.select(KIN, "of_all", F.posexplode(_parts()).alias("nth", "members"), _are_twins())
    own = F.when(F.col("twins"), F.slice("of_all", F.col("nth") + 1, F.lit(1))).otherwise(F.col("of_all"))
    about = [F.col(KIN)[name].alias(name) for name in ("broker_name", "producer_group", "born_timestamp")]
    return each.select(*about, "members", own.alias("discards"))


def _with_ends(halves: DataFrame, ops: DataFrame, finals: DataFrame) -> DataFrame:
    """Half messages with the ops that name them and their final messages, and ends without a half message."""
    named = halves.dropDuplicates(HALF_KEY).join(_by_half(ops), HALF_KEY, "full")
    same_place = (F.col("final_broker") == F.col("broker_name")) & (F.col("half_place") == F.col("place"))
    same_key = F.coalesce(F.col("final_key") == F.col("uniq_key"), F.lit(True))
    rows = named.join(_by_place(finals), same_place & same_key, "full")
    return rows.withColumns(
        {
            "broker_name": F.coalesce("broker_name", "final_broker"),
            "place": F.coalesce("place", "half_place"),
            "ops": F.coalesce("ops", F.array().cast(_OPS)),
            "finals": F.coalesce("finals", F.array().cast(_FINALS)),
            **{flag: F.coalesce(flag, F.lit(False)) for flag in ("landed", "marked", "resumes", "asked")},
        }
    ).drop("final_broker", "final_key", "half_place")


def _by_half(ops: DataFrame) -> DataFrame:
    """An item that landed twice counts once, with the outcome that one of the two rows has."""
    each = ops.groupBy(*HALF_KEY, "op_offset", "item")
    once = each.agg(*[F.max(c).alias(c) for c in ("outcome", "store", "place")])
    found = F.sort_array(F.collect_list(F.struct("op_offset", "item", "outcome", "store", "place")))
    return once.groupBy(HALF_KEY).agg(found.alias("ops"))


def _by_place(finals: DataFrame) -> DataFrame:
    half = ["final_broker", "half_place", "final_key"]
    once = finals.groupBy(*half, "topic", "queue_id", "queue_offset").agg(
        F.min("store").alias("store"), F.max("place").alias("place")
    )
    found = F.sort_array(F.collect_list(F.struct("topic", "queue_id", "queue_offset", "store", "place")))
    return once.groupBy(half).agg(found.alias("finals"))


def _starts() -> Column:
    """The places in `members` of messages that are no copies."""
    at = F.transform("members", lambda m, i: F.when(~m["marked"], i))
    return F.filter(at, lambda i: i.isNotNull())


def _are_twins() -> Column:
    return (F.size(_starts()) > 1).alias("twins")


def _parts() -> Column:
    """The members of each transaction: usually all; of twins, a message that is no copy and the copies after it.

    Those that have not ended come first, because a discard record is rather about one of them.
    """
    cuts = F.concat(F.array(F.lit(0)), F.slice(_starts(), F.lit(2), F.greatest(F.size(_starts()), F.lit(1))))
    following = F.concat(F.slice(cuts, F.lit(2), F.size(cuts)), F.array(F.size("members")))
    parts = F.transform(F.arrays_zip(cuts.alias("cut"), following.alias("next")), _part)
    parts = F.concat(F.filter(parts, lambda part: ~_has_ended(part)), F.filter(parts, _has_ended))
    return F.when(F.size(_starts()) > 1, parts).otherwise(F.array("members"))


def _part(bounds: Column) -> Column:
    return F.slice("members", bounds["cut"] + 1, bounds["next"] - bounds["cut"])


def _has_ended(members: Column) -> Column:
    return F.exists(members, lambda m: (F.size(m["ops"]) > 0) | (F.size(m["finals"]) > 0))
