"""Through Spark Connect: a cycle over new messages in a warm client, and a backlog beside a plain copy of its rows.

bench/run connect [--rows 1000] [--cycles 6] [--backlog 100000]

A server starts on this machine. Aims: a warm cycle of 1,000 takes at most 15 s, a backlog at most 3 copies.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from backlog import NOW, land, plain_copy
from cycle import write
from generate import Stretch
from halfop.landing.files.land import land_files
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.session import WHILE_CALLED, session_settings, spark_session
from systems.connect.local_server import INSTALLED, local_server

_BOUND_SECONDS, _BOUND_RATIO = 15.0, 3.0


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return round(time.perf_counter() - start, 2)


def cycles(warehouse: SparkWarehouse, folder: Path, rows: int, number: int) -> float:
    """Prints each cycle; returns the median of the later half."""
    request, log, wall = Request(load_settings(None, (), {})), logging.getLogger("bench"), []
    for cycle in range(number):
        files = write(folder, cycle, rows)
        landed = seconds(lambda files=files: land_files(warehouse, files, log))  # type: ignore[misc]
        ran = seconds(lambda: reconcile(warehouse, request))
        print(json.dumps({"cycle": cycle, "land_s": landed, "run_s": ran}), flush=True)
        wall.append(landed + ran)
    return statistics.median(wall[number // 2 :])


def backlog(warehouse: SparkWarehouse, folder: Path, rows: int) -> float:
    """Prints what a run over so many messages takes; returns it in times of a copy."""
    land(warehouse, Stretch(0, rows))
    copied = seconds(lambda: plain_copy(warehouse, str(folder / "copy")))
    ran = seconds(lambda: reconcile(warehouse, Request(load_settings(None, (), {}), NOW)))
    print(json.dumps({"rows": rows, "copy_s": copied, "run_s": ran, "ratio": round(ran / copied, 2)}), flush=True)
    return ran / copied


def as_client(args: argparse.Namespace) -> None:
    spark, folder, missed = spark_session("bench"), Path(args.folder), False
    with session_settings(spark, WHILE_CALLED):
        if args.cycles:
            warm = cycles(SparkWarehouse(spark, str(folder / "cycles")), folder, args.rows, args.cycles)
            print(json.dumps({"warm_s": round(warm, 2), "bound": _BOUND_SECONDS}), flush=True)
            missed |= warm > _BOUND_SECONDS
        if args.backlog:
            ratio = backlog(SparkWarehouse(spark, str(folder / "backlog")), folder, args.backlog)
            missed |= ratio > _BOUND_RATIO
    raise SystemExit(1 if missed else 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--cycles", type=int, default=6)
    parser.add_argument("--backlog", type=int, default=100_000)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder:
        as_client(args)
    with tempfile.TemporaryDirectory(prefix="halfop-connect-") as folder, local_server(Path(folder)) as server:
        server.call("reconcile", "--help")  # installs what a client needs
        path = os.pathsep.join([*sys.path[1:], str(INSTALLED)])
        environ = os.environ | {"SPARK_REMOTE": server.address, "PYTHONPATH": path}
        command = [sys.executable, __file__, *sys.argv[1:], "--folder", folder]
        raise SystemExit(subprocess.run(command, env=environ, check=False).returncode)


if __name__ == "__main__":
    main()
