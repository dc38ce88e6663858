"""A landing and a run of few rows, both ways: by this process and Delta Kernel, or by Spark and Delta's connector.

bench/run few [--rows N …] [--cycles 3]

Prints for each number of rows the seconds of either way in a warm process, for warehouse/few.py's limits: the way that
is quicker should be the one that they choose.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cycle import write
from halfop.landing.files import sources
from halfop.landing.files.land import land_files
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse import reading
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.reading import Limits
from halfop.warehouse.session import spark_session
from pyspark.sql import SparkSession

_BY_SPARK = Limits(files=-1, bytes=-1, rows=-1)
_WAYS = {"here": (reading.ANY, reading.ANY.bytes), "by Spark": (_BY_SPARK, -1)}


@contextmanager
def forced(way: str) -> Iterator[None]:
    """Makes every read and landing go one way, whatever its size."""
    before = reading.FEW, sources._FEW_BYTES
    reading.FEW, sources._FEW_BYTES = _WAYS[way]
    try:
        yield
    finally:
        reading.FEW, sources._FEW_BYTES = before


def seconds(spark: SparkSession, way: str, rows: int, cycles: int) -> tuple[float, float]:
    """Medians of a landing and a run, without the first cycle."""
    folder = Path(tempfile.mkdtemp(prefix="halfop-few-"))
    warehouse, request = KernelWarehouse(spark, str(folder / "warehouse")), Request(load_settings(None, (), {}))
    spent = []
    with forced(way):
        for cycle in range(cycles + 1):
            files, start = write(folder, cycle, rows), time.perf_counter()
            land_files(warehouse, files, logging.getLogger("bench"))
            landed = time.perf_counter()
            reconcile(warehouse, request)
            spent.append((landed - start, time.perf_counter() - landed))
    shutil.rmtree(folder)
    land, run = (statistics.median(each) for each in zip(*spent[1:], strict=True))
    return land, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 30_000, 100_000])
    parser.add_argument("--cycles", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    spark = spark_session("bench")
    spark.sparkContext.setLogLevel("ERROR")
    for way in _WAYS:  # warm
        seconds(spark, way, 500, 3)
    for rows in args.rows:
        for way in _WAYS:
            land, run = seconds(spark, way, rows, args.cycles)
            print(json.dumps({"rows": rows, "way": way, "land_s": round(land, 2), "run_s": round(run, 2)}), flush=True)


if __name__ == "__main__":
    main()
