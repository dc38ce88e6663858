"""Make discarded messages open again, with check times 0."""

from __future__ import annotations

import argparse

from halfop.columns.keys import Key
from halfop.ending.given_up import Resume, resume_at_brokers
from halfop.ending.owner import Masters, add_owner, owner_of
from halfop.frame.arguments import add_selection
from halfop.frame.cli import Context, Job, Options
from halfop.frame.output import Table
from halfop.frame.summary import Summary
from halfop.opened import opened_anywhere
from halfop.upkeep.resume import ResumeSelection, resume
from halfop.warehouse.kernel import KernelWarehouse, files_of


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
    settings = context.settings
    where = owner_of(settings, args.namesrv, args.broker)
    warehouse = opened_anywhere("resume", context)
    if where is not None:
        return _at_brokers(context, args, files_of(warehouse, "resume at a broker"), where)
    with warehouse.for_few_rows():
        summary, rows = resume(warehouse, ResumeSelection(args.key, args.where, settings.lock.wait, args.dry_run))
    context.output.tables(Table(["broker_name", "queue_id", "queue_offset", "was"], rows))
    return summary


def _at_brokers(context: Context, args: ResumeOptions, warehouse: KernelWarehouse, where: Masters) -> Summary:
    end, wait = context.settings.end, context.settings.lock.wait
    with warehouse.for_few_rows():
        request = Resume(where, end.brokers, args.key, args.where, end.limit, wait, args.dry_run)
        summary, endings = resume_at_brokers(warehouse, request)
    rows = [[*each.key, each.state, each.code, each.remark] for each in endings]
    context.output.tables(Table(["broker_name", "queue_id", "queue_offset", "state", "code", "remark"], rows))
    return summary


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
