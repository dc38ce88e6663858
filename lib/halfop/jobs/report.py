"""Write the state of the warehouse and what its newest runs did as one HTML page"""

from __future__ import annotations

import argparse
from pathlib import Path

from halfop.api.opening import of_job
from halfop.frame.arguments import positive_int
from halfop.frame.cli import Context, Job, Options
from halfop.frame.summary import Summary


class ReportOptions(Options):
    out: Path
    runs: int


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="where the page goes; a file that is there is replaced; default: report.html in this folder",
    )
    parser.add_argument(
        "--runs",
        type=positive_int,
        default=200,
        metavar="N",
        help="how many of the newest runs to look at: more take longer to read; default: 200",
    )


def _run(context: Context, args: ReportOptions) -> Summary:
    return of_job("report", context).report(args.out, args.runs)


JOB = Job(
    "report",
    "Write the state of the warehouse and what its newest runs did as one HTML page.\n\n"
    "The page holds everything that it shows: it opens without a network, on a phone and in print.\n"
    "Open, discarded and rejected messages come with the commands to continue. Tables are only read.",
    _run,
    _arguments,
    examples=("", "--out /srv/www/halfop.html --runs 1000", "--warehouse s3a://bucket/warehouse --out today.html"),
    pages=("report.md",),
    measured=lambda args: "report",
    options=ReportOptions,
)
