"""Find damage in the tables, and repair it."""

from __future__ import annotations

import argparse
from typing import Literal

from halfop.api.opening import of_job
from halfop.frame.cli import Context, Job, Options
from halfop.frame.output import Table
from halfop.frame.summary import Summary


class ExamineOptions(Options):
    deep: bool
    repair: bool


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--deep", action="store_true", help="also compare the rows of each run with what it recorded")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="make damaged logs whole, and write again what follows from other tables; nothing is delivered twice",
    )


_SHOWN: tuple[Literal["damaged", "repaired", "remains"], ...] = ("damaged", "repaired", "remains")


def _run(context: Context, args: ExamineOptions) -> Summary:
    summary = of_job("examine", context).examine(deep=args.deep, repair=args.repair)
    found = {what: summary.extra.get(what, []) for what in _SHOWN}
    context.output.tables(Table(["what", "where"], [[what, line] for what, lines in found.items() for line in lines]))
    return summary


JOB = Job(
    "examine",
    "Look at every table's log and files for what a disk or a hand has damaged, and say how to repair it. Without\n"
    "--repair nothing is changed. Status 3: something is damaged, or left to do.",
    _run,
    _arguments,
    examples=("", "--deep", "--repair"),
    pages=("repair.md",),
    measured=lambda args: "examine",
    options=ExamineOptions,
)
