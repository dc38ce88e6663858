"""Discarded messages made open again: rows of `resumes`, which the next run reads (RocketMQ's resumeCheckHalf)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, KEY_COLUMNS, Key, key_of
from halfop.frame.errors import InputRefused
from halfop.frame.summary import Summary
from halfop.frame.trouble import owner
from halfop.planning.counts import covers, ranges_of
from halfop.runs.record import TABLE as RESUMES
from halfop.runs.record import last_run, still_to_do, unknown_hint, wall_clock
from halfop.runs.standing import standing_discards
from halfop.warehouse.lock import hold
from halfop.warehouse.spark_errors import by_condition
from halfop.warehouse.tables import NO_TABLE, Warehouse

DISCARDS = "trans_check_max_time"
_SHOWN = 20


@dataclass(frozen=True)
class ResumeSelection:
    """Discarded messages: some by their keys, or all that a condition over trans_check_max_time holds for."""

    keys: Collection[Key] = ()
    where: str | None = None
    wait: timedelta = timedelta(0)
    dry_run: bool = False


class Resumed(NamedTuple):
    """A message that was to be made open again, and its state before: DISCARD, RESUMED, or how it has ended."""

    broker_name: str
    queue_id: int
    queue_offset: int
    was: str


def resume(warehouse: Warehouse, selection: ResumeSelection) -> tuple[Summary, list[Resumed]]:
    """Returns the summary, and some of the messages with the state of each before.

    Messages that are open again, or have ended since, are counted and left alone. A message that ends before the next
    run stays ended: that run applies ops first, and puts the resume into `rejected`.
    """
    summary = Summary("resume")
    with hold(warehouse, "landing", selection.wait):
        found = _found(warehouse, selection).persist()
        try:
            states = {tuple(row)[:2]: tuple(row)[2] for row in found.groupBy("now", "reason").count().collect()}
            counts = Counter[str]()
            for (now, _), number in states.items():
                counts[now] += number
            _refuse_unknown(warehouse, selection, found)
            if counts["DISCARD"] and not selection.dry_run:
                _land(warehouse, found.where("now = 'DISCARD'"))
                summary.rows_written = {RESUMES: counts["DISCARD"]}
            summary.notes += [] if counts else still_to_do(warehouse)
            summary.notes += _nobody_to_ask(states.get(("DISCARD", "NO_PRODUCER_GROUP"), 0))
            shown = found.orderBy(F.col("now") != "DISCARD", *HALF_KEY).limit(_SHOWN).collect()
        finally:
            found.unpersist()
    summary.extra["resumed"] = 0 if selection.dry_run else counts.pop("DISCARD", 0)
    summary.extra["left_alone"] = {now: n for now, n in counts.items() if now != "DISCARD"}
    if selection.dry_run:
        summary.extra["would_resume"] = counts.get("DISCARD", 0)
        summary.notes.append("dry run: nothing was written")
    return summary, [Resumed(row["broker_name"], row["queue_id"], row["queue_offset"], row["now"]) for row in shown]


def _found(warehouse: Warehouse, selection: ResumeSelection) -> DataFrame:
    """The selected messages with their states; UsageError if the condition is wrong, or fails on a row."""
    if warehouse.version(DISCARDS) == NO_TABLE:
        raise InputRefused(warehouse.path(DISCARDS), None, "no run has discarded anything yet")
    with by_condition(selection.where):
        return _with_state(warehouse, _asked_for(warehouse, selection))


def _asked_for(warehouse: Warehouse, selection: ResumeSelection) -> DataFrame:
    """The half keys among the discards, each once."""
    rows = warehouse.read(DISCARDS)
    if selection.where is None:
        asked = rows.join(F.broadcast(warehouse.frame(sorted(set(selection.keys)), KEY_COLUMNS)), HALF_KEY)
    else:
        asked = rows.where(selection.where)
    return asked.select(HALF_KEY).distinct()


def _with_state(warehouse: Warehouse, asked: DataFrame) -> DataFrame:
    """The half keys with their state `now`: the last decision, or RESUMED if a resume waits for the next run.

    A discard that its broker has undone since, by a copy of its own, is SUPERSEDED. `reason` is that of the last
    decision.
    """
    near = covers(ranges_of(asked, "queue_offset"), "queue_offset")
    rows = warehouse.empty("decisions") if near is None else warehouse.read("decisions", where=near)
    decided = rows.where(F.col("decision") != "EARLY_OP").join(asked, HALF_KEY)
    last = decided.groupBy(HALF_KEY).agg(*(F.max_by(name, "run_id").alias(name) for name in ("decision", "reason")))
    stands = standing_discards(warehouse, asked)
    if stands is None:
        return last.select(*HALF_KEY, F.col("decision").alias("now"), "reason")
    gone_on = F.when(F.col("decision") == "DISCARD", "SUPERSEDED").otherwise(F.col("decision"))
    found = last.join(stands.select(*HALF_KEY, F.col("decision").alias("stands")), HALF_KEY, "left")
    return found.select(*HALF_KEY, F.coalesce("stands", gone_on).alias("now"), "reason")


def _nobody_to_ask(number: int) -> list[str]:
    """Returns a note if nobody can be asked about that many messages, so that a run discards them again."""
    what = f"{number} of them name no producer group (NO_PRODUCER_GROUP), so nobody can be asked"
    then = "a run discards them again once their immunity is over, and only an op that lands before that ends them"
    return [f"{what}: {then}"] if number else []


def _refuse_unknown(warehouse: Warehouse, selection: ResumeSelection, found: DataFrame) -> None:
    """Raises InputRefused if a key names no discarded message: then nothing is resumed."""
    if not selection.keys:
        return
    known = {key_of(row) for row in found.select(HALF_KEY).collect()}
    if unknown := sorted(set(selection.keys) - known):
        names = ", ".join(map(str, unknown[:_SHOWN]))
        raise InputRefused(
            warehouse.path(DISCARDS),
            None,
            f"no discarded message {names}",
            unknown_hint(warehouse, "nothing was resumed"),
        )


def _land(warehouse: Warehouse, keys: DataFrame) -> None:
    warehouse.make(RESUMES)
    found = last_run(warehouse)  # its clock may have been ahead: a message's age counts from its resume
    at = max(wall_clock(), found[0].now) if found else wall_clock()
    by = f"{owner()}:{os.getpid()}"
    warehouse.commit(RESUMES, keys.withColumns({"resumed_at": F.lit(at), "owner": F.lit(by)}))
