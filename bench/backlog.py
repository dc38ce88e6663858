"""A backlog of N half messages reconciled in one run, beside a plain Spark copy of its committed rows by topic.

./spark-submit.sh --driver-memory 5g exec …   see bench/run
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

from generate import BORN, Stretch, half_messages, is_committed, op_messages
from halfop.frame.summary import Summary
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse.session import spark_session
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

NOW = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=BORN, hours=24)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return round(time.perf_counter() - start, 2)


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


def measure(spark: SparkSession, rows: int, folder: Path, rounds: int) -> None:
    stretch = Stretch(0, rows)
    landed = Warehouse(spark, str(folder / "landed"))
    land(landed, stretch)
    for n in range(rounds):
        work = folder / f"round{n}"
        shutil.copytree(landed.root, work / "warehouse")
        copy_to = str(work / "copy")
        copy = seconds(lambda to=copy_to: plain_copy(landed, to))
        check_copy(landed, stretch, copy_to)
        summary = Summary("none")

        def reconciled(work: Path = work) -> None:
            nonlocal summary
            summary = run(Warehouse(spark, str(work / "warehouse")))

        whole = seconds(reconciled)
        shutil.rmtree(work)
        told = {"rows": rows, "round": n, "copy_s": copy, "reconcile_s": whole, "ratio": round(whole / copy, 2)}
        print(json.dumps(told | {"phases": summary.seconds, "decisions": summary.decisions}), flush=True)


def quiet_session() -> SparkSession:
    """2 cores and 8 GiB, 5 of them heap."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    spark = spark_session("bench", **{"spark.master": "local[2]", "spark.driver.memory": "5g"})
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "halfop-bench")
    args = parser.parse_args()
    spark = quiet_session()
    for rows in [20_000, *args.rows]:  # the first warms the compiler up
        folder = args.folder / str(rows)
        shutil.rmtree(folder, ignore_errors=True)
        measure(spark, rows, folder, 1 if rows == 20_000 else args.rounds)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
