"""The cost of a run that watches a real broker: CPU seconds of the JVM and its Python workers, and wall seconds.

A tenth of the open messages have three copies, put back by the broker. The first run meets all of them new. Before the
second a fourth copy of 10,000 lands, ops for 10,000 others, and 1,000 discard records.

bench/run watch [--open 1000000] [--rounds 2]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from backlog import NOW, quiet_session
from generate import BORN, Stretch, half_messages, op_messages
from halfop.rocketmq.names import CHECK_TIMES
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

_COPIED = 10  # one message of so many is put back
_MORE, _ENDED, _DISCARDED = 10_000, 10_000, 1_000
_TICK = os.sysconf("SC_CLK_TCK")
_TABLES = ("half_messages", "op_messages", "broker_discards")


def cpu_seconds() -> float:
    """The use of this process and of those that it started: the JVM, and the workers that it started."""
    stats = [stat for stat in map(_stat, filter(str.isdigit, os.listdir("/proc"))) if stat]
    parents = {int(pid): int(fields[1]) for pid, fields in stats}
    mine = {pid for pid in parents if _descends(pid, parents)}
    return sum(sum(map(int, fields[11:15])) for pid, fields in stats if int(pid) in mine) / _TICK


def _stat(pid: str) -> tuple[str, list[str]] | None:
    """The fields of /proc/PID/stat after the name; None where the process has ended meanwhile."""
    try:
        return pid, Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid and pid != os.getpid():
        pid = parents.get(pid, 0)
    return bool(pid)


def copies(spark: SparkSession, number: int, nth: int) -> DataFrame:
    """The nth copies of the messages that were put back, after all that the queue had before."""
    halves = half_messages(spark, Stretch(0, number)).where(F.col("queue_offset") % _COPIED == 0)
    offset = F.lit(number + (nth - 1) * (number // _COPIED)) + F.floor(F.col("queue_offset") / _COPIED)
    stored = F.col("store_timestamp") + F.make_dt_interval(mins=F.lit(nth))
    times = F.create_map(F.lit(CHECK_TIMES), F.lit(str(nth)))
    new = {"queue_offset": offset, "commit_log_offset": offset * 512, "store_timestamp": stored}
    return halves.withColumns(new | {"properties": F.map_concat("properties", times)})


def land(warehouse: Warehouse, number: int) -> None:
    warehouse.make(*_TABLES)
    warehouse.commit("half_messages", half_messages(warehouse.spark, Stretch(0, number)))
    for nth in (1, 2):
        warehouse.commit("half_messages", copies(warehouse.spark, number, nth))


def land_more(warehouse: Warehouse, number: int) -> None:
    spark = warehouse.spark
    warehouse.commit("half_messages", copies(spark, number, 3).limit(_MORE))
    columns = ["broker_name", "queue_id", "uniq_key", "producer_group", "born_timestamp"]
    gone = half_messages(spark, Stretch(0, number)).where(F.col("queue_offset") < _DISCARDED)
    stored = F.timestamp_millis(F.lit(BORN + 7_200_000)).alias("store_timestamp")
    own = [F.lit(15).alias("check_times"), F.lit(None).cast("bigint").alias("physical_offset")]
    own = [*own, F.current_timestamp().alias("landed_at")]
    warehouse.commit("broker_discards", gone.select("queue_offset", *columns, stored, *own))
    warehouse.commit("op_messages", op_messages(spark, Stretch(number - _ENDED, _ENDED, all_end=True)))


def measure(warehouse: Warehouse, minutes: int) -> dict[str, object]:
    settings = load_settings(None, ("rules.ask=false",), {})
    before, start = cpu_seconds(), time.perf_counter()
    summary = reconcile(warehouse, Request(settings, NOW + timedelta(minutes=minutes)))
    if summary.status:
        raise SystemExit(summary.to_json())
    used = {"cpu_s": round(cpu_seconds() - before, 1), "wall_s": round(time.perf_counter() - start, 1)}
    return used | {"decisions": summary.decisions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--open", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    spark = quiet_session()
    for n, number in enumerate([20_000] + [args.open] * args.rounds):  # the first warms the compiler up
        folder = Path(tempfile.mkdtemp(prefix="halfop-watch-"))
        warehouse = KernelWarehouse(spark, str(folder / "warehouse"))
        land(warehouse, number)
        print(json.dumps({"open": number, "round": n, "run": 1} | measure(warehouse, 0)), flush=True)
        land_more(warehouse, number)
        print(json.dumps({"open": number, "round": n, "run": 2} | measure(warehouse, 1)), flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
