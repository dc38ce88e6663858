"""`land files` of N half messages and their ops from Parquet, each time by a new process into a new warehouse.

bench/run land [--rows N] [--rounds N] [--json] [--launcher CHECKOUT/spark-submit.sh …]. The bound holds for 3 million.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from backlog import quiet_session
from cold import NOT_A_USERS, cpu_of_children
from generate import Stretch, half_messages, op_messages
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_HOME = Path(__file__).resolve().parents[1]
_BOUND = 50.0 / 3_000_000  # seconds a half message, start-up included
_MADE_HERE = ("landed_at", "source", "physical_offset", "record_size", "life")


def write_inputs(folder: Path, rows: int, as_json: bool) -> None:
    spark, stretch = quiet_session(), Stretch(0, rows)
    for name, made in (("half", half_messages(spark, stretch)), ("op", op_messages(spark, stretch))):
        given = made.drop(*_MADE_HERE)
        if as_json:
            _in_json(given).write.option("ignoreNullFields", "true").json(str(folder / name))
        else:
            given.write.parquet(str(folder / name))
    spark.stop()


def _in_json(rows: DataFrame) -> DataFrame:
    """Times as milliseconds; Spark writes bodies in base64 by itself."""
    return rows.withColumns({name: F.unix_millis(name) for name in ("born_timestamp", "store_timestamp")})


def landed(launcher: Path, inputs: Path, warehouse: Path) -> dict[str, Any]:
    """Lands all in a new process; seconds, CPU seconds and the phases of its summary."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(NOT_A_USERS)}
    command = [str(launcher), "--master", "local[2]", "--driver-memory", "5g", "land", "files"]
    command += ["--half", str(inputs / "half"), "--op", str(inputs / "op"), "--warehouse", str(warehouse)]
    os.sync()  # nothing that was written before is still on its way to the disk
    cpu, start = cpu_of_children(), time.perf_counter()
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    summary = json.loads(done.stdout.splitlines()[-1])
    spent = {"s": round(wall, 1), "cpu_s": round(cpu_of_children() - cpu, 1)}
    return spent | {"phases": summary["seconds"], "rows": summary["rows_written"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="JSON lines, for which there is no bound")
    parser.add_argument("--launcher", type=Path, nargs="+", default=[_HOME / "spark-submit.sh"])
    args = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory(prefix="halfop-land-") as name:
        folder = Path(name)
        write_inputs(folder / "in", args.rows, args.json)
        for launcher in args.launcher:
            seconds = []
            for number in range(args.rounds):
                found = landed(launcher.resolve(), folder / "in", folder / "warehouse")
                shutil.rmtree(folder / "warehouse")
                seconds.append(found["s"])
                print(json.dumps({"launcher": str(launcher), "round": number} | found), flush=True)
            ratio = round(statistics.median(seconds) / (args.rows * _BOUND), 2)
            print(json.dumps({"launcher": str(launcher), "half_messages": args.rows, "of_bound": ratio}), flush=True)
            missed = not args.json and ratio > 1
    raise SystemExit(1 if missed and args.rows >= 3_000_000 else 0)


if __name__ == "__main__":
    main()
