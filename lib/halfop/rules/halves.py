"""Half messages: the narrow row that rules work on, where it comes from, and one row a half key."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, micros, present, whole_number
from halfop.rocketmq import names
from halfop.rules.questions import PENDING, nothing_pending
from halfop.rules.reasons import Reason
from halfop.rules.settings_columns import RuleColumns, own_immunity

# The columns that are known of a half message before the run decides.
NEW, OPEN, ENDED, DISCARDED, REJECTED = "NEW", "OPEN", "ENDED", "DISCARDED", "REJECTED"
SUPERSEDED = "SUPERSEDED"  # a copy of another one, which a row of its own stands for

# Columns of a half message as landed that decisions carry.
AS_LANDED = [
    "broker_name",
    "queue_id",
    "queue_offset",
    "commit_log_offset",
    "uniq_key",
    "producer_group",
    "real_topic",
    "real_queue_id",
    "born_timestamp",
    "store_timestamp",
    "check_immunity",
]
_CARRIED = [
    *AS_LANDED,
    "check_times",
    "last_checked_at",
    "resumed_at",
    "half_landed_at",
    "repeated",
    "copies",
    PENDING,
]
# All copies of a message, the row's own among them; null if there is but one. Decisions have those of other queues in
# a column of their own.
_COPY = {"queue_offset": "bigint", "commit_log_offset": "bigint", "landed_at": "timestamp"}
_PLACED_COPY = {"broker_name": "string", "queue_id": "int", **_COPY}
COPIES = f"array<struct<{','.join(f'{name}:{kind}' for name, kind in _PLACED_COPY.items())}>>"
COLUMNS = [*_CARRIED, "state", "decision", "marked", "escaped", "resume_mark", "proved"]
# Rows of one key that agree in these are one message; if they don't, a broker was rebuilt under its old name.
IDENTITY = ["commit_log_offset", "store_timestamp", "uniq_key"]
_GROUPLESS = 3  # the rank of an open or discarded row without a producer group
_CONTENT = [*IDENTITY, "producer_group", "real_topic", "real_queue_id"]


def landed(half_messages: DataFrame, rules: RuleColumns) -> DataFrame:
    """Half rows as landed, with the check times that they bring."""
    rows = half_messages.select(
        "broker_name",
        "queue_id",
        "queue_offset",
        "commit_log_offset",
        *[present(F.col(c)).alias(c) for c in ("uniq_key", "producer_group", "real_topic")],
        "real_queue_id",
        "born_timestamp",
        "store_timestamp",
        *[column.alias(name) for name, column in landed_marks(half_messages).items()],
        carries_a_mark(half_messages).alias("marked"),
        may_have_escaped(half_messages).alias("escaped"),
        F.col("landed_at").alias("half_landed_at"),
    )
    return (
        rows.withColumn("check_times", landed_check_times(rules))
        .withColumn("last_checked_at", F.when(F.col("check_times") > 0, F.col("store_timestamp")))
        .withColumn("resumed_at", F.lit(None).cast("timestamp"))
        .withColumn("repeated", F.lit(False))
        .withColumn("state", F.lit(NEW))
        .withColumns({"decision": F.lit(None).cast("string"), "copies": F.lit(None).cast(COPIES)})
        .withColumn(PENDING, nothing_pending())
        .withColumn("resume_mark", is_resumed_copy())
        .withColumn("proved", F.lit(False))
        .select(COLUMNS)
    )


def carries_a_mark(half_messages: DataFrame) -> Column:
    """Returns whether a row, as landed, says that it is a broker's copy of another."""
    times = present(_marked(half_messages, "landed_check_times", names.CHECK_TIMES))
    offset = present(_marked(half_messages, "landed_prepared_offset", names.PREPARED_QUEUE_OFFSET))
    return (times.isNotNull() | offset.isNotNull()) & present(F.col("uniq_key")).isNotNull()


def may_have_escaped(half_messages: DataFrame) -> Column:
    """Returns whether a row, as landed, may have been sent here by a slave that acted as another broker's master.

    It sends with WAIT=false; producers do so only if their code says so.
    """
    wait = _marked(half_messages, "landed_wait", names.WAIT)
    return wait.eqNullSafe(F.lit("false")) & present(F.col("uniq_key")).isNotNull()


