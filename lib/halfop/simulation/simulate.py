"""Simulation of other settings over landed history: the rules' own code, run after run on a moving clock.

Only a scratch folder is written, in the warehouse if it may be written, and removed at the end.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product, repeat
from pathlib import Path
from tempfile import TemporaryDirectory

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from halfop.frame.errors import HalfopError, UsageError
from halfop.frame.summary import Summary
from halfop.frame.units import EPOCH
from halfop.frame.units import instant as instant_text
from halfop.html import page
from halfop.planning.run import asks
from halfop.rules.settings_columns import RuleColumns
from halfop.runs.record import wall_clock
from halfop.settings.load import changed
from halfop.settings.model import RuleSettings, Settings
from halfop.settings.values import UNITS, duration_text
from halfop.simulation.history import UnaskedHistory
from halfop.simulation.play import Outcome, Play, html, in_summary
from halfop.simulation.replay import Replay, Schedule, regular, stage, widened
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.session import WITHOUT_CODEGEN, session_settings
from halfop.warehouse.signals import Task, or_called_off

log = logging.getLogger("halfop.simulate")

FOLDER = "_simulation"
MOST_STEPS = 500
_SHORTEST = timedelta(seconds=1)
_AT_ONCE = 2
_FEW_ROWS = 100_000
_OLD = 24 * 3600  # seconds, which no simulation takes between two files


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
    with scratch(warehouse) as root:

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
    # no clock of a queue is ahead of the wall clock, whatever a landing has claimed
    return EPOCH + timedelta(microseconds=halves["low"] - 1), min(max(known, default=last), max(last, wall_clock()))


@contextmanager
def scratch(warehouse: KernelWarehouse) -> Iterator[str]:
    """A folder beside the tables; a temporary one if nothing may be written there."""
    name, folder = f"{FOLDER}-{uuid.uuid4()}", warehouse.files.local(warehouse.root)
    if folder is not None and not os.access(folder, os.W_OK | os.X_OK):
        with TemporaryDirectory(prefix="halfop-") as temporary:
            yield warehouse.files.qualified(_elsewhere(warehouse, f"{temporary}/{name}"))
        return
    _remove_left(warehouse)
    root = warehouse.path(name)
    try:
        yield root
    finally:
        warehouse.files.remove(root)


def _remove_left(warehouse: KernelWarehouse) -> None:
    """Removes the folders of killed simulations: those with files, of which none was written within a day."""
    files, before = warehouse.files, (time.time() - _OLD) * 1_000
    for left in [name for name in files.folders(warehouse.root) if name.startswith(f"{FOLDER}-")]:
        with suppress(Py4JJavaError):  # another one is at work there, or it is another user's
            if 0 < files.last_change(warehouse.path(left)) < before:
                files.remove(warehouse.path(left))


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
    return WITHOUT_CODEGEN | {"spark.sql.shuffle.partitions": str(spark.sparkContext.defaultParallelism)} if few else {}


# ---- a simulation from its request to its result ----


NOW = "now"
MOST = 12
_ALWAYS = "rules.ask"


@dataclass(frozen=True)
class Simulated:
    """The end of a simulation: the summary, and an outcome a variant; none if nothing has landed.

    The first outcome, `now`, is that of the configured settings.
    """

    summary: Summary
    outcomes: Sequence[Outcome]


def simulated(
    warehouse: KernelWarehouse, tried: Mapping[str, RuleSettings], period: Period, out: Path | None
) -> Simulated:
    """Plays the variants, of which the first is the configured one, and writes the page if it has a place."""
    summary, rules = Summary("simulate"), tried[NOW]
    schedule = scheduled(warehouse, period, rules)
    if schedule is None:
        summary.notes.append(f"nothing has landed in {warehouse.root} yet")
        return Simulated(summary, [])
    with summary.phase("simulate"):
        outcomes = simulate(warehouse, tried, period, schedule)
    summary.extra = {"runs": len(schedule.instants), "every": schedule.every, "outcomes": in_summary(outcomes)}
    watched = [broker for broker, asked in asks(rules.ask, progress_rows(warehouse)).items() if not asked]
    summary.notes += _notes(schedule, period, rules, watched)
    if out:
        page.write(out, html(outcomes, _about(warehouse.root, schedule)))
    return Simulated(summary, outcomes)


def _notes(schedule: Schedule, period: Period, rules: RuleSettings, watched: Collection[str]) -> Iterator[str]:
    if schedule.every and schedule.every > period.wanted(rules):
        yield (
            f"runs are {duration_text(schedule.every)} apart, so that there are no more than {period.most_steps}, and "
            "nobody is asked more often; a shorter time by --from and --to, or more --max-steps, brings them closer"
        )
    if watched:
        yield f"halfop only watches {', '.join(watched)} (rules.ask). Here it asks in the brokers' place"


def _about(root: str, schedule: Schedule) -> list[tuple[str, str]]:
    first, last = instant_text(schedule.instants[0]), instant_text(schedule.instants[-1])
    every = duration_text(schedule.every) if schedule.every else ""
    return [("warehouse", root), ("first run", first), ("last run", last), ("every", every)]


def checked(settings: Settings, what_if: Mapping[str, Sequence[object]], out: Path | None) -> dict[str, RuleSettings]:
    """Returns the variants. Raises UsageError if one is none, or if the page has no folder."""
    if out:
        page.refuse_no_folder(out)
    return variants(settings, what_if)


# ---- variants ----


def variants(settings: Settings, what_if: Mapping[str, Sequence[object]]) -> dict[str, RuleSettings]:
    """The configured rules, then each combination of the values that settings of the rules are given, by name."""
    each_with_values = [[f"{key}={_text(value)}" for value in values] for key, values in what_if.items()]
    tried = [list(chosen) for chosen in product(*each_with_values)] if what_if else []
    if len(tried) > MOST:
        raise UsageError(f"these are {len(tried)} variants; at most {MOST} are played")
    found = {NOW: settings.rules}
    for chosen in tried:
        found[", ".join(chosen)] = changed(settings, [_override(each) for each in chosen]).rules
    return found


def _text(value: object) -> object:
    """A value as --set takes it. A duration with a part of a millisecond has no text, and is refused."""
    return duration_text(value) if isinstance(value, timedelta) and not value % UNITS["ms"] else value


def _override(given: str) -> str:
    """RULE=VALUE as any job's --set takes it: names of rules may go without the prefix."""
    key = given.partition("=")[0]
    first = key.partition(".")[0]
    if first in Settings.model_fields and first != "rules" and first not in RuleSettings.model_fields:
        raise UsageError(f"--set {key}: a simulation plays other settings of the rules, as transaction_timeout=30s")
    override = given if first == "rules" else f"rules.{given}"
    if override.startswith(f"{_ALWAYS}="):
        raise UsageError(f"--set {key}: in a simulation halfop always asks")
    return override
