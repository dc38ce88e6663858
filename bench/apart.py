"""A backlog in one new process beside a plain Spark copy of its committed rows in another: start-up counts in both.

bench/run apart [--rows 3000000] [--rounds 3]

Status 1 if `reconcile` takes more than 0.8 of the copy's time at 3 million and more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from backlog import NOW, land, plain_copy, quiet_session
from command import HOME, Called, Spent, call, copy_of, watch
from generate import Stretch
from halfop.warehouse.kernel import KernelWarehouse

_BOUND, _BOUND_FROM = 0.8, 3_000_000


def copied(warehouse: Path, to: Path) -> Spent:
    os.sync()  # nothing that was written before is still on its way to the disk
    command = [str(HOME / "spark-submit.sh"), "exec", "python", __file__, "--copy", str(warehouse), str(to)]
    path = os.pathsep.join(sys.path[1:])  # watch() gives the command a user's environment
    spent = watch(["env", f"PYTHONPATH={path}", *command])
    shutil.rmtree(to)
    return spent


def reconciled(warehouse: Path, work: Path) -> Called:
    copy_of(warehouse, work)
    os.sync()
    called = call("reconcile", "--now", NOW.isoformat(), "--warehouse", str(work))
    shutil.rmtree(work)
    return called


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--copy", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.copy:
        plain_copy(KernelWarehouse(quiet_session(), args.copy[0]), args.copy[1])
        print("copied")
        return
    ratios = []
    with tempfile.TemporaryDirectory(prefix="halfop-apart-") as name:
        folder = Path(name)
        spark = quiet_session()
        land(KernelWarehouse(spark, str(folder / "warehouse")), Stretch(0, args.rows))
        spark.stop()
        for number in range(args.rounds):
            copy = copied(folder / "warehouse", folder / "copy")
            run = reconciled(folder / "warehouse", folder / "work")
            ratios.append(round(run.seconds / copy.seconds, 2))
            line = {"rows": args.rows, "round": number, "copy_s": copy.seconds, "reconcile_s": run.seconds}
            line |= {"ratio": ratios[-1], "copy_cpu_s": copy.cpu_s, "reconcile_cpu_s": run.cpu_s}
            print(json.dumps(line | {"cpu_ratio": round(run.cpu_s / copy.cpu_s, 2)}), flush=True)
    ratio = statistics.median(ratios)
    print(json.dumps({"rows": args.rows, "ratio": ratio, "bound": _BOUND}))
    raise SystemExit(1 if args.rows >= _BOUND_FROM and ratio > _BOUND else 0)


if __name__ == "__main__":
    main()
