"""The demo: lands a real broker's store pass by pass, as it grew, and shows what became of its messages."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from pyspark.sql import functions as F

from halfop.frame.commands import job_here, on_message, sql
from halfop.frame.errors import HalfopError, UsageError
from halfop.frame.output import Output, Table
from halfop.frame.summary import Summary
from halfop.frame.units import instant
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.store.consumequeue import UNIT
from halfop.runs.reconcile import Request, reconcile
from halfop.settings.model import Settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold

log = logging.getLogger("halfop.demo")

# As the broker had them that the sample was captured from.
OVERRIDES = (
    "rules.transaction_timeout=3s",
    "rules.transaction_check_max=3",
    "rules.transaction_check_interval=3s",
    "rules.ask=true",  # as if halfop had the place of the broker's check service
    "landing.op_lag=500ms",
)
EXAMPLE = "broker-a/0/14"  # asked about, put back, answered and committed
_MARK = ".halfop-demo"


@dataclass(frozen=True)
class Pass:
    """An instant of the demo's clock, and how far the log had grown by then; None: all of it."""

    now: datetime
    log_to: int | None


def passes(sample: Path) -> list[Pass]:
    path = sample / "passes.json"
    if not path.is_file():
        raise HalfopError(f"the demo's sample is not in {sample}; it comes with halfop")
    return [Pass(datetime.fromisoformat(each["now"]), each["log_to"]) for each in json.loads(path.read_text())]


def store_upto(sample: Path, folder: Path, log_to: int | None) -> Path:
    """Unpacks the sample's store as it was when its log ended at `log_to`, and returns its folder."""
    with tarfile.open(sample / "store.tar.gz") as archive:
        # an early 3.10 or 3.11 has no filters yet, and does not take the argument
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(folder)  # noqa: S202 - our own archive
    if log_to is not None:
        _cut_log(folder / "commitlog", log_to)
        _cut_queues(folder / "consumequeue", log_to)
    return folder


def _cut_log(folder: Path, log_to: int) -> None:
    """Zeros what lies after a physical offset, as a broker's files are before it writes to them."""
    for file in folder.iterdir():
        size = file.stat().st_size
        os.truncate(file, min(max(0, log_to - int(file.name)), size))
        os.truncate(file, size)


def _cut_queues(folder: Path, log_to: int) -> None:
    """Zeros the units that name what the log does not hold yet: a broker writes them after the records."""
    for file in folder.glob("*/*/*"):
        units = np.fromfile(file, UNIT)
        units[units["physical"] >= log_to] = 0
        units.tofile(file)


def fresh_folder(folder: Path) -> None:
    """Makes an empty folder for a warehouse; removes only what an earlier demo made."""
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise UsageError(f"{folder} holds something that is not a demo's; give another --warehouse")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()


def play(warehouse: KernelWarehouse, settings: Settings, sample: Path, output: Output) -> Summary:
    """Lands and reconciles every pass; the log says what it is at, and each pass shows a line with what it did."""
    total, all_passes = Summary("demo"), passes(sample)
    for number, each in enumerate(all_passes, 1):
        at = f"pass {number} of {len(all_passes)}"
        log.info("%s: landing the broker's store %s", at, _how_far(each))
        with total.phase("land"), tempfile.TemporaryDirectory(prefix="halfop-demo-") as folder:
            store = store_upto(sample, Path(folder), each.log_to)
            landed = land_store(warehouse, StoreRequest(str(store), "broker-a", settings.landing.op_lag), log)
        log.info("%s: reconciling, as of %s UTC", at, instant(each.now))
        with total.phase("reconcile"), hold(warehouse, "run"):
            run = reconcile(warehouse, Request(settings, each.now))
        if run.status:
            raise HalfopError(f"run {run.run_id} failed: {run.to_json()}")
        total.run_id = run.run_id
        total.add(run)
        output.text(f"{each.now:%H:%M:%S}  landed {_counted(landed.rows_written)}\n          {_decided(run)}\n")
    return total


def _how_far(each: Pass) -> str:
    return "as it was in the end" if each.log_to is None else f"as it was when its log had {each.log_to:,} bytes"


def _counted(rows: dict[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in rows.items() if n) or "nothing"


def _decided(run: Summary) -> str:
    parts = [
        f"{n} {decision} {_why(reason)}" for decision, reasons in run.decisions.items() for reason, n in reasons.items()
    ]
    return ", ".join(part.strip() for part in sorted(parts))


def _why(reason: str) -> str:
    return "" if reason == "NONE" else f"({reason})"


def fates(warehouse: KernelWarehouse) -> Table:
    """A row for each way through the runs: how many messages went it, and one of them."""
    step = F.concat_ws(" ", "decision", "reason")
    rows = warehouse.read("decisions").where(F.col("decision") != "EARLY_OP")
    of_live = F.when(F.col("decision") != "SUPERSEDED", F.struct("run_id", step.alias("step")))
    steps = F.sort_array(F.collect_list(of_live))
    ways = rows.groupBy("uniq_key").agg(steps.alias("steps"), F.countDistinct("queue_offset").alias("copies"))
    way = F.transform("steps", lambda each: each["step"])
    found = ways.groupBy(way.alias("way")).agg(
        F.count("*").alias("messages"), F.sum("copies").alias("copies"), F.min("uniq_key").alias("one")
    )
    lines = [
        [r["messages"], r["copies"], r["one"], " > ".join(_short(iter(r["way"])))]
        for r in found.orderBy(F.desc("messages"), "way").collect()
    ]
    header = ["messages", "half rows", "one of them", "what became of them, run by run"]
    return Table(header, lines, "What became of the messages")


def _short(steps: Iterator[str]) -> list[str]:
    """Repeated steps once, with their number."""
    ways: list[tuple[str, int]] = []
    for step in steps:
        ways = [*ways[:-1], (step, ways[-1][1] + 1)] if ways and ways[-1][0] == step else [*ways, (step, 1)]
    return [step if n == 1 else f"{step} x{n}" for step, n in ways]


def refused(warehouse: KernelWarehouse) -> Table:
    """The rows that no rule could use, counted."""
    rows = warehouse.read("rejected").orderBy("rejected_at", "kind", "queue_offset", "reason").collect()
    found = [[r["kind"], r["queue_offset"], r["reason"], r["detail"]] for r in rows]
    return Table(["kind", "offset", "why", "detail"], found, "What was refused")


def places(warehouse: KernelWarehouse) -> Table:
    """The tables that hold the result, with their rows."""
    index = warehouse.read("topics_index").orderBy("topic").collect()
    names = [f"topics/{row['directory']}" for row in index]
    names += ["trans_check_max_time", "check_requests", "rejected", "decisions", "runs"]
    rows = [[name, warehouse.spark.read.format("delta").load(warehouse.path(name)).count(), ""] for name in names]
    rows[-1][-1] = "each run has two, when it opens and when it closes"
    return Table(["table", "rows", ""], rows, "Where it is now")


# ---- what to do next ----


def next_commands(settings: Settings) -> list[tuple[str, str]]:
    """Returns what one can do with the demo's tables, and the command for it, ready to copy."""
    return [
        ("the life of one message", on_message("explain", EXAMPLE, settings)),
        ("a query", sql("SELECT decision, reason, count(*) FROM decisions GROUP BY ALL", settings)),
        ("the report again", job_here("report", settings)),
    ]
