"""Line 10b of the rules: how many questions a run gives to a producer group, and to which messages.

The other lines look at one half message; this one at all that a run would ask about, oldest first: by born time, then
by half key. The first one that is over its group's limit says where the group's questions end.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from halfop.columns.keys import QUEUE, micros
from halfop.rules.reasons import Reason
from halfop.rules.settings_columns import RuleColumns

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
