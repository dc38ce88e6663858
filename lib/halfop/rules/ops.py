"""Op messages: which items can end a transaction, which of them does, and why the others don't."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE, micros, whole_number
from halfop.rocketmq.names import END_TAG, ROCKSDB_QUEUES
from halfop.rules.halves import ENDED, NEW, REJECTED, own_copies
from halfop.rules.reasons import Reason
from halfop.rules.settings_columns import RuleColumns

FINAL = "FINAL"
_GATEWAY = "GATEWAY"  # the source of ops whose END_TRANSACTION a gateway has judged and acknowledged
_NEVER = 2**63 - 1
OP_KEY = ["broker_name", "queue_id", "op_queue_offset", "item", "source", "life"]
_FIELDS = {
    "op_queue_offset": "bigint",
    "item": "int",
    "source": "string",
    "landed_at": "timestamp",
    "outcome": "string",
    "from_check": "boolean",
    "born_timestamp": "timestamp",
    "header": "boolean",
    "producer_group": "string",
    "tran_state_table_offset": "bigint",
    "commit_log_offset": "bigint",
    "again": "boolean",
    # of a transaction with copies: the one that the op names, if another row stands for it; its queue if it is another
    "copy_broker": "string",
    "copy_queue": "int",
    "copy_offset": "bigint",
    "copy_log_offset": "bigint",
    "copy_landed_at": "timestamp",
    "life": "int",
}
# Parts of an op's key that a user's own pipeline may leave out: no join of keys must meet a null.
_NOT_GIVEN: Mapping[str, object] = {"item": 0, "source": "", "life": 0}
_HEADER = ["producer_group", "tran_state_table_offset", "commit_log_offset", "uniq_key"]
_SAME_ROW = [*OP_KEY, "fault", "half_offset", "outcome", "from_check", "born_timestamp", "store_timestamp", *_HEADER]


def landed(op_messages: DataFrame) -> DataFrame:
    """Op rows as landed, each with the fault that it has in itself."""
    header = reduce(lambda a, b: a | b, [F.col(c).isNotNull() for c in _HEADER])
    return (
        op_messages.withColumn("fault", _fault())
        .withColumn("header", header)
        .withColumn("again", F.lit(False))
        .withColumns({name: F.coalesce(name, F.lit(none)) for name, none in _NOT_GIVEN.items()})
        .withColumnRenamed("queue_offset", "op_queue_offset")
        .withColumn("text", F.substring("body", 1, 200))
        .drop("body", "tag")
    )


def _fault() -> Column:
    body = F.nullif(F.col("body"), F.lit(""))
    return (
        F.when(~F.col("tag").eqNullSafe(END_TAG), Reason.ILLEGAL_TAG.name)
        .when(body.isNull() & F.col("half_offset").isNull(), Reason.NULL_BODY.name)
        .when(F.col("half_offset").isNull() & body.rlike(r"\A,+\z"), "NO_ITEMS")
        .when(_names_a_place() & F.col("half_offset").isNull(), Reason.HALF_BEFORE_LANDING.name)
        .when(F.col("half_offset").isNull() | (F.col("half_offset") < 0), Reason.GARBAGE_OFFSET.name)
        .when(~F.coalesce(F.col("outcome").isin("COMMIT", "ROLLBACK"), F.lit(False)), Reason.NO_OUTCOME.name)
    )


def _names_a_place() -> Column:
    """Returns whether an op of a transaction in RocksDB names a place in the log; its landing knew of no half there."""
    return (F.col("queue_id") >= ROCKSDB_QUEUES) & (whole_number(F.col("body")) >= 0)


def is_faulty() -> Column:
    """Returns whether a row is rejected for a fault of its own; a body of empty items names nothing and is no fault."""
    return F.coalesce(F.col("fault") != "NO_ITEMS", F.lit(False)) & ~F.col("again")


def once_per_row(ops: DataFrame, before: DataFrame) -> DataFrame:
    """Rows that landed more than once count once; `again` marks those that an earlier run has seen.

    A row of another store time under the key of one that stands is the mark of a rebuilt broker: KEY_REUSED.
    """
    both = ops.withColumn("seen", F.lit(False)).unionByName(before.withColumn("seen", F.lit(True)))
    firsts = [F.min(c).alias(c) for c in ("landed_at", "text")]
    rows = both.groupBy([*_SAME_ROW, "header"]).agg(
        *firsts, F.max("seen").alias("again"), F.min("seen").alias("only_seen")
    )
    sound = F.struct((~F.col("again")).alias("late"), "landed_at", "store_timestamp")
    first = F.min(F.when(F.col("fault").isNull(), sound)).over(Window.partitionBy(OP_KEY))
    reused = F.col("fault").isNull() & ~first["store_timestamp"].eqNullSafe(F.col("store_timestamp"))
    fault = F.when(reused, Reason.KEY_REUSED.name).otherwise(F.col("fault"))
    return rows.withColumn("fault", fault).where(~F.col("only_seen"))


def as_named(ops: DataFrame) -> DataFrame:
    """Sound ops under the half key that they name."""
    sound = ops.where(F.col("fault").isNull())
    known = {c: F.col(c) for c in _FIELDS if c in ops.columns}
    return sound.select(*QUEUE, F.col("half_offset").alias("queue_offset"), _op(known).alias("op"))


def by_half(named: DataFrame) -> DataFrame:
    """The ops of each half key as an array `ops`, the first to be taken before the others."""
    return named.groupBy(HALF_KEY).agg(F.sort_array(F.collect_list("op")).alias("ops"))


def _op(known: Mapping[str, Column]) -> Column:
    """The struct of an op, null in what is not known."""
    return F.struct(*[known.get(c, F.lit(None)).cast(kind).alias(c) for c, kind in _FIELDS.items()])


def proofs(finals: DataFrame, halves: DataFrame) -> DataFrame:
    """A broker's final messages as ops that commit the half messages which they name by commit log offset.

    They come after every real op, and have no op offset.
    """
    spots = halves.select(*HALF_KEY, "uniq_key", F.explode(own_copies()).alias("copy"))
    final = finals.withColumnRenamed("uniq_key", "final_uniq_key").withColumnRenamed("broker_name", "final_broker")
    place = F.col("copy")
    same = (place["broker_name"] == F.col("final_broker")) & (place["commit_log_offset"] == F.col("pto"))
    agree = F.coalesce(F.col("uniq_key") == F.col("final_uniq_key"), F.lit(True))
    found = spots.join(final, same & agree).groupBy(HALF_KEY).agg(F.min("copy").alias("copy"))
    known = of_copy(F.col("copy"), F.struct(*[F.col(c).alias(c) for c in HALF_KEY]))
    known |= {"op_queue_offset": F.lit(_NEVER), "item": F.lit(2**31 - 1), "source": F.lit(FINAL)}
    known |= {"outcome": F.lit("COMMIT"), "header": F.lit(False), "again": F.lit(False)}
    return found.select(*HALF_KEY, _op(known).alias("op"))


def of_copy(copy: Column, standing: Column) -> dict[str, Column]:
    """The fields of an op that name its copy, if the row that stands has another half key."""
    moved = reduce(lambda a, b: a | b, [copy[c] != standing[c] for c in QUEUE])
    elsewhere = moved | (copy["queue_offset"] != standing["queue_offset"])
    place = {"copy_broker": "broker_name", "copy_queue": "queue_id"}
    named = {"copy_offset": "queue_offset", "copy_log_offset": "commit_log_offset", "copy_landed_at": "landed_at"}
    found = {field: F.when(elsewhere, copy[of]) for field, of in named.items()}
    return {field: F.when(moved, copy[of]) for field, of in place.items()} | found


def is_final(op: Column) -> Column:
    return op["source"].eqNullSafe(F.lit(FINAL))


def waiting(decisions: DataFrame) -> DataFrame:
    """The ops that earlier runs carried because their half messages had not landed."""
    early = decisions.where(F.col("decision") == "EARLY_OP")
    columns = ", ".join(f"{c} {'bigint' if kind == 'timestamp' else kind}" for c, kind in _FIELDS.items())
    read = early.withColumn("read", F.from_json("op", columns))
    op = F.struct(*_each(F.col("read"), F.timestamp_micros))
    for name, none in _NOT_GIVEN.items():  # an earlier version carried nulls
        op = op.withField(name, F.coalesce(F.col("read")[name], F.lit(none)))
    return read.select(*HALF_KEY, op.alias("op"))


def as_text(op: Column) -> Column:
    """An op as `waiting` reads it."""
    return F.to_json(F.struct(*_each(op, F.unix_micros)))


def _each(op: Column, time: Callable[[Column], Column]) -> list[Column]:
    return [(time(op[c]) if kind == "timestamp" else op[c]).alias(c) for c, kind in _FIELDS.items()]


def fault_against_half(op: Column, rules: RuleColumns) -> Column:
    """The broker's checkPrepareMessage and rejectCommitOrRollback; null if the op is valid for the half message."""
    own = F.col("immunity")
    took = micros(op["born_timestamp"]) - micros(F.col("born_timestamp"))
    unasked = op["header"] & op["from_check"].eqNullSafe(F.lit(False)) & ~op["source"].eqNullSafe(F.lit(_GATEWAY))
    offset = F.coalesce(op["copy_offset"], F.col("queue_offset"))
    log_offset = F.coalesce(op["copy_log_offset"], F.col("commit_log_offset"))
    return (
        F.when(_differs(op["producer_group"], F.col("producer_group")), Reason.WRONG_PRODUCER_GROUP.name)
        .when(_differs(op["tran_state_table_offset"], offset), Reason.WRONG_STATE_TABLE_OFFSET.name)
        .when(_differs(op["commit_log_offset"], log_offset), Reason.WRONG_COMMIT_LOG_OFFSET.name)
        .when(unasked & (took > F.greatest(own, rules.timeout)) & own.isNotNull(), Reason.TOO_LATE.name)
    )


