"""The demo: a small sample lands pass by pass on a moving clock, and every message's way is told."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from pyspark.sql import functions as F

from halfop.errors import HalfopError, UsageError
from halfop.landing.files import Request as Landing
from halfop.landing.files import land_files
from halfop.runs.reconcile import Request, reconcile
from halfop.settings import Settings
from halfop.summary import Summary
from halfop.table import text_table
from halfop.warehouse.lock import hold
from halfop.warehouse.tables import Warehouse

log = logging.getLogger("halfop.demo")

# Two questions instead of fifteen, so that a few passes show a message being given up.
OVERRIDES = ("rules.transaction_check_max=2", "rules.transaction_check_interval=60s")
_MARK = ".halfop-demo"


@dataclass(frozen=True)
class Pass:
    """What had landed when the clock stood at `now`."""

    now: datetime
    halves: list[str]
    ops: list[str]


def passes(sample: Path) -> list[Pass]:
    """The sample's folders, each named by its instant."""
    folders = sorted(folder for folder in sample.iterdir() if folder.is_dir()) if sample.is_dir() else []
    if not folders:
        raise HalfopError(f"the demo's sample is not in {sample}; it comes with the checkout")
    return [Pass(_instant(folder.name), _files(folder, "half"), _files(folder, "op")) for folder in folders]


def _instant(name: str) -> datetime:
    return datetime.strptime(name, "%Y-%m-%dT%H-%M-%SZ").replace(tzinfo=timezone.utc)


def _files(folder: Path, kind: str) -> list[str]:
    return [str(path) for path in sorted(folder.glob(f"{kind}.jsonl"))]


def fresh_folder(folder: Path) -> None:
    """An empty warehouse; only what an earlier demo made is cleared away."""
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise UsageError(f"{folder} holds something that is not a demo's; give another --warehouse")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()


def play(warehouse: Warehouse, settings: Settings, sample: Path) -> Summary:
    """Land and reconcile every pass; each prints a line."""
    total = Summary("demo")
    for each in passes(sample):
        with total.phase("land"):
            landed = land_files(warehouse, Landing(each.halves, each.ops, each.now), log)
        with total.phase("reconcile"), hold(warehouse, "run"):
            run = reconcile(warehouse, Request(settings, each.now))
        if run.status:
            raise HalfopError(f"run {run.run_id} failed: {run.to_json()}")
        total.run_id = run.run_id
        total.add(run)
        print(f"{each.now:%H:%M:%S}  landed {_told(landed.rows_written)}; {_decided(run)}", flush=True)
    return total


def _told(rows: dict[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in rows.items() if n) or "nothing"


def _decided(run: Summary) -> str:
    parts = [
        f"{n} {decision} {_why(reason)}" for decision, reasons in run.decisions.items() for reason, n in reasons.items()
    ]
    return ", ".join(part.strip() for part in sorted(parts))


def _why(reason: str) -> str:
    return "" if reason == "NONE" else f"({reason})"


def fates(warehouse: Warehouse) -> str:
    """One line a message: its way through the runs, and where it is now."""
    step = F.concat_ws(" ", "decision", "reason")
    ways = (
        warehouse.read("decisions")
        .where(F.col("decision") != "EARLY_OP")
        .groupBy("queue_offset")
        .agg(F.sort_array(F.collect_list(F.struct("run_id", step.alias("step")))).alias("way"))
    )
    half = warehouse.read("half_messages").select("queue_offset", "keys", "real_topic").dropDuplicates(["queue_offset"])
    rows = half.join(ways, "queue_offset", "left").orderBy("queue_offset").collect()
    lines = [
        [r["queue_offset"], r["keys"], r["real_topic"], " > ".join(_short(s["step"] for s in r["way"]))] for r in rows
    ]
    return text_table(["half", "message", "real topic", "what became of it, run by run"], lines)


def _short(steps: Iterator[str]) -> list[str]:
    """Repeated steps once, with their number."""
    ways: list[tuple[str, int]] = []
    for step in steps:
        ways = [*ways[:-1], (step, ways[-1][1] + 1)] if ways and ways[-1][0] == step else [*ways, (step, 1)]
    return [step if n == 1 else f"{step} x{n}" for step, n in ways]


def refused(warehouse: Warehouse) -> str:
    """What no rule could use."""
    rows = warehouse.read("rejected").orderBy("rejected_at", "kind", "queue_offset", "reason").collect()
    return text_table(
        ["kind", "offset", "why", "detail"], [[r["kind"], r["queue_offset"], r["reason"], r["detail"]] for r in rows]
    )


def places(warehouse: Warehouse) -> str:
    """The tables that hold the result, with their rows."""
    index = warehouse.read("topics_index").orderBy("topic").collect()
    names = [f"topics/{row['directory']}" for row in index]
    names += ["trans_check_max_time", "check_requests", "rejected", "decisions", "runs"]
    rows = [[name, warehouse.spark.read.format("delta").load(warehouse.path(name)).count()] for name in names]
    return text_table(["table", "rows"], rows)
