"""A backlog of N half messages reconciled in one run, beside a plain Spark copy of its committed rows by topic.

bench/run backlog [--rows N …] [--rounds N]. The bound holds for the median of a backlog of 3 million and more.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cycle import cpu_seconds
from generate import BORN, Stretch, half_messages, is_committed, op_messages
from halfop.frame.summary import Summary
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse.session import spark_session
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

_BOUND, _BOUND_FROM = 0.7, 3_000_000
NOW = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=BORN, hours=24)


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds and CPU seconds."""
    start, cpu = time.perf_counter(), cpu_seconds()
    work()
    return round(time.perf_counter() - start, 2), round(cpu_seconds() - cpu, 2)


def land(warehouse: Warehouse, stretch: Stretch) -> None:
    warehouse.make("half_messages", "op_messages")
    warehouse.append("half_messages", half_messages(warehouse.spark, stretch))
    warehouse.append("op_messages", op_messages(warehouse.spark, stretch))


def run(warehouse: Warehouse, minutes: int = 0) -> Summary:
    summary = reconcile(warehouse, Request(load_settings(None, (), {}), NOW + timedelta(minutes=minutes)))
    if summary.status:
        raise SystemExit(summary.to_json())
    return summary


def plain_copy(warehouse: Warehouse, to: str) -> None:
    """The same committed rows by topic, as a Spark user would copy them: which are committed is known beforehand."""
    halves = warehouse.read("half_messages").withColumn("id", F.col("queue_offset"))
    luck = F.pmod(F.xxhash64(F.lit("fate"), "id"), F.lit(100))
    rows = halves.withColumn("luck", luck).where(is_committed())
    rows = rows.drop("id", "luck", "check_immunity", "landed_check_times", "landed_at")
    rows.write.format("delta").partitionBy("real_topic").save(to)


def check_copy(warehouse: Warehouse, stretch: Stretch, to: str) -> None:
    committed = stretch.ids(warehouse.spark).where(is_committed()).count()
    copied = warehouse.spark.read.format("delta").load(to).count()
    if copied != committed:
        raise SystemExit(f"copied {copied} rows, not {committed}")


def measure(spark: SparkSession, rows: int, folder: Path, rounds: int) -> float:
    """Prints each round; returns the median of what a run takes, in times of a copy."""
    stretch = Stretch(0, rows)
    landed = Warehouse(spark, str(folder / "landed"))
    land(landed, stretch)
    ratios = []
    for n in range(rounds):
        work = folder / f"round{n}"
        shutil.copytree(landed.root, work / "warehouse")
        copy_to = str(work / "copy")
        copy, copy_cpu = spent(lambda to=copy_to: plain_copy(landed, to))  # type: ignore[misc]
        check_copy(landed, stretch, copy_to)
        summary = Summary("none")

        def reconciled(work: Path = work) -> None:
            nonlocal summary
            summary = run(Warehouse(spark, str(work / "warehouse")))

        whole, cpu = spent(reconciled)
        shutil.rmtree(work)
        ratios.append(round(whole / copy, 2))
        told = {"rows": rows, "round": n, "copy_s": copy, "reconcile_s": whole, "ratio": ratios[-1]}
        told |= {"copy_cpu_s": copy_cpu, "reconcile_cpu_s": cpu, "cpu_ratio": round(cpu / copy_cpu, 2)}
        print(json.dumps(told | {"phases": summary.seconds, "decisions": summary.decisions}), flush=True)
    return statistics.median(ratios)


def quiet_session() -> SparkSession:
    """2 cores and 8 GiB, 5 of them heap."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    spark = spark_session("bench", **{"spark.master": "local[2]", "spark.driver.memory": "5g"})
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 3_000_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "halfop-bench")
    args = parser.parse_args()
    spark = quiet_session()
    missed = False
    for rows in [20_000, *args.rows]:  # the first warms the compiler up
        folder = args.folder / str(rows)
        shutil.rmtree(folder, ignore_errors=True)
        ratio = measure(spark, rows, folder, 1 if rows == 20_000 else args.rounds)
        missed |= rows >= _BOUND_FROM and ratio > _BOUND
        shutil.rmtree(folder)
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
