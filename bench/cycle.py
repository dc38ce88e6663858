"""A cycle over a thousand new messages in a warm process: landing and run, in seconds, CPU seconds and Spark jobs.

bench/run cycle [--rows 1000] [--cycles 12]
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import logging
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from generate import BORN
from halfop.landing.files.land import FilesRequest, land_files
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import spark_session
from pyspark.sql import SparkSession

TOPICS = 5
_STEP = 60_000  # ms between two cycles
_BOUND_SECONDS, _BOUND_JOBS = 3.0, 8


def luck(offset: int) -> int:
    return int(hashlib.sha256(str(offset).encode()).hexdigest(), 16) % 100


def halves(first: int, rows: int, born: int) -> Iterator[dict[str, Any]]:
    for offset in range(first, first + rows):
        key = f"{offset:032X}"
        properties = {"REAL_TOPIC": f"Topic{offset % TOPICS}", "REAL_QID": "0", "PGROUP": "group", "UNIQ_KEY": key}
        yield {
            "broker_name": "broker-a",
            "queue_id": 0,
            "queue_offset": offset,
            "commit_log_offset": offset * 512,
            "offset_msg_id": key,
            "flag": 0,
            "sys_flag": 0,
            "born_timestamp": born,
            "born_host": "127.0.0.1:1",
            "store_timestamp": born + 1,
            "store_host": "127.0.0.1:10911",
            "reconsume_times": 0,
            "body": base64.b64encode(hashlib.sha512(key.encode()).digest() * 3).decode(),
            "properties": properties,
        }


def ops(first: int, rows: int, born: int) -> Iterator[dict[str, Any]]:
    """One op a message; two in a hundred stay open."""
    for offset in range(first, first + rows):
        if luck(offset) >= 2:
            yield {
                "broker_name": "broker-a",
                "queue_id": 0,
                "queue_offset": offset,
                "tag": "d",
                "body": str(offset),
                "outcome": "COMMIT" if luck(offset) < 92 else "ROLLBACK",
                "from_check": False,
                "born_timestamp": born + 500,
                "store_timestamp": born + 500,
            }


def write(folder: Path, cycle: int, rows: int) -> FilesRequest:
    """The files of one cycle."""
    first, born = cycle * rows, BORN + cycle * _STEP
    paths = {}
    for kind, made in (("half", halves(first, rows, born)), ("op", ops(first, rows, born))):
        paths[kind] = folder / f"{cycle}-{kind}.jsonl"
        paths[kind].write_text("".join(json.dumps(row) + "\n" for row in made))
    return FilesRequest([str(paths["half"])], [str(paths["op"])], _at(born + 1_000))


def _at(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, timezone.utc)


def cpu_seconds() -> float:
    """CPU time of this process and all that it started."""
    total = 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == os.getpgid(0) or int(fields[3]) == os.getsid(0):
            total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def jobs(spark: SparkSession) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def measured(spark: SparkSession, work: Callable[[], Any]) -> dict[str, float]:
    cpu, before, start = cpu_seconds(), jobs(spark), time.perf_counter()
    work()
    spent = {"s": time.perf_counter() - start, "cpu_s": cpu_seconds() - cpu}
    return {name: round(value, 2) for name, value in spent.items()} | {"jobs": jobs(spark) - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--cycles", type=int, default=12)
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    spark = spark_session("bench")
    spark.sparkContext.setLogLevel("ERROR")
    folder = Path(tempfile.mkdtemp(prefix="halfop-cycle-"))
    warehouse = KernelWarehouse(spark, str(folder / "warehouse"))
    request, log = Request(load_settings(None, (), {})), logging.getLogger("bench")
    wall, most = [], 0
    for cycle in range(args.cycles):
        files = write(folder, cycle, args.rows)
        land = measured(spark, lambda files=files: land_files(warehouse, files, log))  # type: ignore[misc]
        run = measured(spark, lambda: reconcile(warehouse, request))
        print(json.dumps({"cycle": cycle, "land": land, "run": run}), flush=True)
        wall.append(land["s"] + run["s"])
        most = int(land["jobs"] + run["jobs"])
    shutil.rmtree(folder)
    warm = round(statistics.median(wall[args.cycles // 2 :]), 2)
    print(json.dumps({"warm_s": warm, "jobs": most, "bounds": [_BOUND_SECONDS, _BOUND_JOBS]}))
    if warm > _BOUND_SECONDS or most > _BOUND_JOBS:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
