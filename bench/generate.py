"""Half messages and their ops, any number of them, the same for the same numbers: 200-byte bodies that don't compress,
20 topics, 90 % committed, 8 % rolled back, 2 % open."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

BORN = 1_750_000_000_000  # ms; what is open is due for a check an hour later
TOPICS = 20
PER_OP = 500  # offsets in one op message
_OPEN, _COMMITTED = 2, 90  # of a hundred


@dataclass(frozen=True)
class Stretch:
    """The half messages at offsets `first` to `first + count`; two in a hundred stay open unless all end."""

    first: int
    count: int
    all_end: bool = False

    def ids(self, spark: SparkSession) -> DataFrame:
        parts = max(1, self.count // 300_000)
        return spark.range(self.first, self.first + self.count, 1, parts).withColumn("luck", _luck("fate", 100))


def _luck(salt: str, of: int) -> Column:
    return F.pmod(F.xxhash64(F.lit(salt), "id"), F.lit(of))


def is_committed() -> Column:
    return (F.col("luck") >= _OPEN) & (F.col("luck") < _OPEN + _COMMITTED)


def half_messages(spark: SparkSession, stretch: Stretch) -> DataFrame:
    """Rows of half_messages."""
    born = F.timestamp_millis(F.lit(BORN) + F.floor(F.col("id") / 1000))
    rows = stretch.ids(spark).select(
        "luck",
        F.lit("broker-a").alias("broker_name"),
        F.lit(0).alias("queue_id"),
        F.col("id").alias("queue_offset"),
        (F.col("id") * 512).alias("commit_log_offset"),
        F.upper(F.lpad(F.hex(F.col("id") * 512), 32, "0")).alias("offset_msg_id"),
        F.upper(F.md5(F.col("id").cast("string"))).alias("uniq_key"),
        F.concat(F.lit("group"), _luck("group", 7)).alias("producer_group"),
        F.concat(F.lit("Topic"), _luck("topic", TOPICS)).alias("real_topic"),
        _luck("queue", 8).cast("int").alias("real_queue_id"),
        *[F.lit(None).cast("string").alias(c) for c in ("tags", "keys")],
        *[F.lit(0).alias(c) for c in ("flag", "sys_flag", "reconsume_times")],
        born.alias("born_timestamp"),
        (born + F.expr("interval 1 millisecond")).alias("store_timestamp"),
        *[F.lit("127.0.0.1:10911").alias(c) for c in ("born_host", "store_host")],
        body().alias("body"),
        F.lit(None).cast("int").alias("record_size"),
        F.current_timestamp().alias("landed_at"),
    )
    return rows.withColumn("properties", _properties())


def body() -> Column:
    hashes = [F.sha2(F.concat(F.col("id").cast("string"), F.lit(salt)), 512) for salt in "abc"]
    rest = F.substring(F.sha2(F.concat(F.col("id").cast("string"), F.lit("d")), 512), 1, 16)
    return F.unhex(F.concat(*hashes, rest))


def _properties() -> Column:
    named = {
        "REAL_TOPIC": F.col("real_topic"),
        "REAL_QID": F.col("real_queue_id").cast("string"),
        "PGROUP": F.col("producer_group"),
        "UNIQ_KEY": F.col("uniq_key"),
        "TRAN_MSG": F.lit("true"),
        "WAIT": F.lit("true"),
    }
    return F.create_map(*[part for name, value in named.items() for part in (F.lit(name), value)])


def op_messages(spark: SparkSession, stretch: Stretch) -> DataFrame:
    """Rows of op_messages, batched as RocketMQ 5 batches them."""
    ended = F.timestamp_millis(F.lit(BORN + 1_000) + F.floor(F.col("id") / 1000))
    return (
        stretch.ids(spark)
        .where((F.col("luck") >= _OPEN) | F.lit(stretch.all_end))
        .select(
            F.lit("broker-a").alias("broker_name"),
            F.lit(0).alias("queue_id"),
            F.floor(F.col("id") / PER_OP).alias("queue_offset"),
            F.pmod("id", F.lit(PER_OP)).cast("int").alias("item"),
            F.lit("d").alias("tag"),
            F.col("id").cast("string").alias("body"),
            F.col("id").alias("half_offset"),
            F.when(is_committed(), "COMMIT").otherwise("ROLLBACK").alias("outcome"),
            F.lit(False).alias("from_check"),
            ended.alias("born_timestamp"),
            ended.alias("store_timestamp"),
            *[F.lit(None).cast("string").alias(c) for c in ("producer_group", "uniq_key")],
            *[
                F.lit(None).cast("bigint").alias(c)
                for c in ("tran_state_table_offset", "commit_log_offset", "physical_offset")
            ],
            F.lit(None).cast("int").alias("life"),
            F.lit("FILES").alias("source"),
            F.current_timestamp().alias("landed_at"),
        )
    )