def landed_marks(half_messages: DataFrame) -> dict[str, Column]:
    """Returns a row's own immunity and check times, as landed."""
    of = {"check_immunity": names.CHECK_IMMUNITY, "landed_check_times": names.CHECK_TIMES}
    return {column: present(_marked(half_messages, column, name)) for column, name in of.items()}


def is_resumed_copy() -> Column:
    """Returns whether a row is the copy with which a broker resumed the message that it had given up."""
    return F.col("marked") & F.coalesce(whole_number(F.col("landed_check_times")) == 0, F.lit(False))


def _marked(half_messages: DataFrame, column: str, name: str) -> Column:
    """A property's own column; a user's pipeline may have filled the properties alone."""
    given = [F.col(column)] if column in half_messages.columns else []
    others = [F.try_element_at("properties", F.lit(name))] if "properties" in half_messages.columns else []
    return F.coalesce(*given, *others)


def landed_check_times(rules: RuleColumns) -> Column:
    """Returns the check times that a row brings.

    ≠ broker: a copy stored within its own immunity was raised without asking, so it counts as never checked.
    """
    times = whole_number(F.col("landed_check_times")).try_cast("int")
    held_back = micros(F.col("store_timestamp")) - micros(F.col("born_timestamp"))
    unasked = held_back <= own_immunity(rules.timeout)
    return F.when(times.isNull() | F.coalesce(unasked, F.lit(False)), F.lit(0)).otherwise(times)


def put_back() -> Column:
    """Returns whether a row may be a copy of another, has copies, or stands for one that was superseded."""
    return F.col("marked") | F.col("escaped") | F.col("copies").isNotNull() | (F.col("state") == SUPERSEDED)


def own_copies() -> Column:
    """A row's copies; of a message without any, itself."""
    own = F.struct("broker_name", "queue_id", "queue_offset", "commit_log_offset", "half_landed_at")
    return F.coalesce("copies", F.array(own).cast(COPIES))


def written_copies() -> dict[str, Column]:
    """A row's copies as columns of decisions."""
    elsewhere = F.filter("copies", lambda copy: ~_is_here(copy))
    here = F.transform(F.filter("copies", _is_here), lambda copy: F.struct(*[copy[c].alias(c) for c in _COPY]))
    return {"copies": here, "copies_elsewhere": F.when(F.size(elsewhere) > 0, elsewhere)}


def _is_here(copy: Column) -> Column:
    return (copy["broker_name"] == F.col("broker_name")) & (copy["queue_id"] == F.col("queue_id"))


def read_copies() -> Column:
    """Returns a row's copies from columns of decisions."""
    place = [F.col(c).alias(c) for c in ("broker_name", "queue_id")]
    here = F.transform("copies", lambda copy: F.struct(*place, *[copy[c].alias(c) for c in _COPY])).cast(COPIES)
    return F.coalesce(F.concat("copies_elsewhere", here), here)


def carried(decisions: DataFrame) -> DataFrame:
    """The open set: CHECK and WAIT rows of the run before."""
    return _remembered(decisions.where(F.col("decision").isin("CHECK", "WAIT")), F.lit(OPEN))


def closed(decisions: DataFrame) -> DataFrame:
    """The last word on messages that are not open."""
    last = (
        decisions.groupBy(HALF_KEY).agg(F.max_by(F.struct(decisions.columns), "run_id").alias("last")).select("last.*")
    )
    states = F.when(F.col("decision") == "DISCARD", DISCARDED).when(F.col("decision") == "REJECT", REJECTED)
    states = states.when(F.col("decision") == "SUPERSEDED", SUPERSEDED)
    return _remembered(last, states.otherwise(ENDED)).withColumn("repeated", F.lit(True))


def _remembered(decisions: DataFrame, state: Column) -> DataFrame:
    orphan = F.col("orphan").isNotNull()
    # a row of another broker, or of another life, stands for it
    escaped = F.col("escaped_key").isNotNull() | F.col("superseded_by_broker").isNotNull()
    # a final message ended it: the op that it proves may land later
    proved = (F.col("decision") == "COMMIT") & F.col("op_queue_offset").isNull()
    made = {"state": state, "marked": orphan, "escaped": escaped, "resume_mark": F.lit(False), "proved": proved}
    return decisions.withColumns(made | {"copies": read_copies()}).select(COLUMNS)


