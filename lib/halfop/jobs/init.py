"""Make a project folder: commented settings, a schedule, sample rows."""

from __future__ import annotations

import argparse
from pathlib import Path

from halfop.frame.cli import Context, Job, Options
from halfop.frame.summary import Summary
from halfop.project import SCHEDULES, begin


class InitOptions(Options):
    folder: Path
    schedule: str


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="the folder; it is made, and no file of it overwritten"
    )
    parser.add_argument("--schedule", choices=SCHEDULES, default="cron", help="what calls halfop; default: cron")


def _run(context: Context, args: InitOptions) -> Summary:
    summary = Summary("init")
    summary.extra["path"] = str(args.folder)
    for name in begin(args.folder, args.schedule):
        context.output.text(f"{args.folder / name}\n")
    context.output.text(f"{args.folder / 'README.md'} has the next commands\n")
    return summary


JOB = Job(
    "init",
    "Make a project folder: halfop.yaml with every setting and its meaning, a schedule, sample rows, and a README\n"
    "with the commands for them.",
    _run,
    _arguments,
    examples=("my-halfop", "my-halfop --schedule airflow"),
    pages=("start.md",),
    needs_spark=False,
    options=InitOptions,
)
