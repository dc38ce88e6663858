"""A backlog many times larger than the driver's heap, reconciled by the real job in one run.

bench/run memory [--heap 1g] [--rows 2600000] [--body 4000] [-- job options, as --max-rows 200000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from backlog import NOW
from generate import Stretch, half_messages, op_messages
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import spark_session
from pyspark.sql import functions as F

_ROOT = Path(__file__).parents[1]


def prepare(folder: str, rows: int, body: int) -> None:
    """Bodies that compress well on disk, and are as large as they are in memory."""
    spark = spark_session("memory")
    warehouse, stretch = KernelWarehouse(spark, folder), Stretch(0, rows)
    warehouse.make("half_messages", "op_messages")
    halves = half_messages(spark, stretch)
    long = F.encode(F.rpad(F.hex("body"), body, "x"), "UTF-8")
    warehouse.commit("half_messages", halves.withColumn("body", long))
    warehouse.commit("op_messages", op_messages(spark, stretch))
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heap", default="1g")
    parser.add_argument("--rows", type=int, default=2_600_000)
    parser.add_argument("--body", type=int, default=4_000)
    parser.add_argument("options", nargs="*")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="halfop-memory-") as folder:
        prepare(folder, given.rows, given.body)
        command = ["./spark-submit.sh", "--driver-memory", given.heap, "reconcile", "--now", NOW.isoformat()]
        command += ["--warehouse", folder, *given.options]
        start = time.perf_counter()
        with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as job:
            said = str(job.stdout and job.stdout.read()) or "{}"
            _, status, used = os.wait4(job.pid, 0)
            job.returncode = os.waitstatus_to_exitcode(status)
        seconds = round(time.perf_counter() - start, 1)
        told = json.loads(said.splitlines()[-1])
        backlog, resident = given.rows * given.body / 2**30, used.ru_maxrss / 2**20
        print(f"{backlog:.1f} GiB, heap {given.heap}: status {job.returncode} in {seconds} s, {resident:.1f} resident")
        print(json.dumps({name: told.get(name) for name in ("rows_written", "seconds", "error")}))
    sys.exit(job.returncode)


if __name__ == "__main__":
    main()
