"""The cost of 10,000 new half messages after little and after much history: seconds, bytes and files read.

The history has ended, so that the open set, which every run decides again, is the same after both.

bench/run incremental [--history 100000 10000000]
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

from backlog import land, quiet_session, run
from generate import Stretch
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession

_NEW = 10_000
_TABLES = ("half_messages", "op_messages", "decisions")


def bytes_read(spark: SparkSession) -> int:
    """All that this session has read from files so far."""
    executors = spark._jsc.sc().statusStore().executorList(False)  # type: ignore[attr-defined]
    return sum(executors.apply(n).totalInputBytes() for n in range(executors.size()))


def files(warehouse: Warehouse) -> int:
    return sum(len(warehouse.read(name).inputFiles()) for name in _TABLES)


def measure(spark: SparkSession, history: int, folder: Path, rounds: int) -> float:
    """The median seconds of an incremental run after so much history."""
    warehouse = KernelWarehouse(spark, str(folder / str(history)))
    shutil.rmtree(warehouse.root, ignore_errors=True)
    land(warehouse, Stretch(0, history, all_end=True))
    run(warehouse)
    times = []
    for n in range(rounds):
        land(warehouse, Stretch(history + n * _NEW, _NEW))
        before = bytes_read(spark)
        start = time.perf_counter()
        summary = run(warehouse, n + 1)
        times.append(round(time.perf_counter() - start, 2))
        told = {"history": history, "round": n, "seconds": times[-1], "bytes_read": bytes_read(spark) - before}
        looked = {"files_in_tables": files(warehouse), "looked_back_into": summary.extra["files_looked_back_into"]}
        print(json.dumps(told | looked | {"open": summary.rows_read["open"], "phases": summary.seconds}), flush=True)
    shutil.rmtree(warehouse.root)
    return sorted(times)[len(times) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--history", type=int, nargs=2, default=[100_000, 10_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "halfop-bench")
    args = parser.parse_args()
    spark = quiet_session()
    measure(spark, 20_000, args.folder, 3)  # warms the compiler up
    little, much = (measure(spark, history, args.folder, args.rounds) for history in args.history)
    print(json.dumps({"little_s": little, "much_s": much, "ratio": round(much / little, 2)}))


if __name__ == "__main__":
    main()
