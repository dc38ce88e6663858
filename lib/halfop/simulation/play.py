"""One variant's runs over a replayed history, the figures of them, and those of all variants side by side."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.frame.output import Table
from halfop.frame.units import count, duration, plural
from halfop.html import plots
from halfop.html.page import Markup, PageSection, nothing, page, part, parts, table
from halfop.planning.plan import arrived, plan_of
from halfop.planning.run import INPUTS, Run, counts_delivered
from halfop.settings.model import RuleSettings, Settings
from halfop.simulation.replay import Replay
from halfop.warehouse.tables import NO_TABLE
from halfop.warehouse.where import equal

log = logging.getLogger("halfop.simulate")

_LOG_EVERY = 10.0  # seconds


class Play:
    """Runs as `reconcile` makes them, without what a run writes besides its decisions."""

    def __init__(
        self, name: str, rules: RuleSettings, replay: Replay, go_on: Callable[[], None] = lambda: None
    ) -> None:
        self._name, self._replay, self._go_on = name, replay, go_on
        self._settings = Settings(rules=rules.model_copy(update={"ask": True}))
        self._delivered = counts_delivered(rules.count, replay.landed.progress)
        self._schedule = replay.landed.schedule
        self._pins = dict.fromkeys(INPUTS, NO_TABLE)
        self._run_id = 0
        self._points: list[Point] = []

    def outcome(self) -> Outcome:
        """The figures of all runs."""
        self.play()
        last_run = self._run_id
        if any(point.discards for point in self._points):
            self._hear_all()
        return outcome(self._name, self._settings.rules, self._replay, self._points, last_run)

    def play(self) -> None:
        """Every run of the schedule that may find something."""
        self._replay.make("decisions")
        logged = time.monotonic()
        for step in self._schedule.steps:
            self._go_on()
            if self._replay.lands(step) or (self._points and self._points[-1].carried):
                self._step(step)
            if time.monotonic() - logged > _LOG_EVERY:
                logged = time.monotonic()
                log.info("%s: %d of %d runs", self._name, step, len(self._schedule.instants))

    def _step(self, step: int) -> None:
        now = self._schedule.at(step)
        counts = self._run(step)
        self._points.append(Point.of(now, counts))
        if not self._points[-1].checks or not (self._replay.landed.any_answers or self._counts_delivered):
            return
        asked = self._replay.read("decisions", where=equal("run_id", self._run_id)).where(F.col("decision") == "CHECK")
        if self._counts_delivered:
            within = self._settings.rules.transaction_check_interval
            asked = self._replay.deliver(asked, self._run_id, step, within)
        if self._replay.landed.any_answers:
            self._replay.release(asked, now)

    @property
    def _counts_delivered(self) -> bool:
        """Returns whether a question may count only when it is delivered."""
        return self._settings.rules.count == "delivered" or any(self._delivered.values())

    def _hear_all(self) -> None:
        """Makes a run after the last one, which knows all that history knows."""
        self._replay.release_all()
        self._run(self._schedule.beyond)

    def _run(self, step: int) -> list[Row]:
        self._run_id += 1
        pins, before = self._replay.pins(step), self._pins
        now = self._schedule.at(min(step, len(self._schedule.instants)))
        run = Run(self._run_id, now, pins, before, self._settings, delivered=self._delivered)
        with arrived(self._replay, run) as arrivals:
            plan_of(arrivals).commit()
        self._pins = pins
        decided = self._replay.read("decisions", where=equal("run_id", self._run_id))
        return decided.groupBy("decision").agg(F.count("*").alias("rows")).collect()


_SHARES = {"commit_p50": 0.5, "commit_p90": 0.9, "commit_p99": 0.99}


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
        **_percentiles(played),
        points=points,
    )


def _needless(played: DataFrame, replay: Replay) -> DataFrame:
    """Checks of messages that were ended by an op which answers none."""
    ended = played.where(F.col("decision").isin("COMMIT", "ROLLBACK"))
    unasked = ended.join(replay.answers_among(ended), HALF_KEY, "left_anti")
    return played.where("decision = 'CHECK'").join(unasked, HALF_KEY, "left_semi")


def _percentiles(played: DataFrame) -> dict[str, float | None]:
    took = (F.unix_micros("decided_at") - F.unix_micros("born_timestamp")) / 1e6
    figures = [F.percentile(took, F.lit(share)).alias(name) for name, share in _SHARES.items()]
    found: Row = played.where("decision = 'COMMIT'").agg(*figures).collect()[0]
    return found.asDict()


# ---- the figures of all variants, side by side ----

_COUNTS = {
    "checks": "checks",
    "needless_checks": "needless",
    "discards": "discards",
    "wrong_discards": "wrong",
    "commits": "commits",
    "rollbacks": "rollbacks",
    "open_at_end": "open at end",
}
_LATENCY = {"commit_p50": "p50", "commit_p90": "p90", "commit_p99": "p99"}
_PLOTS = {
    "checks": ("Questions to producers", "check"),
    "needless_checks": ("Needless questions: the producer ended the message by itself", "accent"),
    "discards": ("Messages discarded", "discard"),
    "wrong_discards": ("Discarded wrongly: an op ends the message after all", "reject"),
}
_LEAD = "The first row is what the configured settings do over the same history."
_LATENCY_LEAD = (
    "The time from a message's born time to the run that commits it. Whatever the settings are, an ended message waits "
    "for the next run."
)


def in_summary(outcomes: Sequence[Outcome]) -> list[Mapping[str, object]]:
    """Returns each outcome's figures, for a summary."""
    left_out = ("rules", "points")
    return [{name: value for name, value in asdict(each).items() if name not in left_out} for each in outcomes]


