"""Questions to producers: those that count only when they were sent, and how many a run gives to a group.

A message remembers its last questions by their request ids, until a delivery says that one was sent.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE, micros
from halfop.rules.reasons import Reason
from halfop.rules.settings_columns import RuleColumns

PENDING = "pending_requests"
TYPE = "array<string>"
SENT = "SENT"
# A delivery follows its question within a check interval. If a gateway is down for days, no row remembers all.
MOST = 16
_KEY = ("broker_name", "queue_id", "queue_offset")


def request_id(run_id: int) -> Column:
    """Returns the id of a run's question about the row's half message; the same however often the run is replayed."""
    return F.sha2(
        F.concat_ws("/", F.lit(run_id), *[F.coalesce(F.col(c).cast("string"), F.lit("None")) for c in _KEY]), 256
    )


def with_questions(decided: DataFrame, rules: RuleColumns, run_id: int) -> DataFrame:
    """Returns decision rows whose open messages remember the questions that may still count."""
    pending = F.col(PENDING)
    if rules.counts_later is not None:
        every = F.array_append(F.coalesce(pending, _none()), request_id(run_id))
        asked = (F.col("decision") == "CHECK") & rules.counts_later
        pending = F.when(asked, _newest(every)).otherwise(pending)
    return decided.withColumn(PENDING, F.when(F.col("open"), pending))


def sent(open_rows: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Returns by half key which pending questions were sent: their ids, and when the last of them was."""
    first = deliveries.where(F.col("outcome") == SENT).groupBy("request_id").agg(F.min("at").alias("sent_at"))
    asked = open_rows.where(F.col(PENDING).isNotNull()).select(*HALF_KEY, F.explode(PENDING).alias("request_id"))
    found = asked.join(first, "request_id").groupBy(HALF_KEY)
    return found.agg(F.collect_set("request_id").alias("sent"), F.max("sent_at").alias("sent_at"))


def counted(open_rows: DataFrame, sent: DataFrame, now: datetime) -> DataFrame:
    """Returns open rows with the questions that were sent counted as checks.

    The last check is the later one of the question and its delivery, so that there is time for an answer. A clock that
    runs ahead moves it to `now` at most.
    """
    left = F.array_except(PENDING, F.col("sent"))
    learned = {
        "check_times": F.col("check_times") + F.size("sent"),
        "last_checked_at": F.greatest("last_checked_at", F.least(F.col("sent_at"), F.lit(now))),
        PENDING: F.when(F.size(left) > 0, left),
    }
    any_sent = F.col("sent").isNotNull()
    found = {name: F.when(any_sent, column).otherwise(F.col(name)) for name, column in learned.items()}
    return open_rows.join(sent, HALF_KEY, "left").withColumns(found).drop("sent", "sent_at")


def of_copies(standing: Column, others: Column, resumed: Column) -> Column:
    """Returns what a transaction remembers: the questions about all its open copies.

    None if its broker has just `resumed` it: what it knows of questions came before.
    """
    each = F.filter(F.transform(others, lambda copy: copy[PENDING]), lambda ids: ids.isNotNull())
    every = F.array_distinct(F.concat(F.flatten(each), F.coalesce(standing[PENDING], _none())))
    return F.when((F.size(every) > 0) & ~resumed, _newest(every))


def _newest(ids: Column) -> Column:
    """Ids are remembered in their order; of copies that were asked about apart, those of the live one last."""
    return F.slice(ids, F.greatest(F.size(ids) - (MOST - 1), F.lit(1)), MOST)


def nothing_pending() -> Column:
    """Returns what a half message that lands remembers."""
    return F.lit(None).cast(TYPE)


def _none() -> Column:
    return F.array().cast(TYPE)


# ---- line 10b of the rules: how many questions a run gives to a producer group, and to which messages ----

# The other lines look at one half message; this one at all that a run would ask about, oldest first: by born time, then
# by half key. The first one that is over its group's limit says where the group's questions end.

_GROUP = "producer_group"
_ORDER = ["born_timestamp", *QUEUE, "queue_offset"]


def may_be_asked(rules: RuleColumns) -> Column:
    """Returns whether a run can ask about a half message at all: by no clock was it asked within the check interval.

    Queue clocks are never later than `now`. For most open messages this is false, and then no group has to be counted.
    """
    since_check = F.greatest(F.lit(0), micros(F.lit(rules.now)) - micros(F.col("last_checked_at")))
    return F.col("last_checked_at").isNull() | (since_check >= rules.check_interval)


def over_limit(rows: DataFrame, rules: RuleColumns) -> DataFrame:
    """Returns the first message over the limit of each group that has one: the group, and `first_over` in age order.

    `rows` are half messages with their `verdict`, as if there were no limit.
    """
    asked = rows.where(_is_check()).select(_GROUP, *_ORDER).withColumn("limit", rules.checks_a_run)
    number = F.row_number().over(Window.partitionBy(_GROUP).orderBy(*_ORDER))
    # the constant lets Spark drop rows before it brings a group's together
    most = F.col("number") <= F.lit(max(rules.checks_limits) + 1)
    found = asked.withColumn("number", number).where(most & (F.col("number") == F.col("limit") + 1))
    return found.select(_GROUP, F.struct(*_ORDER).alias("first_over"))


def limited(rows: DataFrame, over: DataFrame) -> DataFrame:
    """Returns the rows with their verdict: messages over the limit wait, and that counts as no check."""
    rows = rows.join(F.broadcast(over), _GROUP, "left")
    return _held_back(rows, F.struct(*_ORDER) >= F.col("first_over")).drop("first_over")


def all_held_back(rows: DataFrame, rules: RuleColumns) -> DataFrame:
    """Holds back all questions to limited groups: the last slice of a backlog gives them, which sees all messages."""
    return _held_back(rows, rules.checks_a_run.isNotNull())


def _held_back(rows: DataFrame, over: Column) -> DataFrame:
    waits = F.struct(F.lit("WAIT").alias("decision"), F.lit(Reason.CHECK_LIMIT.name).alias("reason"))
    return rows.withColumn("verdict", F.when(_is_check() & over, waits).otherwise(F.col("verdict")))


def _is_check() -> Column:
    return F.col("verdict")["decision"] == "CHECK"
