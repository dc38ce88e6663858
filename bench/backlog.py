"""A backlog of N half messages reconciled in one run, beside a plain Spark copy of its committed rows by topic.

bench/run backlog [--rows N …] [--rounds N] [--hdfs | --values]

The bound holds for the median of a backlog of 3 million and more: 0.7 on a local disk. With --hdfs both lie on a local
HDFS, where all bytes of the workers' files go through the JVM; there it is 0.8. With --values bodies are JSON, and a
run with typed values is compared with one without, by CPU: that of Python workers included, at most 2.2.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cycle import cpu_seconds
from generate import BORN, TOPICS, Stretch, half_messages, is_committed, op_messages
from halfop.frame.summary import Summary
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import spark_session
from halfop.warehouse.tables import Warehouse
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from systems.hdfs.local_hdfs import local_hdfs

_BOUND, _BOUND_ON_HDFS, _BOUND_OF_VALUES, _BOUND_FROM = 0.7, 0.8, 2.2, 3_000_000
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


def run(warehouse: Warehouse, minutes: int = 0, settings: Sequence[str] = ()) -> Summary:
    summary = reconcile(warehouse, Request(load_settings(None, settings, {}), NOW + timedelta(minutes=minutes)))
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


_ORDER = (
    "id BIGINT, at TIMESTAMP, customer STRING, address STRUCT<street: STRING, city: STRING>, "
    "items ARRAY<STRUCT<sku: STRING, n: INT, price: DECIMAL(9,2)>>, paid BOOLEAN"
)
_ITEM = '{"sku":"%s","n":3,"price":"12.50"}'


def order() -> Column:
    """A body of JSON, of some 270 bytes."""
    key = F.substring(F.col("uniq_key"), 1, 16)
    item = F.format_string(_ITEM, key)
    return F.format_string(
        '{"id":%d,"at":"2026-01-31T09:30:00Z","customer":"%s","address":{"street":"Long Street 17","city":"Hangzhou"},'
        '"items":[%s,%s],"paid":true,"note":"to be left"}',
        "queue_offset", key, item, item,
    ).cast("binary")  # fmt: skip


def measure_values(spark: SparkSession, rows: int, folder: str, rounds: int) -> float:
    """Prints each round; returns the median of the CPU with values, in times of that without."""
    landed = KernelWarehouse(spark, f"{folder}/landed")
    landed.make("half_messages", "op_messages")
    landed.commit("half_messages", half_messages(spark, Stretch(0, rows)).withColumn("body", order()))
    landed.commit("op_messages", op_messages(spark, Stretch(0, rows)))
    typed = [f"topics.Topic{n}.value.{key}" for n in range(TOPICS) for key in ("format=json", f"schema={_ORDER}")]
    ratios = []
    for n in range(rounds):
        told: dict[str, float] = {"rows": rows, "round": n}
        for name, settings in (("plain", []), ("values", typed))[:: 1 if n % 2 else -1]:
            Folder(spark, f"{folder}/landed").copy(f"{folder}/work")
            store = KernelWarehouse(spark, f"{folder}/work")
            told[f"{name}_s"], told[f"{name}_cpu_s"] = spent(lambda store=store, given=settings: run(store, 0, given))  # type: ignore[misc]
            Folder(spark, f"{folder}/work").remove()
        ratios.append(round(told["values_cpu_s"] / told["plain_cpu_s"], 2))
        more = (told["values_cpu_s"] - told["plain_cpu_s"]) * 1e6 / rows
        print(json.dumps(told | {"cpu_ratio": ratios[-1], "more_cpu_us_a_message": round(more, 1)}), flush=True)
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
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--hdfs", action="store_true", help="all bytes go through the JVM")
    either.add_argument("--values", action="store_true", help="of JSON, beside a run without")
    args = parser.parse_args()
    spark = quiet_session()
    bound, missed = _BOUND_OF_VALUES if args.values else _BOUND_ON_HDFS if args.hdfs else _BOUND, False
    measured = measure_values if args.values else measure
    with disk(args.hdfs) as folder:
        for rows in [20_000, *args.rows]:  # the first warms the compiler up
            ratio = measured(spark, rows, f"{folder}/{rows}", 1 if rows == 20_000 else args.rounds)
            missed |= rows >= _BOUND_FROM and ratio > bound
            Folder(spark, f"{folder}/{rows}").remove()
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
