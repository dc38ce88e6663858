"""The decision table of the rules: for every open half message, the first line that holds."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.columns.values import micros
from halfop.rules.halves import NEW
from halfop.rules.ops import FINAL, is_final
from halfop.rules.settings_columns import RuleColumns


class Line(NamedTuple):
    holds: Column
    decision: Column | str
    reason: Column | str


def decide(rules: RuleColumns, given_up: bool) -> Column:
    """struct<decision, reason> of the row: a half message with its `clock`, `winner`, `immunity`, `undeliverable`.

    `given_up`: rows say whether a broker has discarded the message.
    """
    first, *others = [_result(line) for line in _lines(rules, given_up)]
    return reduce(lambda table, line: table.when(*line), others, F.when(*first))


def _lines(rules: RuleColumns, given_up: bool) -> list[Line]:
    clock, winner, check_times = F.col("clock"), F.col("winner"), F.col("check_times")
    age = clock - micros(F.col("born_timestamp"))
    kept = clock - micros(F.coalesce(F.col("resumed_at"), F.col("born_timestamp")))
    since_check = F.greatest(F.lit(0), clock - micros(F.col("last_checked_at")))
    asked = F.col("last_checked_at").isNotNull()
    answer_due = ~asked | (since_check >= rules.check_interval)
    own = F.col("immunity")
    bad = F.when(F.col("state") == NEW, F.col("undeliverable"))
    answered = F.when(winner["from_check"].eqNullSafe(F.lit(True)), "CHECK").otherwise("PRODUCER")
    answered = F.when(is_final(winner), FINAL).otherwise(answered)
    by_broker = [Line(F.col("given_up"), "DISCARD", "BROKER_DISCARDED")] if given_up else []
    ask = rules.settings.ask
    return [
        Line(bad.isNotNull(), "REJECT", bad),
        Line(winner.isNotNull(), winner["outcome"], answered),
        *by_broker,
        _if_asking(ask, Line((check_times >= rules.check_max) & answer_due, "DISCARD", "CHECKED_TOO_OFTEN")),
        _if_asking(ask, Line((kept > rules.file_reserved_time) & answer_due, "DISCARD", "EXPIRED")),
        Line(micros(F.col("store_timestamp")) >= clock, "WAIT", "FRESH"),
        Line(age <= own, "WAIT", "IMMUNE"),
        Line(own.isNull() & (age >= 0) & (age <= rules.timeout), "WAIT", "IMMUNE"),
        Line(asked & (since_check < rules.check_interval), "WAIT", "CHECKED_RECENTLY"),
        _if_asking(ask, Line(F.col("producer_group").isNull(), "DISCARD", "NO_PRODUCER_GROUP")),
        _if_asking(ask, Line(F.lit(True), "CHECK", F.when(age < 0, "CLOCK_SKEW").otherwise("TIMEOUT"))),
    ]


def _if_asking(ask: bool, line: Line) -> Line:
    """The line, or WAIT if a real broker asks and discards by itself."""
    return line if ask else Line(line.holds, "WAIT", "BROKER_ASKS")


def _result(line: Line) -> tuple[Column, Column]:
    decision, reason = (c if isinstance(c, Column) else F.lit(c) for c in (line.decision, line.reason))
    return line.holds, F.struct(decision.alias("decision"), reason.alias("reason"))
