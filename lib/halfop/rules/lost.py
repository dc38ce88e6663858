"""Half messages that a broker lost: those at or above the cut of a later life, of which it has no other copy."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.columns.lives import Lost
from halfop.rules.halves import own_copies
from halfop.rules.settings_columns import RuleColumns


def lost_by_broker(rules: RuleColumns) -> Column | None:
    """Returns whether a broker lost all copies of a message, after its last resume; None if no broker lost any."""
    if not rules.lost:
        return None
    return F.forall(own_copies(), lambda copy: reduce(or_, [_is_lost(copy, each) for each in rules.lost]))


def _is_lost(copy: Column, lost: Lost) -> Column:
    there = (copy["broker_name"] == lost.broker_name) & (copy["queue_id"] == lost.queue_id)
    resumed_since = F.coalesce(F.col("resumed_at") >= F.lit(lost.at), F.lit(False))
    return there & (copy["queue_offset"] >= lost.from_offset) & ~resumed_since
