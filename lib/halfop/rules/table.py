"""The decision table of the rules: for every open half message, the first line that holds."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.columns.values import micros
from halfop.rules.halves import NEW
from halfop.rules.lost import lost_by_broker
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
    lost = lost_by_broker(rules)
    by_broker += [] if lost is None else [Line(lost, "DISCARD", "LOST_BY_BROKER")]
    watched = Line(rules.watching, *_end_of_watch(kept >= rules.watch_for)) if rules.watching is not None else None
    return [
        Line(bad.isNotNull(), "REJECT", bad),
        Line(winner.isNotNull(), winner["outcome"], answered),
        *by_broker,
        _unless(watched, Line((check_times >= rules.check_max) & answer_due, "DISCARD", "CHECKED_TOO_OFTEN")),
        _unless(watched, Line((kept > rules.file_reserved_time) & answer_due, "DISCARD", "EXPIRED")),
        Line(micros(F.col("store_timestamp")) >= clock, "WAIT", "FRESH"),
        Line(age <= own, "WAIT", "IMMUNE"),
        Line(own.isNull() & (age >= 0) & (age <= rules.timeout), "WAIT", "IMMUNE"),
        Line(asked & (since_check < rules.check_interval), "WAIT", "CHECKED_RECENTLY"),
        _unless(watched, Line(F.col("producer_group").isNull(), "DISCARD", "NO_PRODUCER_GROUP")),
        _unless(watched, Line(F.lit(True), "CHECK", F.when(age < 0, "CLOCK_SKEW").otherwise("TIMEOUT"))),
    ]


def _end_of_watch(over: Column) -> tuple[Column, Column]:
    """The decision about a message while its broker asks and discards by itself, and after that."""
    return F.when(over, "DISCARD").otherwise("WAIT"), F.when(over, "END_NOT_SEEN").otherwise("BROKER_ASKS")


def _unless(watched: Line | None, line: Line) -> Line:
    """The line, unless the message is of a broker that is only watched."""
    if watched is None:
        return line
    both = zip(watched[1:], line[1:], strict=True)
    return Line(line.holds, *(F.when(watched.holds, watch).otherwise(_column(ask)) for watch, ask in both))


def _result(line: Line) -> tuple[Column, Column]:
    decision, reason = map(_column, line[1:])
    return line.holds, F.struct(decision.alias("decision"), reason.alias("reason"))


def _column(value: Column | str) -> Column:
    return value if isinstance(value, Column) else F.lit(value)
