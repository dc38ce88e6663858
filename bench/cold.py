"""Commands as a scheduler or a person starts them, each in a new process: seconds, and CPU seconds of all that ran.

bench/run cold [--rounds 3] [--only NAME …] [--launcher CHECKOUT/spark-submit.sh …]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cycle import halves, ops
from generate import BORN
from halfop.start import Archive
from halfop.warehouse.spark_versions import spark_in

_HOME = Path(__file__).resolve().parents[1]
_OPEN, _ROWS = 1_200, 1_000
_STEP = 60_000  # ms between two cycles
# Variables that `exec` gives this process: the commands get a user's environment.
NOT_A_USERS = ("SPARK_", "PYSPARK_", "PYTHONPATH", "JAVA_HOME", "HALFOP_HOME", "HALFOP_JARS")


@dataclass(frozen=True)
class Case:
    """A command, and the most seconds and CPU seconds that it may take; None: no bound."""

    name: str
    arguments: Callable[[Bench], list[str]]
    seconds: float | None = None
    cpu_seconds: float | None = None


class Bench:
    """A launcher, and a warehouse that its commands work on."""

    def __init__(self, launcher: Path, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.launcher, self.folder, self._environ = launcher, folder, environ or {}
        self._cycle = 0
        folder.mkdir()
        half = self._written("open", halves(0, _OPEN, BORN))
        self.called(["land", "files", "--half", half])
        self.called(self.files("land"))
        self.called(["reconcile"])

    def files(self, *command: str) -> list[str]:
        """The command on a new cycle's files."""
        self._cycle += 1
        first, born = _OPEN + self._cycle * _ROWS, BORN + self._cycle * _STEP
        half = self._written(f"{self._cycle}-half", halves(first, _ROWS, born))
        op = self._written(f"{self._cycle}-op", ops(first, _ROWS, born))
        return [*command[:1], "files", "--half", half, "--op", op, *command[1:]]

    def _written(self, name: str, rows: Iterable[Mapping[str, Any]]) -> str:
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    def called(self, arguments: list[str]) -> tuple[float, float]:
        """Seconds and CPU seconds of one call."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(NOT_A_USERS)}
        environ |= self._environ
        command = [str(self.launcher), *arguments, "--warehouse", str(self.folder / "warehouse")]
        before, start = cpu_of_children(), time.perf_counter()
        done = subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)
        spent = time.perf_counter() - start, cpu_of_children() - before
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        json.loads(done.stdout.splitlines()[-1])  # a summary, and nothing after it
        return spent


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


CASES = (
    Case("land files", lambda bench: bench.files("land")),
    Case("reconcile", lambda _: ["reconcile"]),
    Case("reconcile, nothing new", lambda _: ["reconcile"], 10),
    Case("follow --once", lambda bench: bench.files("follow", "--once"), 15, 20),
    Case("explain", lambda _: ["explain", "broker-a/0/3"], 8),
    Case("report", lambda _: ["report"], 12),
    Case("demo", lambda _: ["demo"], 30),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[case.name for case in CASES])
    parser.add_argument("--launcher", type=Path, nargs="+", default=[_HOME / "spark-submit.sh"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="halfop-cold-") as folder:
        benches = [Bench(path.resolve(), Path(folder, str(number))) for number, path in enumerate(args.launcher)]
        missed = [
            measured(case, bench, args.rounds)
            for case in CASES
            for bench in benches
            if case.name in args.only and _has(bench, case)
        ]
    raise SystemExit(1 if any(missed) else 0)


def has_archive(launcher: Path) -> bool:
    """Returns whether a launcher's starts find an archive of classes. One from another checkout does not fit."""
    state = launcher.parent / ".halfop"
    spark = next(state.glob("venv/lib/python*/site-packages/pyspark"), state)
    jars = state / "jars" / spark_in(spark)
    return Archive.at(str(state / "classes"), os.environ["HALFOP_JAVA"], str(jars), str(spark)).is_made()


def _has(bench: Bench, case: Case) -> bool:
    job = case.name.split()[0].strip(",")
    return (bench.launcher.parent / "jobs" / f"{job}.py").exists()


def measured(case: Case, bench: Bench, rounds: int) -> bool:
    """Prints the medians, and returns whether they miss a bound."""
    spent = [bench.called(case.arguments(bench)) for _ in range(rounds)]
    wall, cpu = (round(statistics.median(each), 1) for each in zip(*spent, strict=True))
    missed = wall > (case.seconds or wall) or cpu > (case.cpu_seconds or cpu)
    bounds = [case.seconds, case.cpu_seconds]
    line = {"command": case.name, "s": wall, "cpu_s": cpu, "bounds": bounds, "missed": missed}
    line["archive"] = has_archive(bench.launcher)  # without it every start takes some 3 s more
    print(json.dumps({"launcher": str(bench.launcher)} | line), flush=True)
    return missed


if __name__ == "__main__":
    main()
