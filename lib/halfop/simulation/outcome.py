"""The outcome of a variant: figures from the decisions of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.settings.model import RuleSettings
from halfop.simulation.replay import Replay

_LATENCY = {"commit_p50": 0.5, "commit_p90": 0.9, "commit_p99": 0.99}


@dataclass(frozen=True)
class Point:
    """Figures of one run: its decisions, and the messages that it left open; `carried` counts rows, early ops too."""

    now: datetime
    checks: int
    discards: int
    commits: int
    rollbacks: int
    open: int
    carried: int

    @staticmethod
    def of(now: datetime, counts: Sequence[Row]) -> Point:
        def rows(*decisions: str) -> int:
            return sum(row["rows"] for row in counts if row["decision"] in decisions)

        ends = rows("CHECK"), rows("DISCARD"), rows("COMMIT"), rows("ROLLBACK")
        return Point(now, *ends, rows("CHECK", "WAIT"), rows("CHECK", "WAIT", "EARLY_OP"))


@dataclass(frozen=True)
class Outcome:
    """Figures of all runs of one variant.

    needless_checks: of messages that their producers then ended by themselves. wrong_discards: of messages that an op
    ends nevertheless, in the replay or, if the replay did not ask any more, in history. commit_…: seconds from born
    to the run that commits, percentiles; None if nothing was committed.
    """

    name: str
    rules: RuleSettings
    checks: int
    needless_checks: int
    discards: int
    wrong_discards: int
    commits: int
    rollbacks: int
    open_at_end: int
    commit_p50: float | None
    commit_p90: float | None
    commit_p99: float | None
    points: Sequence[Point]


def outcome(name: str, rules: RuleSettings, replay: Replay, points: Sequence[Point], last_run: int) -> Outcome:
    """The outcome from a replay's decisions. A run after `last_run`, the schedule's last, shows only wrong discards."""
    decisions = replay.read("decisions")
    played = decisions.where(F.col("run_id") <= last_run)
    after = decisions.where("reason = 'AFTER_DISCARD'").select(HALF_KEY).distinct()
    return Outcome(
        name,
        rules,
        checks=sum(point.checks for point in points),
        needless_checks=_needless(played, replay).count(),
        discards=sum(point.discards for point in points),
        wrong_discards=after.count(),
        commits=sum(point.commits for point in points),
        rollbacks=sum(point.rollbacks for point in points),
        open_at_end=points[-1].open if points else 0,
        **_latency(played),
        points=points,
    )


def _needless(played: DataFrame, replay: Replay) -> DataFrame:
    """Checks of messages that were ended by an op which answers none."""
    ended = played.where(F.col("decision").isin("COMMIT", "ROLLBACK"))
    unasked = ended.join(replay.answers_among(ended), HALF_KEY, "left_anti")
    return played.where("decision = 'CHECK'").join(unasked, HALF_KEY, "left_semi")


def _latency(played: DataFrame) -> dict[str, float | None]:
    took = (F.unix_micros("decided_at") - F.unix_micros("born_timestamp")) / 1e6
    figures = [F.percentile(took, F.lit(share)).alias(name) for name, share in _LATENCY.items()]
    found: Row = played.where("decision = 'COMMIT'").agg(*figures).collect()[0]
    return found.asDict()