def undeliverable() -> Column:
    """Line 1: why the message can never be delivered; null if it can."""
    topic = F.col("real_topic")
    retry = topic.startswith(names.RETRY_PREFIX) | topic.startswith(names.DLQ_PREFIX)
    longest = F.when(retry, names.RETRY_OR_DLQ_MAX_LENGTH).otherwise(names.TOPIC_MAX_LENGTH)
    illegal = ~topic.rlike(names.LEGAL_TOPIC) | (F.length(topic) > longest)
    # no F.lower: the first one in a process has Spark map every letter of Unicode, which takes a second
    system = topic.isin(*names.NOT_ALLOWED_SEND) | topic.rlike(rf"\A(?i){names.SYSTEM_PREFIX}")
    return (
        F.when(topic.isNull() | illegal, Reason.BAD_REAL_TOPIC.name)
        .when(F.col("real_queue_id").isNull() | (F.col("real_queue_id") < 0), Reason.BAD_REAL_QUEUE.name)
        .when(system, Reason.SYSTEM_TOPIC.name)
    )


def nothing_else(halves: DataFrame) -> DataFrame:
    """Rows of which no two share a key, in the form of `one_per_key`."""
    none = F.when(F.lit(False), F.array(F.struct(COLUMNS)))
    return halves.withColumn("extras", none)


def one_per_key(halves: DataFrame) -> DataFrame:
    """One row a half key, with `extras`: the rows of another identity under the same key (KEY_REUSED).

    What is known already stays, except a rejected row, and one that lacks a producer group and has not ended: they
    block no corrected one. Of several new rows the first deliverable one is taken. Rows that agree with it are the
    same message landed again.
    """
    groupless = F.col("producer_group").isNull()
    # a resumed message is open, and its discard is remembered beside it
    known = F.when(F.col("state").isin(OPEN, DISCARDED) & groupless, _GROUPLESS).when(F.col("state") == OPEN, 0)
    known = known.when(F.col("state").isin(ENDED, DISCARDED, SUPERSEDED), 1).when(F.col("state") == REJECTED, 6)
    new = F.when(undeliverable().isNotNull(), 5).when(groupless, 4).otherwise(2)
    rank = known.otherwise(new)
    order = ["half_landed_at", "store_timestamp", "commit_log_offset", "uniq_key"]
    rest = [c for c in COLUMNS if c not in order]
    ranked = halves.select(*HALF_KEY, F.struct(rank.alias("rank"), *order, *rest).alias("row"))
    rows = ranked.groupBy(HALF_KEY).agg(F.sort_array(F.collect_list("row")).alias("rows"))
    fresh = rows.withColumn("rows", F.filter("rows", lambda row: ~_landed_before(row, F.element_at("rows", -1))))
    corrected = F.try_element_at(F.filter("rows", lambda row: row["rank"] == _GROUPLESS), F.lit(1))
    fresh = fresh.withColumn("corrected", corrected)
    may_stand = F.filter("rows", lambda row: ~_is_another(row, F.col("corrected")))
    first = fresh.withColumns({"first": F.element_at(may_stand, 1), "many": F.size("rows") > 1})
    extras = F.filter("rows", lambda row: _is_another(row, F.col("first")))
    extras = F.transform(extras, lambda row: F.struct(*[row[c].alias(c) for c in COLUMNS]))
    return first.withColumn("extras", F.when(~F.col("first")["state"].eqNullSafe(REJECTED), extras)).select(
        *[F.col("first")[c].alias(c) for c in COLUMNS if c != "repeated"],
        (F.col("first")["repeated"] | F.col("many")).alias("repeated"),
        "extras",
    )


def _landed_before(row: Column, rejected: Column) -> Column:
    """A new row that says what the rejected one said."""
    return (row["state"] == NEW) & (rejected["state"] == REJECTED) & _agree(row, rejected, _CONTENT)


def _is_another(row: Column, known: Column) -> Column:
    """A new row of another message than the known one, if there is one. A row without a group may lack its key, too."""
    lacks = [each["producer_group"].isNull() & each["uniq_key"].isNull() for each in (row, known)]
    same = _agree(row, known, IDENTITY) | (_agree(row, known, IDENTITY[:-1]) & (lacks[0] | lacks[1]))
    return (row["state"] == NEW) & known.isNotNull() & ~same


def _agree(one: Column, other: Column, columns: list[str]) -> Column:
    return reduce(lambda a, b: a & b, [one[c].eqNullSafe(other[c]) for c in columns])
