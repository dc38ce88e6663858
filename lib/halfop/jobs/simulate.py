"""Show what other settings of the rules would have done over what has landed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from halfop.api.opening import of_job
from halfop.frame.arguments import instant, interval, positive_int
from halfop.frame.cli import Context, Job, Options
from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary
from halfop.simulation.play import compared
from halfop.simulation.simulate import MOST_STEPS, checked
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
        type=interval,
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
    tried, warehouse = what_if(args.what_if), of_job("simulate", context)
    checked(context.settings, tried, args.out)  # before Spark starts
    with interrupted_once(warehouse.spark):
        played = warehouse.simulate(
            tried, every=args.every, since=args.since, until=args.until, max_steps=args.max_steps, out=args.out
        )
    if played.outcomes:
        context.output.tables(compared(played.outcomes))
    return played.summary


def what_if(given: Sequence[str]) -> dict[str, Sequence[str]]:
    """The values by setting, of RULE=VALUE[,VALUE…]."""
    found: dict[str, Sequence[str]] = {}
    for each in given:
        key, equals, text = each.partition("=")
        if not equals:
            raise UsageError(f"--set {each}: expected KEY=VALUE, as --set transaction_timeout=30s")
        if key.strip() in found:
            raise UsageError(f"--set {key.strip()} is given twice; several values of one setting: KEY=VALUE,VALUE")
        found[key.strip()] = [value.strip() for value in text.split(",")]
    return found


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
