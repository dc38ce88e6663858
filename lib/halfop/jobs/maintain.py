"""Compact, trim and vacuum the tables by retention."""

from __future__ import annotations

import argparse
from dataclasses import fields

from halfop.api.opening import of_job
from halfop.frame.cli import Context, Job, Options
from halfop.frame.output import Table
from halfop.frame.summary import Summary
from halfop.upkeep.maintain import Step


class MaintainOptions(Options):
    dry_run: bool
    values: str | None


def _arguments(parser: argparse.ArgumentParser) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--dry-run", action="store_true", help="show what would be removed, and change nothing")
    either.add_argument(
        "--values",
        metavar="TOPIC",
        help="only make the values of a topic again by topics.TOPIC.value, or find its schema if that is `infer`",
    )


def _run(context: Context, args: MaintainOptions) -> Summary:
    done = of_job("maintain", context).maintain(dry_run=args.dry_run, values=args.values, config=args.config)
    if args.values is None:
        context.output.tables(Table([field.name for field in fields(Step)], [step.cells for step in done.rows]))
    return done.summary


JOB = Job(
    "maintain",
    "Join small files, trim rows that retention.* no longer keeps, and remove files that no run needs. On a local\n"
    "disk a table is locked for its own commit alone. Nothing newer than what the last closed run has read is touched.",
    _run,
    _arguments,
    examples=("--dry-run", "--wait 10m", "--set retention.verify=7d --set retention.landed=30d", "--values orders"),
    pages=("operate.md", "settings.md", "topics.md"),
    measured=lambda args: None if args.dry_run else "maintain",
    options=MaintainOptions,
)
