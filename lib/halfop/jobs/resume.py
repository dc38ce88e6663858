"""Put discarded messages back to open, with check times 0."""

from __future__ import annotations

import argparse

from halfop.columns.keys import Key, as_key
from halfop.frame.cli import Context, Job
from halfop.frame.output import text_table
from halfop.frame.summary import Summary
from halfop.upkeep.resume import Selection, resume
from halfop.warehouse.session import spark_session
from halfop.warehouse.tables import Warehouse


def _key(text: str) -> Key:
    key = as_key(text)
    if key is None or not key.broker_name:
        raise argparse.ArgumentTypeError(f"expected BROKER/QUEUE/OFFSET, as broker-a/0/4711; given {text!r}")
    return key


def _arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--key",
        action="append",
        default=[],
        type=_key,
        metavar="BROKER/QUEUE/OFFSET",
        help="a discarded message by its half key (repeatable)",
    )
    which.add_argument(
        "--where",
        metavar="SQL",
        help="every discarded message that this holds for, over the columns of table trans_check_max_time",
    )
    parser.add_argument("--dry-run", action="store_true", help="tell which, and resume none")


def _run(context: Context, args: argparse.Namespace) -> Summary:
    settings = context.settings
    warehouse = Warehouse(spark_session("resume"), settings.warehouse_root)
    summary, rows = resume(warehouse, Selection(args.key, args.where, settings.lock.wait, args.dry_run))
    print(text_table(["broker_name", "queue_id", "queue_offset", "was"], rows), end="")
    return summary


JOB = Job(
    "resume",
    "Put discarded messages back to open, with check times 0; the next reconcile asks their producers again.",
    _run,
    _arguments,
    examples=(
        "--key broker-a/0/4711",
        "--where \"producer_group = 'orders' AND discarded_at > '2025-06-15'\" --dry-run",
    ),
    pages=("operations.md", "rules.md"),
    measured=lambda args: None if args.dry_run else "resume",
)
