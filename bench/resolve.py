"""`resolve` over N open transactions of one group and as many orders: the join, and the plan's file.

bench/run resolve [--rows 1000000] [--rounds 1]

Seven of ten orders are paid, one is cancelled and one has no outcome; the tenth is absent. The bound holds for the
median of a million, in new processes: a minute, start-up included.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from backlog import NOW, quiet_session
from command import Called, call
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.load import load_settings
from halfop.warehouse.kernel import KernelWarehouse
from millions import Stretch, land
from pyspark.sql import functions as F

_BOUND, _BOUND_FROM = 60.0, 1_000_000
_STATES = {"PAID": range(7), "CANCELLED": range(7, 8), "NEW": range(8, 9)}
_CONFIG = """
resolve:
  groups:
    group0:
      tables: {orders: {path: PATH, format: parquet}}
      query: >
        SELECT id AS key, state,
               CASE state WHEN 'PAID' THEN 'COMMIT' WHEN 'CANCELLED' THEN 'ROLLBACK' END AS outcome
        FROM orders
      evidence: [state]
      absent_after: 30m
      watermark: SELECT max(updated_at) FROM orders
      complete_since: 1970-01-01T00:00:00Z
"""


def build(folder: Path, number: int) -> None:
    """Lands the messages, asks about all of them, and writes the orders."""
    warehouse = KernelWarehouse(quiet_session(), str(folder / "warehouse"))
    land(warehouse, Stretch(0, number, open=100, groups=1))
    summary = reconcile(warehouse, Request(load_settings(None, ("rules.checks_a_run=null",), {}), NOW))
    if summary.status or list(summary.decisions) != ["CHECK"]:
        raise SystemExit(summary.to_json())
    halves = warehouse.read("half_messages").select(F.col("uniq_key").alias("id"), "queue_offset").toArrow()
    states = {n: state for state, numbers in _STATES.items() for n in numbers}
    found = [states.get(offset % 10) for offset in halves["queue_offset"].to_pylist()]
    orders = pa.table({"id": halves["id"], "state": pa.array(found, pa.string())})
    orders = orders.append_column("updated_at", pa.array([NOW] * len(orders), pa.timestamp("us", "UTC")))
    orders = orders.filter(orders["state"].is_valid()).sort_by("id")
    pq.write_table(orders, folder / "orders.parquet")
    (folder / "halfop.yaml").write_text(_CONFIG.replace("PATH", str(folder / "orders.parquet")))


def measured(built: Path, number: int) -> float:
    """Prints what one call costs; returns its seconds."""
    plan = built / "plan.parquet"
    for old in built.glob("plan*"):
        old.unlink()
    called = _call(built, plan, number)
    tenth = number // 10
    wanted = {"COMMIT": 7 * tenth, "ROLLBACK": 2 * tenth, "UNDECIDED": tenth, "rolled back as absent": tenth}
    counts = called.summary["groups"]["group0"]
    if {name: counts.get(name) for name in wanted} != wanted or pq.read_metadata(plan).num_rows != 9 * tenth:
        sys.exit(f"found {counts}, not {wanted}")
    join = called.summary["seconds"]["plan"]
    print(json.dumps({"open": number, "join_seconds": join, "plan_bytes": plan.stat().st_size} | called.shown()))
    return called.seconds


def _call(built: Path, plan: Path, number: int) -> Called:
    at = ["--config", str(built / "halfop.yaml"), "--warehouse", str(built / "warehouse")]
    return call("resolve", "--plan", str(plan), "--limit", str(number), *at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.build:
        build(args.build, args.rows)
        return
    folder = Path(tempfile.mkdtemp(prefix="halfop-resolve-"))
    try:
        command = [sys.executable, __file__, "--build", str(folder), "--rows", str(args.rows)]
        subprocess.run(command, check=True)
        spent = [measured(folder, args.rows) for _ in range(args.rounds)]
    finally:
        shutil.rmtree(folder)
    if args.rows >= _BOUND_FROM and statistics.median(spent) > _BOUND:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
