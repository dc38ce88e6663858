"""Mutants of the rules: which of them does no case notice?

bench/run mutants [--only MODULE …] [--like TEXT …] [--every N] [--skip N] [--excused] [--done FILE]

Each changes one thing in lib/halfop/rules. Looks at the rules try it in one warm session until one of them notices:
the cases of the rules and of copies and fleets of histories, on frames in memory and against the model; plain Python
for copies; tests on Delta for what only planning calls. Status 1 if a mutant survives that mutants.txt does not list,
with the reason why it cannot change an outcome. --done keeps what was found, and a later call goes on there.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import conftest
import pytest
from cycle import cpu_seconds
from halfop.planning import counts
from halfop.warehouse.session import spark_session
from model import fleet as f
from model import small_histories as s
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from rules import test_decided_cells as cells
from rules import test_histories as histories
from rules import test_resolution as resolution
from rules import test_rules as rules
from support.mutants import Grafted, Mutant, mutants
from support.places import TESTS
from support.rules import against_model as model
from support.rules.cases_of_lines import LOST, OBSERVED, RULES
from support.rules.one_look import ONE_LOOK
from support.rules.rule_case import check
from support.rules.rule_words import NOW
from support.rules.stories import STORIES
from support.rules.unlike_the_broker import RUNS, STORY_RULES, UNLIKE_THE_BROKER

_IN_WORKERS = ("kins", "resolve", "discarded")
_MODULES = ["table", "cases", "ops", "halves", "transactions", "settings_columns", "limits", "lost", "questions"]
# Modules and functions of which frames in memory call too little: limits, questions that count when delivered, and
# copies that are not at hand.
_ON_DELTA = {"limits", "questions", "_counts_at_once", "counts_later", "checks_limits"}
_ON_DELTA |= {"put_back", "written_copies", "read_copies", "_is_here", "closed", "_remembered", "_reopened"}
_ON_DELTA |= {"takes_over", "knows", "_same", "standing", "given_up", "one_per_key"}
_SEED = 1  # the same histories at every call
_EXCUSED = Path(__file__).with_name("mutants.txt")


@dataclass
class Look:
    """Something that decides by the rules, and raises if it finds anything otherwise than it must be.

    `works`: it resolves copies, in workers, whose calls nobody sees here.
    """

    name: str
    decide: Callable[[], object]
    works: bool = False
    seconds: float = 0
    called: set[tuple[str, str]] = field(default_factory=set)  # modules and their functions

    def survey(self) -> None:
        """Decides by the rules as they are, and learns what that takes."""
        begun = time.perf_counter()
        sys.setprofile(None if self.name == "resolution" else self._heard)  # it calls too often
        try:
            self.decide()
        finally:
            sys.setprofile(None)
        self.seconds = time.perf_counter() - begun

    def _heard(self, frame: FrameType, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("halfop.rules."):
            self.called.add((module.rpartition(".")[2], frame.f_code.co_name))

    def may_notice(self, mutant: Mutant) -> bool:
        if mutant.module in _IN_WORKERS:
            return self.works
        if not mutant.function:
            return any(module == mutant.module for module, _ in self.called)
        return (mutant.module, mutant.function) in self.called


def looks_in_memory(spark: SparkSession) -> list[Look]:
    def look(name: str, played: model.Played, works: bool = False) -> Look:
        return Look(name, partial(model.assert_agrees, spark, played), works)

    hasty = f.fleet(f.generated(histories.histories(histories.HASTY), 40, _SEED))
    put_back = f.fleet(f.generated(histories.copied_histories(histories.PUT_BACK), 40, _SEED))
    small, escapes = (
        f.fleet(s.history(*each) for each in islice(s.up_to(5, of_escapes), 0, None, every))
        for of_escapes, every in ((False, 1_597), (True, 887))
    )
    return [
        look("one look", model.played_cases(ONE_LOOK, RULES, [NOW], rules.DETAILS)),
        Look("what was lost", partial(lost_looks, spark), works=True),
        Look("cells", partial(cell_looks, spark)),
        look("watching", model.played_cases(OBSERVED, rules.WATCHING, [NOW])),
        look("stories", model.played_cases([*UNLIKE_THE_BROKER, *STORIES], STORY_RULES, RUNS, rules.STORY_DETAILS)),
        look("copies", model.played_copies(), works=True),
        look("small histories", model.played_ships(s.SETTINGS, small), works=True),
        look("escapes", model.played_ships(s.SETTINGS, escapes), works=True),
        look("histories", model.played_ships(histories.HASTY.settings, hasty), works=True),
        look("put-back copies", model.played_ships(histories.PUT_BACK.settings, put_back), works=True),
    ]


def lost_looks(spark: SparkSession) -> None:
    found = rules.what_was_lost(spark)
    for case, _ in LOST:
        check(found, case)


def cell_looks(spark: SparkSession) -> None:
    for name, test in vars(cells).items():
        if name.startswith("test_"):
            test(spark)


def resolves(numbers: range) -> None:
    """Copies without Spark."""
    for name in resolution.CASES:
        resolution.test_case(name)
    for name in resolution.TWINS:
        resolution.test_given_up(name)
    for test in resolution.ALONE:
        test()
    for seed, escapes in resolution.SEEDS:
        resolution.agree(seed, escapes, numbers)


def suite(file: str) -> None:
    """The plain tests of a file, in this session."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        status = pytest.main([str(TESTS / file), "-x", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore"])
    if status == pytest.ExitCode.TESTS_FAILED:
        raise AssertionError(file)
    if status != pytest.ExitCode.OK:
        raise SystemExit(f"{file}: pytest ends with {status}")


