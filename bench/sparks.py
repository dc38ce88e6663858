"""A cold cycle and a backlog on each Spark, in turns: at most 1.15 of what they take on the environment's own.

bench/run sparks [--rows N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cold import Bench
from systems.sparks.installed import OTHERS, spark_home, users_own

_HOME = Path(__file__).resolve().parents[1]
_OWN, _BOUND = "own", 1.15

Spent = tuple[float, float]


def backlog(environ: dict[str, str], rows: int) -> Spent:
    """Seconds and CPU seconds of a run over so many half messages."""
    command = [str(_HOME / "bench/run"), "backlog", "--rows", str(rows), "--rounds", "1"]
    done = subprocess.run(command, env=users_own() | environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["reconcile_s"], found["reconcile_cpu_s"]


def told(what: str, spent: dict[str, Sequence[Spent]]) -> bool:
    """Prints the medians of each Spark, and returns whether one of them misses the bound."""
    medians = {spark: [statistics.median(each) for each in zip(*of, strict=True)] for spark, of in spent.items()}
    missed = False
    for spark, (wall, cpu) in medians.items():
        ratios = [round(mine / own, 2) for mine, own in zip((wall, cpu), medians[_OWN], strict=True)]
        missed |= max(ratios) > _BOUND
        line = {"what": what, "spark": spark, "s": round(wall, 1), "cpu_s": round(cpu, 1)}
        print(json.dumps(line | {"ratio": ratios[0], "cpu_ratio": ratios[1], "bound": _BOUND}), flush=True)
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    sparks = {_OWN: dict[str, str](), **{each: {"SPARK_HOME": str(spark_home(each))} for each in OTHERS}}
    cold: dict[str, list[Spent]] = {spark: [] for spark in sparks}
    backlogs: dict[str, list[Spent]] = {spark: [] for spark in sparks}
    with tempfile.TemporaryDirectory(prefix="halfop-sparks-") as folder:
        benches = {
            spark: Bench(_HOME / "spark-submit.sh", Path(folder, spark), environ) for spark, environ in sparks.items()
        }
        for _ in range(args.rounds):
            for spark, bench in benches.items():
                cold[spark].append(bench.called(bench.files("follow", "--once")))
                if args.rows:
                    backlogs[spark].append(backlog(sparks[spark], args.rows))
    missed = [told("follow --once", cold), bool(args.rows) and told(f"backlog of {args.rows}", backlogs)]
    raise SystemExit(1 if any(missed) else 0)


if __name__ == "__main__":
    main()
