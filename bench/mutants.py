"""Mutants of the rules: which of them does no case notice?

bench/run mutants [--only MODULE …] [--every N] [--skip N]

Each changes one thing in lib/halfop/rules. The cases of the rules and of copies are decided with it in one warm
session. Status 1 if a mutant survives that mutants.txt does not list, with the reason why it cannot change an outcome.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType

import model as m
import pytest
import test_copies_in_memory as copies
import test_rules as rules
from build.cases_of_copies import CASES as COPIES
from build.cases_of_lines import OBSERVED, RULES
from build.mutants import Grafted, Mutant, mutants
from build.one_look import ONE_LOOK
from build.rule_case import Case, check, in_memory
from build.rule_words import NOW
from build.stories import STORIES
from build.unlike_the_broker import RUNS, STORY_RULES, UNLIKE_THE_BROKER
from halfop.planning import ranges
from halfop.warehouse.session import spark_session
from pyspark import cloudpickle
from pyspark.sql import SparkSession

_MODULES = ["table", "cases", "ops", "halves", "transactions", "kins", "resolve", "settings_columns"]
_EXCUSED = Path(__file__).with_name("mutants.txt")


def battery(spark: SparkSession) -> None:
    """Raises if the rules decide a case otherwise; the cheapest come first."""
    looks: list[tuple[list[Case], m.Settings, list[int]]] = [
        (ONE_LOOK, RULES, [NOW]),
        (OBSERVED, rules.WATCHING, [NOW]),
        ([*UNLIKE_THE_BROKER, *STORIES], STORY_RULES, list(RUNS)),
    ]
    for cases, settings, runs in looks:
        found = in_memory(spark, cases, settings, runs)
        for case in cases:
            check(found, case)
    played = copies.played.__wrapped__(spark)  # type: ignore[attr-defined]
    for number in range(len(COPIES)):
        copies.test_case(number, played)


def killed_by(spark: SparkSession, mutant: Mutant, users: list[ModuleType]) -> str | None:
    """Returns what noticed the mutant; None if nothing did."""
    module = importlib.import_module(f"halfop.rules.{mutant.module}")
    try:
        with Grafted(module, mutant, users):
            battery(spark)
    except AssertionError as found:
        return f"a case: {str(found).splitlines()[0][:60] if str(found) else ''}"
    except Exception as error:
        return type(error).__name__
    return None


def chosen(only: list[str], every: int, skip: int) -> Iterator[Mutant]:
    for name in only:
        path = Path(importlib.import_module(f"halfop.rules.{name}").__file__ or "")
        yield from islice(mutants(name, path.read_text()), skip, None, every)


def excused() -> set[str]:
    """The mutants of the list; a line is `module: the source of what is changed: how | reason`."""
    lines = _EXCUSED.read_text().splitlines() if _EXCUSED.exists() else []
    return {line.split(" | ")[0] for line in lines if " | " in line}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=_MODULES)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0)
    args = parser.parse_args()
    spark = spark_session(
        "mutants",
        **{"spark.sql.extensions": "", "spark.sql.shuffle.partitions": "1", "spark.master": "local[2]"},
        **{"spark.sql.adaptive.enabled": "false", "spark.default.parallelism": "1", "spark.ui.enabled": "false"},
    )
    spark.sparkContext.setLogLevel("OFF")
    pytest.MonkeyPatch().setattr(ranges, "_MOST", 8)
    for name in ("kins", "resolve"):  # workers get them as they are here
        cloudpickle.register_pickle_by_value(importlib.import_module(f"halfop.rules.{name}"))
    battery(spark)
    users = [module for name, module in sys.modules.items() if name.startswith("halfop.")]
    known, left, killed = excused(), 0, 0
    for mutant in chosen(args.only, args.every, args.skip):
        begun, by = time.perf_counter(), killed_by(spark, mutant, users)
        spark.catalog.clearCache()
        key = f"{mutant.module}: {mutant.what}"
        killed += by is not None
        left += by is None and key not in known
        if by is None:
            print(json.dumps({"survives": key, "line": mutant.line, "excused": key in known}), flush=True)
        else:
            print(json.dumps({"killed": key, "by": by, "s": round(time.perf_counter() - begun, 1)}), flush=True)
    print(json.dumps({"killed": killed, "survive": left, "excused": len(known)}))
    raise SystemExit(1 if left else 0)


if __name__ == "__main__":
    main()
