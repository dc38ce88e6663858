"""The task of a Databricks job: calls of halfop's, one after another, in the session that the platform gives.

A call that fails ends the task with its error. Each call's summary is a line of the task's output.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import halfop
from halfop.frame.summary import json_line
from halfop.settings.load import changed
from halfop.settings.model import Settings
from pyspark.sql import SparkSession

_SETTING = "a setting: docs/settings.md"


def run(argv: Sequence[str] | None = None) -> None:
    """Does the calls that the task's parameters name."""
    parser = argparse.ArgumentParser(prog="halfop_databricks", description=__doc__)
    parser.add_argument("--warehouse", required=True, metavar="URI", help="the root of all tables")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=_SETTING)
    parser.add_argument("calls", nargs="+", type=_call, metavar="CALL", help="reconcile, audit or report=FILE")
    args = parser.parse_args(argv)
    settings = changed(Settings(), args.set).model_dump(exclude_unset=True, by_alias=True)
    warehouse = halfop.open(SparkSession.builder.getOrCreate(), args.warehouse, settings)
    for name, values in args.calls:
        print(json_line(getattr(warehouse, name)(*values).fields()), flush=True)


def _call(text: str) -> tuple[str, list[str]]:
    name, equals, file = text.partition("=")
    if name not in ("reconcile", "audit", "report") or bool(equals) != (name == "report"):
        raise argparse.ArgumentTypeError(f"{text}: expected reconcile, audit or report=FILE")
    return name, [file] if equals else []