def _differs(known: Column, actual: Column) -> Column:
    return known.isNotNull() & ~known.eqNullSafe(actual)


def winner(rules: RuleColumns) -> Column:
    """The first of the ops in `ops`, sorted by (op offset, item), that is valid for the half message."""
    return F.try_element_at(F.filter("ops", lambda op: fault_against_half(op, rules).isNull()), F.lit(1))


def why_not_used(op: Column, rules: RuleColumns) -> Column:
    """Why an op that names a landed half message did not end it; null for the one that did."""
    of_rejected = (F.col("state") == REJECTED) | ((F.col("state") == NEW) & F.col("undeliverable").isNotNull())
    end = F.when(F.col("state") == ENDED, F.col("before")).otherwise(F.col("winner")["outcome"])
    is_winner = (F.col("state") != ENDED) & op.eqNullSafe(F.col("winner"))
    return (
        F.when(of_rejected, Reason.HALF_REJECTED.name)
        .when(fault_against_half(op, rules).isNotNull(), fault_against_half(op, rules))
        .when(is_winner | _says_what_was_proved(op), None)
        .when(op["outcome"] == end, Reason.REDUNDANT.name)
        .otherwise(Reason.CONFLICT.name)
    )


def _says_what_was_proved(op: Column) -> Column:
    """Returns whether a final message, which landed before the op, has ended the half message in the same way."""
    return F.col("proved") & (op["outcome"] == "COMMIT")


def why_given_up(op: Column, rules: RuleColumns) -> Column:
    """Why an op whose half message has not landed waits no longer; null while it waits."""
    waited = micros(F.lit(rules.now)) - micros(op["landed_at"])
    passed = F.col("next_offset") > F.col("queue_offset")
    return F.when(F.col("queue_offset") < F.col("first_offset"), Reason.HALF_BEFORE_LANDING.name).when(
        (waited >= rules.file_reserved_time) & passed, Reason.HALF_NEVER_LANDED.name
    )
