"""The decision table of the rules: for every open half message, the first line that holds.

Decisions and reasons are those of `reasons.LINES`, in the same order.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.columns.keys import micros
from halfop.columns.lives import Lost
from halfop.rules.halves import NEW, own_copies
from halfop.rules.ops import is_final
from halfop.rules.reasons import Reason
from halfop.rules.settings_columns import RuleColumns


class Branch(NamedTuple):
    """A line of the table as Columns."""

    holds: Column
    decision: Column
    reason: Column


def decide(rules: RuleColumns, given_up: bool) -> Column:
    """Returns struct<decision, reason> of a half message with its `clock`, `winner`, `immunity`, `undeliverable`.

    `given_up`: rows say whether a broker has discarded the message.
    """
    first, *others = [_result(branch) for branch in _branches(rules, given_up)]
    return reduce(lambda table, branch: table.when(*branch), others, F.when(*first))


def _branches(rules: RuleColumns, given_up: bool) -> list[Branch]:
    clock, winner, check_times = F.col("clock"), F.col("winner"), F.col("check_times")
    age = clock - micros(F.col("born_timestamp"))
    kept = clock - micros(F.coalesce(F.col("resumed_at"), F.col("born_timestamp")))
    since_check = F.greatest(F.lit(0), clock - micros(F.col("last_checked_at")))
    asked = F.col("last_checked_at").isNotNull()
    answer_due = ~asked | (since_check >= rules.check_interval)
    own = F.col("immunity")
    bad = F.when(F.col("state") == NEW, F.col("undeliverable"))
    by_check = winner["from_check"].eqNullSafe(F.lit(True))
    answered = F.when(by_check, Reason.CHECK.name).otherwise(Reason.PRODUCER.name)
    answered = F.when(is_final(winner), Reason.FINAL.name).otherwise(answered)
    by_broker = [_branch(F.col("given_up"), Reason.BROKER_DISCARDED)] if given_up else []
    lost = lost_by_broker(rules)
    by_broker += [] if lost is None else [_branch(lost, Reason.LOST_BY_BROKER)]
    forgotten = clock >= rules.forgotten_at(own, "store_timestamp", "resumed_at")
    by_broker += [_branch(forgotten, Reason.FORGOTTEN_BY_BROKER)] if rules.forgets else []
    watched = None if rules.watching is None else _watched(rules.watching, kept >= rules.watch_for)
    asking = F.when(age < 0, Reason.CLOCK_SKEW.name).otherwise(Reason.TIMEOUT.name)
    return [
        Branch(bad.isNotNull(), F.lit("REJECT"), bad),
        Branch(winner.isNotNull(), winner["outcome"], answered),
        *by_broker,
        _unless(watched, _branch((check_times >= rules.check_max) & answer_due, Reason.CHECKED_TOO_OFTEN)),
        _unless(watched, _branch((kept > rules.file_reserved_time) & answer_due, Reason.EXPIRED)),
        _branch(micros(F.col("store_timestamp")) >= clock, Reason.FRESH),
        _branch(age <= own, Reason.IMMUNE),
        _branch(own.isNull() & (age >= 0) & (age <= rules.timeout), Reason.IMMUNE),
        _branch(asked & (since_check < rules.check_interval), Reason.CHECKED_RECENTLY),
        _unless(watched, _branch(F.col("producer_group").isNull(), Reason.NO_PRODUCER_GROUP)),
        _unless(watched, Branch(F.lit(True), F.lit("CHECK"), asking)),
    ]


def _branch(holds: Column, reason: Reason) -> Branch:
    """A line that has one reason, with the decision that docs/rules.md has there."""
    return Branch(holds, F.lit(reason.line.decision), F.lit(reason.name))


def _watched(watching: Column, over: Column) -> Branch:
    """The decision about a message while its broker asks and discards by itself, and after that."""
    decision = F.when(over, "DISCARD").otherwise("WAIT")
    return Branch(watching, decision, F.when(over, Reason.END_NOT_SEEN.name).otherwise(Reason.BROKER_ASKS.name))


def _unless(watched: Branch | None, branch: Branch) -> Branch:
    """The line, unless the message is of a broker that is only watched."""
    if watched is None:
        return branch
    both = zip(watched[1:], branch[1:], strict=True)
    return Branch(branch.holds, *(F.when(watched.holds, watch).otherwise(ask) for watch, ask in both))


def _result(branch: Branch) -> tuple[Column, Column]:
    return branch.holds, F.struct(branch.decision.alias("decision"), branch.reason.alias("reason"))


def lost_by_broker(rules: RuleColumns) -> Column | None:
    """Returns whether a broker lost all copies of a message, after its last resume; None if no broker lost any."""
    if not rules.lost:
        return None
    return F.forall(own_copies(), lambda copy: reduce(or_, [_is_lost(copy, each) for each in rules.lost]))


def _is_lost(copy: Column, lost: Lost) -> Column:
    there = (copy["broker_name"] == lost.broker_name) & (copy["queue_id"] == lost.queue_id)
    resumed_since = F.coalesce(F.col("resumed_at") >= F.lit(lost.at), F.lit(False))
    return there & (copy["queue_offset"] >= lost.from_offset) & ~resumed_since
