"""Mutants of the rules: which of them does no case notice?

bench/run mutants [--only MODULE …] [--like TEXT] [--every N] [--skip N]

Each changes one thing in lib/halfop/rules. The cases of the rules and of copies are decided with it in one warm
session; if they notice nothing, fleets of histories sail, and the model decides what is right. Status 1 if a mutant
survives that mutants.txt does not list, with the reason why it cannot change an outcome.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import fleet as f
import model as m
import pytest
import small_histories as s
import test_copies_in_memory as copies
import test_histories as histories
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
from halfop.warehouse.tables import Warehouse
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from seeds import SEED
from strategies import Charter

_MODULES = ["table", "cases", "ops", "halves", "transactions", "kins", "resolve", "settings_columns"]
_EXCUSED = Path(__file__).with_name("mutants.txt")


@dataclass(frozen=True)
class Battery:
    """All that may notice a mutant, the cheapest first; `fleets` are histories, with what the model makes of them."""

    spark: SparkSession
    fleets: Sequence[tuple[Charter, Sequence[f.Ship]]]

    def decide(self) -> None:
        """Raises if the rules decide anything otherwise."""
        looks: list[tuple[list[Case], m.Settings, list[int]]] = [
            (ONE_LOOK, RULES, [NOW]),
            (OBSERVED, rules.WATCHING, [NOW]),
            ([*UNLIKE_THE_BROKER, *STORIES], STORY_RULES, list(RUNS)),
        ]
        for cases, settings, runs in looks:
            found = in_memory(self.spark, cases, settings, runs)
            for case in cases:
                check(found, case)
        played = copies.played.__wrapped__(self.spark)  # type: ignore[attr-defined]
        for number in range(len(COPIES)):
            copies.test_case(number, played)
        for charter, ships in self.fleets:
            with TemporaryDirectory(prefix="halfop-mutants-") as folder:
                f.assert_agrees(Warehouse(self.spark, folder), charter, ships)

    def refuse_broken_session(self) -> None:
        """Raises if not even the rules as they are decide now: an error was none of the mutant's."""
        found = in_memory(self.spark, ONE_LOOK, RULES, [NOW])
        for case in ONE_LOOK:
            check(found, case)


def fleets() -> list[tuple[Charter, Sequence[f.Ship]]]:
    small = islice(s.up_to(5), 0, None, 1_597)
    return [
        (histories.HASTY, f.fleet(f.generated(histories.histories(histories.HASTY), 40, SEED))),
        (histories.PUT_BACK, f.fleet(f.generated(histories.copied_histories(histories.PUT_BACK), 40, SEED))),
        (s.CHARTER, f.fleet(s.history(*each) for each in small)),
    ]


def killed_by(battery: Battery, mutant: Mutant, users: list[ModuleType]) -> str | None:
    """Returns what noticed the mutant; None if nothing did."""
    module = importlib.import_module(f"halfop.rules.{mutant.module}")
    try:
        with Grafted(module, mutant, users):
            battery.decide()
    except AssertionError as found:
        return f"a case: {str(found).splitlines()[0][:60] if str(found) else ''}"
    except Exception as error:
        battery.refuse_broken_session()
        return type(error).__name__
    return None


def chosen(only: list[str], like: str, every: int, skip: int) -> Iterator[Mutant]:
    for name in only:
        path = Path(importlib.import_module(f"halfop.rules.{name}").__file__ or "")
        found = (mutant for mutant in mutants(name, path.read_text()) if like in mutant.what)
        yield from islice(found, skip, None, every)


def excused() -> set[str]:
    """The mutants of the list; a line is `module: the source of what is changed: how | reason`."""
    lines = _EXCUSED.read_text().splitlines() if _EXCUSED.exists() else []
    return {line.split(" | ")[0] for line in lines if " | " in line}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=_MODULES)
    parser.add_argument("--like", default="", metavar="TEXT", help="only those whose description has it")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0)
    args = parser.parse_args()
    spark = spark_session(
        "mutants",
        **{"spark.sql.extensions": "", "spark.sql.shuffle.partitions": "1", "spark.master": "local[2]"},
        **{"spark.network.timeout": "1d", "spark.executor.heartbeatInterval": "1h"},  # it may be stopped for a while
        **{"spark.sql.adaptive.enabled": "false", "spark.default.parallelism": "1", "spark.ui.enabled": "false"},
    )
    spark.sparkContext.setLogLevel("OFF")
    pytest.MonkeyPatch().setattr(ranges, "_MOST", 8)
    for name in ("kins", "resolve"):  # workers get them as they are here
        cloudpickle.register_pickle_by_value(importlib.import_module(f"halfop.rules.{name}"))
    battery = Battery(spark, fleets())
    battery.decide()
    users = [module for name, module in sys.modules.items() if name.startswith("halfop.")]
    known, left, killed = excused(), 0, 0
    for mutant in chosen(args.only, args.like, args.every, args.skip):
        begun, by = time.perf_counter(), killed_by(battery, mutant, users)
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
