"""A run that commits to many new topics.

bench/run topics [--topics N] [--rows N]. The bound holds for 500 topics.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from backlog import quiet_session, run, spent
from generate import Stretch, half_messages, op_messages
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import functions as F

_BOUND, _TOPICS = 60, 500  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=_TOPICS)
    parser.add_argument("--rows", type=int, default=500_000)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="halfop-bench-"))
    missed = False
    for number, rows in enumerate((20_000, args.rows)):  # the first warms the compiler up
        warehouse, stretch = KernelWarehouse(quiet_session(), str(folder / str(number))), Stretch(0, rows)
        halves = half_messages(warehouse.spark, stretch)
        topic = F.concat(F.lit("Topic"), F.pmod(F.xxhash64("uniq_key"), F.lit(args.topics)))
        warehouse.make("half_messages", "op_messages")
        warehouse.commit("half_messages", halves.withColumn("real_topic", topic))
        warehouse.commit("op_messages", op_messages(warehouse.spark, stretch))
        seconds, cpu = spent(lambda warehouse=warehouse: run(warehouse))  # type: ignore[misc]
        files = len(list(Path(warehouse.root).glob("topics/*/*.parquet")))
        print(json.dumps({"topics": args.topics, "rows": rows, "seconds": seconds, "cpu_s": cpu, "files": files}))
        missed = args.topics >= _TOPICS and rows == args.rows and seconds > _BOUND
    shutil.rmtree(folder)
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
