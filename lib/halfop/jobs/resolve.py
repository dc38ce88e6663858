"""Find the outcomes of open transactions in business data, and plan to end them."""

from __future__ import annotations

import argparse

from halfop.api.ends import PlannedEnds
from halfop.api.halfop import Halfop
from halfop.api.opening import of_job
from halfop.ending.owner import add_owner, owner_of
from halfop.ending.resolve import refused_beside
from halfop.frame.cli import Context, Job, Options, setting_option
from halfop.frame.commands import plan_to_review
from halfop.frame.errors import UsageError, listed_of
from halfop.frame.output import Table
from halfop.frame.plan_file import refuse_existing
from halfop.frame.summary import Summary, add_counts
from halfop.jobs.end import ended_table

_READABLE = 10_000  # rows; a larger plan is read by programs


class ResolveOptions(Options):
    namesrv: str | None
    broker: str | None
    group: list[str]
    discarded: bool
    plan: str | None
    apply: bool
    no_index: bool


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="NAME",
        help="a producer group of resolve.groups (repeatable); default: all of them",
    )
    parser.add_argument(
        "--discarded", action="store_true", help="resolve also what was discarded, and so is no longer asked about"
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="the plan's file; Parquet by its suffix .parquet; default: ./resolve-ID.jsonl, of more than "
        f"{_READABLE:,} transactions ./resolve-ID.parquet",
    )
    setting_option(parser, "--min-age", "end.min_age", "DURATION")
    setting_option(parser, "--limit", "end.limit", "N")
    parser.add_argument("--apply", action="store_true", help="carry the plan out at once, as end --apply does")
    add_owner(parser)
    parser.add_argument("--no-index", action="store_true", help="with --apply: as end --apply takes it")


def _run(context: Context, args: ResolveOptions) -> Summary:
    for new in () if args.plan is None else (args.plan, refused_beside(args.plan)):
        refuse_existing(new)
    owner = owner_of(context.settings, args.namesrv, args.broker)  # also wrong credentials are refused first
    if not args.apply and (owner is not None or args.no_index):
        raise UsageError("--namesrv, --broker and --no-index belong to --apply")
    warehouse = of_job("resolve", context)
    found = warehouse.resolve(args.group, discarded=args.discarded)
    summary, path = found.summary, args.plan or _named(found)
    found.write(path)
    context.output.tables(_groups(summary))
    if not len(found.plan):
        summary.notes.append("no outcome was found: there is no plan")
    elif args.apply:
        _apply(context, warehouse, args, found)
    else:
        summary.notes.append(plan_to_review(path, context.settings))
    return summary


def _named(found: PlannedEnds) -> str:
    return f"resolve-{found.plan.head.plan_id}.{'jsonl' if len(found.plan) <= _READABLE else 'parquet'}"


def _groups(summary: Summary) -> Table:
    groups = summary.extra["groups"]
    names = sorted({name for counts in groups.values() for name in counts})
    rows = [[group, *[counts.get(name) for name in names]] for group, counts in groups.items()]
    return Table(["group", *names], rows)


def _apply(context: Context, warehouse: Halfop, args: ResolveOptions, found: PlannedEnds) -> None:
    """Carries the plan out, and adds what came of it to the summary."""
    ended = listed_of(
        lambda: warehouse.end(found.plan, namesrv=args.namesrv, broker=args.broker, no_index=args.no_index)
    )
    summary, applied = found.summary, ended.summary
    summary.status = applied.status
    summary.extra |= applied.extra
    summary.seconds |= applied.seconds
    summary.notes += applied.notes
    add_counts(summary.rows_written, applied.rows_written)
    context.output.tables(ended_table(ended.rows))


JOB = Job(
    "resolve",
    "Find the outcomes of open transactions in business data, and plan to end them. resolve.groups says for each\n"
    "producer group where its data is and what it says. Nothing is ended before end --apply; --apply does both.",
    _run,
    _arguments,
    examples=(
        "",
        "--group orders --plan orders.jsonl",
        "--group orders --apply --namesrv 'a:9876;b:9876' --set end.brokers=broker-a",
    ),
    pages=("ending.md", "settings.md"),
    measured=lambda args: "resolve",
    options=ResolveOptions,
)
