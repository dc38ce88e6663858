"""The cost of a simulation of so many runs: an hour's messages, most of them ended within a second.

bench/run simulate [--rows 100000] [--steps 100]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from backlog import quiet_session
from generate import BORN, Stretch, half_messages, op_messages
from halfop.settings.model import RuleSettings
from halfop.simulation.simulate import Period, simulate
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from pyspark.sql import Column
from pyspark.sql import functions as F

_HOUR = timedelta(hours=1)


def land_spread(warehouse: Warehouse, rows: int) -> None:
    """Over an hour; an op comes up to two seconds after its half message."""
    spark, stretch = warehouse.spark, Stretch(0, rows)
    warehouse.make("half_messages", "op_messages")
    warehouse.commit("half_messages", half_messages(spark, stretch).withColumns(_at("queue_offset", rows, F.lit(0))))
    late = F.pmod(F.xxhash64("half_offset"), F.lit(2_000))
    warehouse.commit("op_messages", op_messages(spark, stretch).withColumns(_at("half_offset", rows, late)))


def _at(offset: str, rows: int, late: Column) -> dict[str, Column]:
    at = F.timestamp_millis((F.lit(BORN) + F.col(offset) * (3_600_000 / rows) + late).cast("bigint"))
    return {"born_timestamp": at, "store_timestamp": at}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="halfop-bench-") as folder:
        warehouse = KernelWarehouse(quiet_session(), str(Path(folder) / "warehouse"))
        land_spread(warehouse, args.rows)
        for variants in (["6s"], ["6s", "12s"]):
            start = time.perf_counter()
            tried = {name: RuleSettings(transaction_timeout=timedelta(seconds=int(name[:-1]))) for name in variants}
            found = simulate(warehouse, tried, Period(every=_HOUR / args.steps))
            seconds = round(time.perf_counter() - start, 1)
            runs = sum(len(each.points) for each in found)
            told = {"rows": args.rows, "variants": len(variants), "runs": runs, "seconds": seconds}
            print(json.dumps(told | {"checks": [each.checks for each in found]}), flush=True)


if __name__ == "__main__":
    main()
