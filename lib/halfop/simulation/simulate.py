"""Simulation of other settings over landed history: the rules' own code, run after run on a moving clock.

Only a scratch folder is written, in the warehouse if it may be written, and removed at the end.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import repeat
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from halfop.frame.errors import HalfopError, UsageError
from halfop.frame.output import Table
from halfop.frame.units import EPOCH, count, duration, plural
from halfop.html import plots
from halfop.html.page import Markup, PageSection, nothing, page, part, parts, table
from halfop.rules.settings_columns import RuleColumns
from halfop.runs.record import wall_clock
from halfop.settings.model import RuleSettings
from halfop.settings.values import duration_text
from halfop.simulation.history import UnaskedHistory
from halfop.simulation.play import Outcome, Play
from halfop.simulation.replay import Replay, Schedule, regular, stage, widened
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.session import FOR_FEW_ROWS, session_settings
from halfop.warehouse.signals import Task, or_called_off

log = logging.getLogger("halfop.simulate")

FOLDER = "_simulation"
MOST_STEPS = 500
_SHORTEST = timedelta(seconds=1)
_AT_ONCE = 2
_FEW_ROWS = 100_000


@dataclass(frozen=True)
class Period:
    """The part of history that is played, and the time between two runs; None: all of it, the check interval."""

    since: datetime | None = None
    until: datetime | None = None
    every: timedelta | None = None
    most_steps: int = MOST_STEPS

    def wanted(self, baseline: RuleSettings) -> timedelta:
        """The time between two runs, unless that makes too many."""
        return self.every or max(baseline.transaction_check_interval, _SHORTEST)


def simulate(
    warehouse: KernelWarehouse,
    variants: Mapping[str, RuleSettings],
    period: Period | None = None,
    schedule: Schedule | None = None,
) -> list[Outcome]:
    """Plays one history under each variant of the rules; returns the outcomes in order, none if nothing has landed.

    The schedule is the period's unless another is given. halfop asks in every variant, whatever `rules.ask` says.
    """
    period, baseline = period or Period(), next(iter(variants.values()))
    schedule = schedule or scheduled(warehouse, period, baseline)
    if schedule is None:
        return []
    history = UnaskedHistory(warehouse, RuleColumns(baseline, wall_clock()), period.since)
    log.info("%d runs up to %s for each variant", len(schedule.instants), schedule.instants[-1].isoformat())
    spark = warehouse.spark
    with _scratch(warehouse) as root:

        def played(task: Task) -> list[Outcome]:
            landed = stage(history, schedule, f"{root}/landed")
            replays = [Replay(spark, f"{root}/{n}", landed=landed) for n in range(len(variants))]
            plays = list(map(Play, variants, variants.values(), replays, repeat(task.go_on)))
            quick = _quick(spark, few=landed.most_rows < _FEW_ROWS)
            with session_settings(spark, quick), ThreadPoolExecutor(_AT_ONCE, initializer=task.join) as pool:
                return list(pool.map(Play.outcome, plays))

        return or_called_off(spark, played)


def scheduled(warehouse: KernelWarehouse, period: Period, baseline: RuleSettings) -> Schedule | None:
    """The runs of a period; None if nothing has landed.

    More runs than its `most_steps` are spread, or refused if the period has a time between runs.
    """
    bounds = _bounds(warehouse)
    if bounds is None:
        return None
    since, until = period.since or bounds[0], period.until or bounds[1]
    if since >= until:
        raise UsageError(f"nothing lies between {since.isoformat()} and {until.isoformat()}: other --from or --to?")
    every = period.wanted(baseline)
    spread = widened(since, until, every, period.most_steps)
    if spread > every and period.every:
        raise UsageError(
            f"a run every {duration_text(every)} from {since.isoformat()} to {until.isoformat()} makes more than "
            f"{period.most_steps} runs: give --every {duration_text(spread)}, a shorter --from and --to, or --max-steps"
        )
    return regular(since, until, spread)


def _bounds(warehouse: KernelWarehouse) -> tuple[datetime, datetime] | None:
    """The first half message's time, and the greatest known-until or else the last row's time."""
    stored = [F.unix_micros(each("store_timestamp")).alias(name) for name, each in (("low", F.min), ("high", F.max))]
    halves, ops = (warehouse.read(name).agg(*stored).collect()[0] for name in ("half_messages", "op_messages"))
    if halves["low"] is None:
        return None
    known = [row["known_until"] for row in progress_rows(warehouse) if row["known_until"] is not None]
    last = EPOCH + timedelta(microseconds=max(halves["high"], ops["high"] or 0))
    return EPOCH + timedelta(microseconds=halves["low"] - 1), max(known, default=last)


@contextmanager
def _scratch(warehouse: KernelWarehouse) -> Iterator[str]:
    """A folder beside the tables; a temporary one if nothing may be written there."""
    name, folder = f"{FOLDER}-{uuid.uuid4()}", warehouse.files.local(warehouse.root)
    if folder is not None and not os.access(folder, os.W_OK | os.X_OK):
        with TemporaryDirectory(prefix="halfop-") as temporary:
            yield warehouse.files.qualified(_elsewhere(warehouse, f"{temporary}/{name}"))
        return
    root = warehouse.path(name)
    try:
        yield root
    finally:
        warehouse.files.remove(root)


def _elsewhere(warehouse: KernelWarehouse, folder: str) -> str:
    """A folder of this machine, if all tasks run here."""
    if not str(warehouse.spark.sparkContext.master).startswith("local"):
        raise HalfopError(
            f"{warehouse.root}: nothing may be written there, and a cluster writes the replay beside the tables. Use "
            "--master local[*], which writes it to TMPDIR, or let this user write there"
        )
    log.info("the replay is written to %s: the warehouse may only be read", folder)
    return folder


def _quick(spark: SparkSession, few: bool) -> dict[str, str]:
    """Session settings for few rows a run: compiling its queries would cost more than it saves."""
    return FOR_FEW_ROWS | {"spark.sql.shuffle.partitions": str(spark.sparkContext.defaultParallelism)} if few else {}


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
