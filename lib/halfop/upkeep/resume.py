"""Discarded messages put back to open: rows of `resumes`, which the next run takes in (RocketMQ's resumeCheckHalf)."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, Key
from halfop.frame.errors import InputRefused, UsageError
from halfop.frame.summary import Summary
from halfop.planning.ranges import covers, ranges_of
from halfop.runs.record import last_run, wall_clock
from halfop.warehouse.lock import hold
from halfop.warehouse.tables import NO_TABLE, Warehouse

DISCARDS = "trans_check_max_time"
RESUMES = "resumes"
_SHOWN = 20


@dataclass(frozen=True)
class Request:
    """Which discarded messages: some by their keys, or all that a condition over trans_check_max_time holds for."""

    keys: Collection[Key] = ()
    where: str | None = None
    wait: timedelta = timedelta(0)
    dry_run: bool = False


def resume(warehouse: Warehouse, request: Request) -> tuple[Summary, list[list[object]]]:
    """Returns what was done, and some of the messages with what became of each.

    Messages that are open again, or have ended since, are told and left alone. One that ends before the next run stays
    ended: that run applies ops first, and puts the resume into `rejected`.
    """
    summary = Summary("resume")
    with hold(warehouse, "landing", request.wait):
        found = _found(warehouse, request).persist()
        try:
            counts = {row["now"]: row["count"] for row in found.groupBy("now").count().collect()}
            _refuse_unknown(warehouse, request, found)
            discarded = found.where("now = 'DISCARD'")
            if counts.get("DISCARD") and not request.dry_run:
                _land(warehouse, discarded)
                summary.rows_written = {RESUMES: counts["DISCARD"]}
            shown = found.orderBy(F.col("now") != "DISCARD", *HALF_KEY).limit(_SHOWN).collect()
        finally:
            found.unpersist()
    summary.extra["resumed"] = 0 if request.dry_run else counts.pop("DISCARD", 0)
    summary.extra["left_alone"] = {now: n for now, n in counts.items() if now != "DISCARD"}
    if request.dry_run:
        summary.extra["would_resume"] = counts.get("DISCARD", 0)
        summary.notes.append("dry run: nothing was written")
    return summary, [[row[c] for c in ("broker_name", "queue_id", "queue_offset", "now")] for row in shown]


def _found(warehouse: Warehouse, request: Request) -> DataFrame:
    """A condition may be wrong in its form, and by what it meets in a row."""
    if warehouse.version(DISCARDS) == NO_TABLE:
        raise InputRefused(warehouse.path(DISCARDS), None, "no run has discarded anything here yet")
    try:
        return _standing(warehouse, _asked_for(warehouse, request))
    except PySparkException as error:
        if request.where is None:
            raise
        raise UsageError(f"--where {request.where}: {str(error).splitlines()[0]}") from error


def _asked_for(warehouse: Warehouse, request: Request) -> DataFrame:
    """The half keys among the discards, each once."""
    rows = warehouse.read(DISCARDS)
    asked = rows.where(request.where) if request.where is not None else rows.join(_frame(warehouse, request), HALF_KEY)
    return asked.select(HALF_KEY).distinct()


def _frame(warehouse: Warehouse, request: Request) -> DataFrame:
    return F.broadcast(
        warehouse.frame(sorted(set(request.keys)), "broker_name STRING, queue_id INT, queue_offset BIGINT")
    )


def _standing(warehouse: Warehouse, asked: DataFrame) -> DataFrame:
    """With what is `now` of each: its last decision, or RESUMED where a resume waits for the next run."""
    near = covers(ranges_of(asked, "queue_offset"), "queue_offset")
    decided = warehouse.read("decisions").where(near & (F.col("decision") != "EARLY_OP")).join(asked, HALF_KEY)
    last = decided.groupBy(HALF_KEY).agg(F.max_by("decision", "run_id").alias("decided"))
    waiting = _waiting(warehouse).select(*HALF_KEY, F.lit(True).alias("waits")).distinct()
    now = F.when(F.col("waits"), "RESUMED").otherwise(F.col("decided")).alias("now")
    return last.join(F.broadcast(waiting), HALF_KEY, "left").select(*HALF_KEY, now)


def _waiting(warehouse: Warehouse) -> DataFrame:
    """Resumes that no run has taken in; a run that is open, or has slices to come, may still do."""
    found = last_run(warehouse)
    before = NO_TABLE
    if found:
        run, closed = found
        all_taken = closed and run.slice.number == run.slice.of
        before = (run.inputs if all_taken else run.inputs_before)[RESUMES]
    return warehouse.landed_between(RESUMES, before, warehouse.version(RESUMES))


def _refuse_unknown(warehouse: Warehouse, request: Request, found: DataFrame) -> None:
    """A key is meant: where it names no discarded message, nothing is resumed."""
    if not request.keys:
        return
    known = {Key(row["broker_name"], row["queue_id"], row["queue_offset"]) for row in found.select(HALF_KEY).collect()}
    if unknown := sorted(set(request.keys) - known):
        names = ", ".join(map(str, unknown[:_SHOWN]))
        raise InputRefused(
            warehouse.path(DISCARDS),
            None,
            f"no discarded message {names}",
            "nothing was resumed; explain KEY tells more",
        )


def _land(warehouse: Warehouse, keys: DataFrame) -> None:
    warehouse.make(RESUMES)
    found = last_run(warehouse)  # its clock may have been ahead: a message's age counts from its resume
    at = max(wall_clock(), found[0].now) if found else wall_clock()
    owner = f"{getpass.getuser()}@{socket.gethostname()}:{os.getpid()}"
    warehouse.append(RESUMES, keys.withColumns({"resumed_at": F.lit(at), "owner": F.lit(owner)}))
