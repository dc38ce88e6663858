"""Run the rules over what has landed."""

from __future__ import annotations

import argparse
from dataclasses import astuple, fields
from datetime import datetime
from functools import partial

from halfop.api.halfop import Halfop
from halfop.api.opening import of_job
from halfop.frame.arguments import FailOn, add_fail_on, failing_on, instant, positive_int
from halfop.frame.cli import Context, Job, Options, setting_option
from halfop.frame.errors import UsageError, summary_of
from halfop.frame.output import Table
from halfop.frame.summary import Summary
from halfop.runs.finish import known_form
from halfop.runs.verify import Difference
from halfop.sinks.targets import SINK_NAMES

_DESCRIPTION = """\
Decide what becomes of every open half message that has landed. Write committed messages to topics/, checks for
producers to check_requests, discarded messages to trans_check_max_time, and rows that no rule can use to rejected.
Start it again and again, for example every minute; an interrupted run is finished first.
Brokers that land store or land broker landed ask by themselves, so they are only watched (rules.ask)."""


class RunOptions(Options):
    """Options of a run."""

    now: datetime | None
    allow_future: bool
    park_sink: list[str]
    fail_on: list[FailOn]


class ReconcileOptions(RunOptions):
    dry_run: bool
    verify: int | None


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--dry-run", action="store_true", help="print what would be decided and write nothing")
    instead.add_argument(
        "--verify",
        type=positive_int,
        metavar="RUN",
        help="compute that run again from what it read, compare the result with what is recorded, and write nothing; "
        "status 5 if they differ",
    )


def add_run_options(parser: argparse.ArgumentParser, call: str = "the run") -> None:
    """Adds the options of a run; `run` and `failing_on` understand them."""
    parser.add_argument(
        "--now", type=instant, metavar="T", help="the run's instant, for a backfill; default: the clock"
    )
    parser.add_argument("--allow-future", action="store_true", help="let --now lie after the clock")
    setting_option(parser, "--max-rows", "run.max_rows", "N")
    parser.add_argument(
        "--park-sink",
        action="append",
        default=[],
        type=_sink,
        metavar="NAME",
        help="close runs without this table; a later call without the option writes what it is owed (repeatable): "
        + ", ".join(SINK_NAMES),
    )
    add_fail_on(parser, call)


def run(warehouse: Halfop, args: RunOptions, if_due: bool = False) -> Summary:
    """Does a run with these options."""
    call = partial(warehouse.reconcile, now=args.now, allow_future=args.allow_future, park_sinks=args.park_sink)
    return failing_on(args.fail_on, summary_of(partial(call, if_due=if_due)))


def _run(context: Context, args: ReconcileOptions) -> Summary:
    warehouse = of_job("reconcile", context)
    if args.verify is not None:
        if args.fail_on:
            raise UsageError("--fail-on: --verify compares a run, and rejects nothing; leave out one of them")
        compared = warehouse.verify(args.verify)
        header = [field.name for field in fields(Difference)]
        context.output.tables(Table(header, [astuple(each) for each in compared.rows]))
        return compared.summary
    return failing_on(args.fail_on, _preview(context, warehouse, args)) if args.dry_run else run(warehouse, args)


def _preview(context: Context, warehouse: Halfop, args: ReconcileOptions) -> Summary:
    found = warehouse.preview(now=args.now, allow_future=args.allow_future)
    context.output.tables(Table(list(found.rows[0].asDict()) if found.rows else [], found.rows))
    return found.summary


def _sink(name: str) -> str:
    try:
        return known_form(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _measured(args: ReconcileOptions) -> str | None:
    """Returns the name of a call's metrics; a preview or a comparison is no run, and has none."""
    return None if args.dry_run or args.verify is not None else "reconcile"


JOB = Job(
    "reconcile",
    _DESCRIPTION,
    _run,
    _arguments,
    examples=("", "--now 2025-06-15T15:06:40Z", "--dry-run", "--verify 7", "--set rules.ask=true --fail-on conflicts"),
    pages=("rules.md", "operate.md", "settings.md"),
    measured=_measured,
    options=ReconcileOptions,
)
