"""Land and reconcile a real broker's store on a moving clock, and show what became of its messages."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from halfop import gateway_demo
from halfop.demo import OVERRIDES, fates, fresh_folder, next_commands, places, play, refused
from halfop.frame.cli import Context, Job, Options
from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary
from halfop.report.report import report
from halfop.settings.home import checkout, sample
from halfop.settings.load import load_settings
from halfop.settings.model import Settings
from halfop.warehouse.disk import local_folder
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import WITHOUT_CODEGEN, spark_session
from halfop.warehouse.signals import interrupted_once


class DemoOptions(Options):
    gateway: bool


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gateway",
        action="store_true",
        help="instead: a gateway, a producer that is asked and answers, and what follow does, all live",
    )


def _run(context: Context, args: DemoOptions) -> Summary:
    found = sample(os.environ)
    if found is None:
        raise UsageError("the demo needs its sample, which a checkout and the wheel have: call it there")
    root = local_folder(f"{_parent(context.settings)}/{'demo-gateway' if args.gateway else 'demo'}")
    if root is None:
        raise UsageError("the demo runs on a local folder; give --warehouse a path")
    if os.environ.get("SPARK_REMOTE"):
        raise UsageError("the demo works on files, which Spark Connect does not show: call it without --remote")
    fresh_folder(Path(root))
    context.log.info("starting Spark; the demo takes about a minute")
    spark = spark_session("demo", **WITHOUT_CODEGEN | {"spark.sql.shuffle.partitions": "1"})
    warehouse = KernelWarehouse(spark, root)
    if args.gateway:
        return _live(context, warehouse, Path(root))
    with interrupted_once(spark):
        return _played(context, warehouse, found)


def _parent(settings: Settings) -> str:
    """The warehouse; without one, as for a wheel, a folder beside the report."""
    if settings.warehouse is None and checkout(os.environ) is None:
        return str(Path("warehouse").absolute())
    return settings.warehouse_root


def _played(context: Context, warehouse: KernelWarehouse, store: Path) -> Summary:
    """The demo of a broker's store, and its report."""
    root = warehouse.root
    context.output.text("the clock    what happened\n")
    summary = play(warehouse, load_settings(None, OVERRIDES, {}), store, context.output)
    context.log.info("reading what became of the messages")
    context.output.text("\n")
    context.output.tables(fates(warehouse), refused(warehouse), places(warehouse))
    context.log.info("writing the report")
    out, settings = Path("report.html").absolute(), context.settings.model_copy(update={"warehouse": root})
    page = report(warehouse, settings, out, newest=200)
    summary.extra["path"] = page.extra["path"]
    context.output.text(f"\nThe tables are Delta, below {root}\nThe report on them is {out}\n")
    context.output.text("\nWhat to look at next:\n\n")
    context.output.text("".join(f"  {what}:\n    {command}\n\n" for what, command in next_commands(settings)))
    return summary


def _live(context: Context, warehouse: KernelWarehouse, root: Path) -> Summary:
    """The demo of the gateway; its store is beside the tables."""
    store = root / "gateway"
    store.mkdir()
    context.output.text("the clock  who       what\n")
    summary = gateway_demo.play(warehouse, load_settings(None, gateway_demo.OVERRIDES, {}), store, context.output)
    context.output.text("\n")
    context.output.tables(fates(warehouse), places(warehouse))
    context.output.text(f"\nThe tables are Delta, below {root}\nThe gateway's store is {store}/store\n")
    return summary


JOB = Job(
    "demo",
    "Land and reconcile a real broker's store that comes with halfop, pass by pass. Show what became of its\n"
    "messages, and write report.html to this folder. Each demo makes its tables again: in demo/ of the warehouse,\n"
    "with --gateway in demo-gateway/.",
    _run,
    _arguments,
    examples=("", "--warehouse my-warehouse", "--gateway"),
    pages=("rules.md", "report.md", "gateway.md"),
    options=DemoOptions,
)