def looks_on_delta() -> list[Look]:
    """They cost most, and see what the others do not: limits, delivered questions, copies that are looked up."""
    files = [
        "rules/test_check_limit.py",
        "rules/test_delivered.py",
        "rules/test_escapes.py",
        "rules/test_small_histories.py",
        "runs/test_planning.py",
    ]
    return [Look(file, partial(suite, file)) for file in files]


@dataclass
class Battery:
    """All looks, and which of them noticed the last mutant of each function."""

    looks: Sequence[Look]
    last: dict[tuple[str, str], Look] = field(default_factory=dict)

    def noticed_by(self, mutant: Mutant, users: Sequence[ModuleType]) -> str | None:
        """Returns which look noticed a mutant, and how; None if none did."""
        place = mutant.module, mutant.function
        for look in sorted(self._fitting(mutant), key=lambda look: (look is not self.last.get(place), look.seconds)):
            how = self._noticed(look, mutant, users)
            if how is not None:
                self.last[place] = look
                return f"{look.name}: {how}"
        return None

    def _fitting(self, mutant: Mutant) -> list[Look]:
        """Tests on Delta only if no other look calls the function, or if it is about what only they see."""
        fitting = [look for look in self.looks if look.may_notice(mutant)]
        in_memory = [look for look in fitting if not look.name.endswith(".py")]
        return fitting if {mutant.module, mutant.function} & _ON_DELTA else in_memory or fitting

    def _noticed(self, look: Look, mutant: Mutant, users: Sequence[ModuleType]) -> str | None:
        module = importlib.import_module(f"halfop.rules.{mutant.module}")
        try:
            with Grafted(module, mutant, users):
                look.decide()
        except AssertionError as found:
            return (str(found).splitlines() or [""])[0][:80]
        except (Py4JNetworkError, ConnectionError):
            raise
        except Exception as error:
            if isinstance(error, Py4JJavaError):
                self.looks[0].decide()  # an error that comes again is none of the mutant's
            return type(error).__name__
        return None


def chosen(only: list[str], like: list[str], every: int, skip: int) -> Iterator[Mutant]:
    for name in only:
        path = Path(importlib.import_module(f"halfop.rules.{name}").__file__ or "")
        found = (mutant for mutant in mutants(name, path.read_text()) if any(text in mutant.key for text in like))
        yield from islice(found, skip, None, every)


def excused() -> set[str]:
    """The mutants of the list; a line is `module.function: the source of what is changed: how | reason`."""
    lines = _EXCUSED.read_text().splitlines() if _EXCUSED.exists() else []
    return {line.rpartition(" | ")[0] for line in lines if " | " in line and not line.startswith("#")}


def session() -> SparkSession:
    spark = spark_session(
        "mutants",
        # for so long a session the second compiler pays
        **(conftest.TINY | {"spark.master": "local[1]", "spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}),
        **{"spark.network.timeout": "1d", "spark.executor.heartbeatInterval": "1h"},  # it may be stopped for a while
    )
    spark.sparkContext.setLogLevel("OFF")
    SparkSession.stop = lambda _: None  # type: ignore[method-assign]  # a test on Delta leaves the session
    pytest.MonkeyPatch().setattr(counts, "_MOST_RANGES", 8)
    for name in _IN_WORKERS:  # workers get them as they are here
        cloudpickle.register_pickle_by_value(importlib.import_module(f"halfop.rules.{name}"))
    return spark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[*_IN_WORKERS, *_MODULES])
    parser.add_argument("--like", nargs="+", default=[""], metavar="TEXT", help="only those whose description has it")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--excused", action="store_true", help="try also those that mutants.txt lists")
    parser.add_argument("--done", type=Path, metavar="FILE", help="keeps what was found; a later call goes on there")
    args = parser.parse_args()
    spark = session()
    plain = Look("resolution", partial(resolves, range(600)), works=True)
    on_delta = (
        looks_on_delta()
        if {"limits", "questions", "cases", "settings_columns", "halves", "transactions"} & {*args.only}
        else []
    )
    battery = Battery([*looks_in_memory(spark), plain, *on_delta])
    for look in battery.looks:
        look.survey()
        print(json.dumps({"look": look.name, "s": round(look.seconds, 1)}), flush=True)
    users = [module for name, module in sys.modules.items() if name.startswith("halfop.")]
    done: dict[str, str | None] = {} if args.excused else dict.fromkeys(excused())
    if args.done and args.done.exists():
        done |= dict(json.loads(line) for line in args.done.read_text().splitlines())
    found: dict[str, str | None] = {}
    for mutant in chosen(args.only, args.like, args.every, args.skip):
        begun = time.perf_counter()
        by = done[mutant.key] if mutant.key in done else battery.noticed_by(mutant, users)
        found[mutant.key] = by
        if mutant.key not in done:
            told = {"killed" if by else "survives": mutant.key, "line": mutant.line, "by": by}
            print(json.dumps(told | {"s": round(time.perf_counter() - begun, 1)}), flush=True)
            if args.done:
                with args.done.open("a") as file:
                    file.write(json.dumps([mutant.key, by]) + "\n")
    left = {key for key, by in found.items() if by is None}
    unlisted, idle = sorted(left - excused()), sorted((excused() & found.keys()) - left)
    counts = {"made": len(found), "killed": len(found) - len(left), "excused": len(left & excused())}
    print(json.dumps(counts | {"survive": unlisted, "listed, but noticed": idle, "cpu_s": round(cpu_seconds())}))
    raise SystemExit(1 if unlisted else 0)


if __name__ == "__main__":
    main()
