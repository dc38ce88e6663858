"""Show what other settings of the rules would have done over what has landed."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path

from halfop.frame.arguments import duration, instant, positive_int
from halfop.frame.cli import Context, Job, Options
from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary
from halfop.frame.units import instant as instant_text
from halfop.html import page
from halfop.planning.run import asks
from halfop.settings.load import load_settings
from halfop.settings.model import RuleSettings, Settings
from halfop.settings.values import duration_text
from halfop.simulation.scratch import Schedule
from halfop.simulation.simulate import MOST_STEPS, Period, compared, html, in_summary, scheduled, simulate
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.session import spark_session
from halfop.warehouse.signals import interrupted_once


class SimulateOptions(Options):
    what_if: list[str]
    every: timedelta | None
    since: datetime | None
    until: datetime | None
    out: Path | None
    max_steps: int


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="what_if",
        action="append",
        default=[],
        metavar="RULE=VALUE[,VALUE…]",
        help="a setting of the rules to try, as transaction_timeout=30s (or rules.transaction_timeout=30s); several "
        "values are each tried, in every combination (repeatable)",
    )
    parser.add_argument(
        "--every",
        type=duration,
        metavar="DURATION",
        help="how often a run happens; default: rules.transaction_check_interval as configured",
    )
    add = parser.add_argument
    add("--from", dest="since", type=instant, metavar="T", help="leave out messages that were stored before")
    add(
        "--to",
        dest="until",
        type=instant,
        metavar="T",
        help="the last run's instant; default: the instant up to which everything is known",
    )
    most = f"the most runs of a variant; default {MOST_STEPS}"
    add("--out", type=Path, metavar="FILE.html", help="also write a page with plots")
    add("--max-steps", type=positive_int, default=MOST_STEPS, metavar="N", help=most)


def _run(context: Context, args: SimulateOptions) -> Summary:
    settings, summary = context.settings, Summary("simulate")
    if args.out:
        page.refuse_no_folder(args.out)
    tried = variants(settings, args.config, args.what_if)
    warehouse = KernelWarehouse(spark_session("simulate"), settings.warehouse_root)
    period = Period(args.since, args.until, args.every, args.max_steps)
    schedule = scheduled(warehouse, period, settings.rules)
    if schedule is None:
        summary.notes.append(f"nothing has landed in {warehouse.root} yet")
        return summary
    with summary.phase("simulate"), interrupted_once(warehouse.spark):
        outcomes = simulate(warehouse, tried, period, schedule)
    summary.extra = {"runs": len(schedule.instants), "every": schedule.every, "outcomes": in_summary(outcomes)}
    progress = asks(settings.rules.ask, progress_rows(warehouse))
    watched = [broker for broker, asked in progress.items() if not asked]
    summary.notes += _notes(schedule, period, settings.rules, watched)
    context.output.tables(compared(outcomes))
    if args.out:
        page.write(args.out, html(outcomes, _about(warehouse.root, schedule)))
    return summary


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


# ---- --set ----

NOW = "now"
MOST = 12
_ALWAYS = "rules.ask"


def variants(settings: Settings, config: Path | None, given: Sequence[str]) -> dict[str, RuleSettings]:
    """The configured rules, then each combination of the values given as RULE=VALUE[,VALUE…], by name."""
    keys = [each.partition("=")[0].strip() for each in given]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise UsageError(f"--set {min(twice)} is given twice; several values of one setting: KEY=VALUE,VALUE")
    each_with_values = [_values(each) for each in given]
    tried = [list(chosen) for chosen in product(*each_with_values)] if given else []
    if len(tried) > MOST:
        raise UsageError(f"these are {len(tried)} variants; at most {MOST} are played")
    found = {NOW: settings.rules}
    for chosen in tried:
        found[", ".join(chosen)] = load_settings(config, [_override(each) for each in chosen]).rules
    return found


def _values(given: str) -> list[str]:
    key, equals, text = given.partition("=")
    return [f"{key.strip()}{equals}{value.strip()}" for value in text.split(",")]


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


JOB = Job(
    "simulate",
    "Play what has landed under other settings of the rules, and compare with the configured ones. Nothing is changed.",
    _run,
    _arguments,
    examples=(
        "--set transaction_timeout=30s",
        "--set transaction_timeout=6s,30s,60s --set transaction_check_max=5",
        "--set topics.TopicPayment.transaction_timeout=1m --every 30s --from 2025-06-15 --to 2025-06-16",
    ),
    pages=("simulate.md", "settings.md"),
    options=SimulateOptions,
)
