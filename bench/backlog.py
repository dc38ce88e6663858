"""A backlog of N half messages reconciled in one run, beside a plain Spark copy of its committed rows by topic.

bench/run backlog [--rows N …] [--rounds N] [--hdfs]

The bound holds for the median of a backlog of 3 million and more: 0.7 on a local disk. With --hdfs both lie on a local
HDFS, where all bytes of the workers' files go through the JVM; there it is 0.8.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cycle import cpu_seconds
from generate import BORN, Stretch, half_messages, is_committed, op_messages
from halfop.frame.summary import Summary
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import spark_session
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from systems.hdfs.local_hdfs import local_hdfs

_BOUND, _BOUND_ON_HDFS, _BOUND_FROM = 0.7, 0.8, 3_000_000
NOW = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=BORN, hours=24)


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds and CPU seconds."""
    os.sync()  # nothing that was written before is still on its way to the disk
    start, cpu = time.perf_counter(), cpu_seconds()
    work()
    return round(time.perf_counter() - start, 2), round(cpu_seconds() - cpu, 2)


def land(warehouse: Warehouse, stretch: Stretch) -> None:
    warehouse.make("half_messages", "op_messages")
    warehouse.commit("half_messages", half_messages(warehouse.spark, stretch))
    warehouse.commit("op_messages", op_messages(warehouse.spark, stretch))


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


class Folder:
    """A folder on any file system that Spark knows."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
        self._conf: Any = spark._jsc.hadoopConfiguration()
        self._path = self._hadoop.Path(uri)
        self._files = self._path.getFileSystem(self._conf)

    def copy(self, to: str) -> None:
        target = self._hadoop.Path(to)
        self._hadoop.FileUtil.copy(self._files, self._path, self._files, target, False, self._conf)

    def remove(self) -> None:
        self._files.delete(self._path, True)


@contextmanager
def disk(hdfs: bool) -> Iterator[str]:
    """Where the warehouses lie."""
    with tempfile.TemporaryDirectory(prefix="halfop-backlog-") as folder:
        if not hdfs:
            yield folder
            return
        with local_hdfs(Path(folder)) as uri:
            yield uri


def measure(spark: SparkSession, rows: int, folder: str, rounds: int) -> float:
    """Prints each round; returns the median of what a run takes, in times of a copy."""
    stretch = Stretch(0, rows)
    landed = KernelWarehouse(spark, f"{folder}/landed")
    land(landed, stretch)
    ratios = []
    for n in range(rounds):
        work = f"{folder}/round{n}"
        Folder(spark, f"{folder}/landed").copy(f"{work}/warehouse")
        copy_to = f"{work}/copy"
        copy, copy_cpu = spent(lambda to=copy_to: plain_copy(landed, to))  # type: ignore[misc]
        check_copy(landed, stretch, copy_to)
        summary = Summary("none")

        def reconciled(root: str = f"{work}/warehouse") -> None:
            nonlocal summary
            summary = run(KernelWarehouse(spark, root))

        whole, cpu = spent(reconciled)
        Folder(spark, work).remove()
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
    parser.add_argument("--hdfs", action="store_true", help="all bytes go through the JVM")
    args = parser.parse_args()
    spark = quiet_session()
    bound, missed = _BOUND_ON_HDFS if args.hdfs else _BOUND, False
    with disk(args.hdfs) as folder:
        for rows in [20_000, *args.rows]:  # the first warms the compiler up
            ratio = measure(spark, rows, f"{folder}/{rows}", 1 if rows == 20_000 else args.rounds)
            missed |= rows >= _BOUND_FROM and ratio > bound
            Folder(spark, f"{folder}/{rows}").remove()
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
