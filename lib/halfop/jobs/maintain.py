"""Compact, trim and vacuum the tables by retention."""

from __future__ import annotations

import argparse
from dataclasses import fields

from halfop.frame.cli import Context, Job, Options
from halfop.frame.output import Table
from halfop.frame.summary import Summary
from halfop.opened import opened
from halfop.upkeep.maintain import Step, maintain


class MaintainOptions(Options):
    dry_run: bool


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would be removed, and change nothing")


def _run(context: Context, args: MaintainOptions) -> Summary:
    settings = context.settings
    # VACUUM lists folders with so many tasks; its 10,000 are for stores far larger than a table of ours
    few_tasks = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "16"}
    warehouse = opened("maintain", context, **few_tasks)
    summary, steps = maintain(warehouse, settings, args.dry_run)
    context.output.tables(Table([field.name for field in fields(Step)], [step.cells for step in steps]))
    return summary


JOB = Job(
    "maintain",
    "Join small files, trim rows that retention.* no longer keeps, and remove files that no run needs. On a local\n"
    "disk a table is locked for its own commit alone. Nothing newer than what the last closed run has read is touched.",
    _run,
    _arguments,
    examples=("--dry-run", "--wait 10m", "--set retention.verify=7d --set retention.landed=30d"),
    pages=("operate.md", "settings.md"),
    measured=lambda args: None if args.dry_run else "maintain",
    options=MaintainOptions,
)
