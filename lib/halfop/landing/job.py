"""The command `land`: one subcommand a source."""

from __future__ import annotations

import argparse

from halfop.cli import Context, Job, instant
from halfop.errors import UsageError
from halfop.landing.files import Request, land_files
from halfop.summary import Summary
from halfop.warehouse.session import spark_session
from halfop.warehouse.tables import Warehouse


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    sources = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")
    _add_files(sources.add_parser("files", help="half and op rows from JSON lines or Parquet files"))


def _add_files(files: argparse.ArgumentParser) -> None:
    files.set_defaults(land=_land_files)
    for option in ("--half", "--op"):
        files.add_argument(
            option,
            action="extend",
            nargs="+",
            default=[],
            metavar="PATH",
            help=f"{option[2:]} rows: a file, a directory or a glob; any URI that Hadoop reads; repeatable",
        )
    files.add_argument(
        "--known-until",
        type=instant,
        metavar="T",
        help="all ops up to this instant have landed with this; default: the newest op's store time, broker by broker",
    )
    files.add_argument("--skip-bad", action="store_true", help="land the good rows, bad ones go to table rejected")


def _land_files(context: Context, args: argparse.Namespace) -> Summary:
    if not args.half and not args.op:
        raise UsageError("land files needs at least one --half PATH or --op PATH")
    request = Request(args.half, args.op, args.known_until, args.skip_bad, context.settings.lock.wait)
    warehouse = Warehouse(spark_session("land files"), context.settings.warehouse_root)
    return land_files(warehouse, request, context.log)


def _run(context: Context, args: argparse.Namespace) -> Summary:
    summary: Summary = args.land(context, args)
    return summary


JOB = Job(
    name="land",
    description="Lands half messages and op messages, and how far their queues are known.",
    run=_run,
    add_arguments=_add_arguments,
    examples=(
        "files --half halves.jsonl --op ops.jsonl",
        "files --half 'dump/half-*.parquet' --op dump/ops/ --known-until 2025-06-15T15:06:40Z",
    ),
)
