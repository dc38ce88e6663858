"""Make discarded messages open again, with check times 0."""

from __future__ import annotations

import argparse

from halfop.api.halfop import Halfop
from halfop.api.opening import of_job
from halfop.columns.keys import Key
from halfop.ending.owner import add_owner
from halfop.frame.arguments import add_selection
from halfop.frame.cli import Context, Job, Options
from halfop.frame.output import Table
from halfop.frame.summary import Summary
from halfop.upkeep.resume import Resumed


class ResumeOptions(Options):
    namesrv: str | None
    broker: str | None
    key: list[Key]
    where: str | None
    dry_run: bool


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_selection(
        parser,
        "a discarded message by its half key",
        "every discarded message for which this is true, over the columns of table trans_check_max_time",
    )
    parser.add_argument("--dry-run", action="store_true", help="list them, and resume none")
    add_owner(parser)


def _run(context: Context, args: ResumeOptions) -> Summary:
    warehouse = of_job("resume", context)
    if args.namesrv is not None or args.broker is not None:
        return _at_brokers(context, args, warehouse)
    found = warehouse.resume(args.key, where=args.where, dry_run=args.dry_run)
    context.output.tables(Table(Resumed._fields, found.rows))
    return found.summary


def _at_brokers(context: Context, args: ResumeOptions, warehouse: Halfop) -> Summary:
    found = warehouse.resume_at_brokers(
        args.key, where=args.where, namesrv=args.namesrv, broker=args.broker, dry_run=args.dry_run
    )
    rows = [[*each.key, each.state, each.code, each.remark] for each in found.rows]
    context.output.tables(Table(["broker_name", "queue_id", "queue_offset", "state", "code", "remark"], rows))
    return found.summary


JOB = Job(
    "resume",
    "Make discarded messages open again, with check times 0. The next reconcile asks their producers again. With\n"
    "--namesrv or --broker: messages that their broker itself gave up are put back there, and it asks again.",
    _run,
    _arguments,
    examples=(
        "--key broker-a/0/4711",
        "--where \"producer_group = 'orders' AND discarded_at > '2025-06-15'\" --dry-run",
    ),
    pages=("operate.md", "ending.md", "rules.md"),
    measured=lambda args: None if args.dry_run else "resume",
    options=ResumeOptions,
)
