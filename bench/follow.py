"""A day of follow's cycles made fast: does the process stay as small as it was, in memory, threads, files and blocks?

bench/run follow [--cycles 10000] [--idle 8] [--every 100] [--minutes M]

One cycle lands a few messages, the next one their ops, and so many idle ones find nothing to do. Every so many cycles
the process is measured, after a garbage collection. The status is 1 if the last measure exceeds the one after a quarter
of the cycles by more than _MORE: until then Spark fills its lists of the newest jobs and queries, which are bounded.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cycle import cpu_seconds
from halfop.frame.cli import main as job_main
from halfop.jobs.follow import JOB
from pyspark.sql import SparkSession
from support.json_lines import half, lines
from support.json_lines import op as op_row

ROWS = 4
_MORE = {"python_mib": 48, "jvm_mib": 256, "heap_mib": 48, "threads": 8, "open_files": 8, "views": 0, "blocks": 0}
_MIB = 1024 * 1024
Measure = dict[str, float]


class Feeder(io.StringIO):
    """Stands for stdout: a cycle's line makes the next cycle's input, and at the end a SIGTERM."""

    def __init__(self, folder: Path, cycles: int, every: int, minutes: float, idle: int) -> None:
        super().__init__()
        self._folder, self._cycles, self._idle, self._every = folder, cycles, idle, every
        self._until = time.monotonic() + minutes * 60
        self.number, self.seconds, self.measures, self._cpu = 0, list[float](), list[Measure](), cpu_seconds()
        self.feed()

    def write(self, text: str) -> int:
        for line in text.splitlines():
            self._take(json.loads(line))
        return len(text)

    def _take(self, told: dict[str, Any]) -> None:
        if "cycle" not in told:
            return
        if told["status"]:
            raise SystemExit(f"cycle {told['cycle']}: {told}")
        self.seconds.append(sum(told["seconds"].values()))
        self.number += 1
        over = self.number >= self._cycles or time.monotonic() > self._until
        if over or self.number % self._every == 0:
            self.measures.append(measured(self.number, self.seconds[-self._every :]) | {"cycle_cpu_s": self._cpu_s()})
            print(json.dumps(self.measures[-1]), file=sys.__stdout__, flush=True)
        if over:
            os.kill(os.getpid(), signal.SIGTERM)
        self.feed()

    def _cpu_s(self) -> float:
        """CPU seconds of each cycle since the last measure."""
        before, self._cpu = self._cpu, cpu_seconds()
        return round((self._cpu - before) / (self.number % self._every or self._every), 2)

    def feed(self) -> None:
        """The file that the next cycle lands, in place of the one before of its kind."""
        turn, step = divmod(self.number, self._idle + 2)
        first = turn * ROWS
        if step == 0:
            self.replace("half", half, range(first, first + ROWS))
        if self.number == 0:  # a landing wants a file of each kind
            self.replace("op", op, [first])
        elif step == 1:
            self.replace("op", op, range(max(first, 1), first + ROWS))

    def replace(self, kind: str, made: Callable[..., dict[str, Any]], offsets: Iterable[int]) -> None:
        now = int(time.time() * 1000)
        for old in self._folder.glob(f"{kind}-*.jsonl"):
            old.unlink()
        rows = [made(n, born_timestamp=now - 2, store_timestamp=now - 1) for n in offsets]
        lines(self._folder / f"{kind}-{self.number}.jsonl", *rows)


def op(offset: int, **changed: Any) -> dict[str, Any]:
    """The op that ends the half message of the same offset."""
    return op_row(offset, str(offset), **changed)


# ---- what is measured ----


def measured(cycle: int, seconds: Sequence[float]) -> Measure:
    spark: Any = SparkSession.getActiveSession()
    jvm, context = spark._jvm, spark.sparkContext
    java, python = context._gateway.proc.pid, os.getpid()
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return {
        "cycle": cycle,
        "cycle_s": round(statistics.median(seconds), 2),
        "python_mib": resident(python),
        "jvm_mib": resident(java),
        "heap_mib": (runtime.totalMemory() - runtime.freeMemory()) // _MIB,
        "threads": threads(python) + threads(java),
        "open_files": open_files(python) + open_files(java),
        "views": sum(table.isTemporary for table in spark.catalog.listTables()),
        "blocks": context._jsc.getPersistentRDDs().size(),
    }


def resident(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // _MIB


def threads(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/task"))


def open_files(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


def grown(measures: Sequence[Measure], may_grow: Mapping[str, float]) -> dict[str, float]:
    """The values of the last measure that are larger than they may be."""
    quarter = next(each for each in measures if each["cycle"] * 4 >= measures[-1]["cycle"])
    more = {name: round(measures[-1][name] - quarter[name], 2) for name in may_grow}
    return {name: n for name, n in more.items() if n > may_grow[name]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=10_000)
    parser.add_argument("--idle", type=int, default=8)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=24 * 60)
    given = parser.parse_args()
    raise SystemExit(follow(partial(Feeder, idle=given.idle), given, _MORE))


def follow(fed: Callable[..., Feeder], given: argparse.Namespace, may_grow: Mapping[str, float]) -> int:
    """Follows what the feeder makes until it stops, and returns the status: 1 if something grew too much."""
    folder = Path(tempfile.mkdtemp(prefix="halfop-follow-"))
    options = ["--every", "0s", "--warehouse", str(folder / "warehouse"), "--set", f"metrics.folder={folder}"]
    files = ["files", "--half", str(folder / "half-*.jsonl"), "--op", str(folder / "op-*.jsonl")]
    try:
        sys.stdout = feeder = fed(folder, given.cycles, given.every, given.minutes)
        status = job_main(JOB, [*files, *options])
    finally:
        sys.stdout = sys.__stdout__
        shutil.rmtree(folder)
    if status:
        return status
    found = grown(feeder.measures, may_grow)
    print(json.dumps({"cycles": feeder.number, "may_grow": may_grow, "grew_too_much": found}))
    return 1 if found else 0


if __name__ == "__main__":
    main()