def compared(outcomes: Sequence[Outcome]) -> Table:
    """Returns a row for each variant."""
    return Table(_header(), [_row(each) for each in outcomes])


def html(outcomes: Sequence[Outcome], about: Sequence[tuple[str, str]]) -> str:
    """Returns a whole page with plots."""
    asked = PageSection(
        "asked",
        "Questions and discards",
        _in_a_sentence(outcomes),
        [parts(*[_bars(name, outcomes) for name in _PLOTS])],
    )
    latency = PageSection("latency", "From born to committed", _LATENCY_LEAD, [_latency(outcomes)])
    every = PageSection("figures", "All figures", _LEAD, [table(_header(), [_row(each) for each in outcomes])])
    return page("halfop: what other settings would have done", about, [], [asked, latency, every])


def _header() -> list[str]:
    return ["variant", *_COUNTS.values(), *[f"commit {name}" for name in _LATENCY.values()]]


def _row(each: Outcome) -> list[str | int]:
    seconds = [getattr(each, name) for name in _LATENCY]
    took = ["" if value is None else duration(1000 * value) for value in seconds]
    return [each.name, *[getattr(each, name) for name in _COUNTS], *took]


def _in_a_sentence(outcomes: Sequence[Outcome]) -> str:
    """The change that the variant with the fewest needless checks makes."""
    now, *others = outcomes
    best = min(others, key=lambda each: (each.wrong_discards, each.needless_checks, each.checks), default=None)
    asked = f"{plural(now.checks, 'question')} as configured, {count(now.needless_checks)} of them needless"
    if best is None:
        return f"{asked}."
    then = f"{plural(best.checks, 'question')}, {count(best.needless_checks)} of them needless"
    wrong = f"{plural(best.wrong_discards, 'wrong discard')} instead of {now.wrong_discards}"
    return f"{asked}. With {best.name}: {then}, and {wrong}."


def _bars(name: str, outcomes: Sequence[Outcome]) -> Markup:
    title, tone = _PLOTS[name]
    found = [(each.name, getattr(each, name)) for each in outcomes]
    return part(title, plots.bars(title, [plots.Bar(label, n, count(n), tone) for label, n in found]))


def _latency(outcomes: Sequence[Outcome]) -> Markup:
    values = [[_millis(getattr(each, name)) for name in _LATENCY] for each in outcomes]
    if all(value is None for row in values for value in row):
        return nothing("Nothing was committed.")
    columns = [plots.Column(each.name, row) for each, row in zip(outcomes, values, strict=True)]
    return plots.lines("From born to committed", [plots.Series(n, n) for n in _LATENCY.values()], columns)


def _millis(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
