"""Rows of `decisions` brought back: what a run decided follows from its pins, and what it delivered proves the rest."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.examine.runs import Row, append_lost, by_run, lacking
from halfop.landing.progress import instant
from halfop.planning.plan import PLAN_APP, arrived, plan_of
from halfop.planning.run import Run
from halfop.runs.record import found_run
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.rows import Kept
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS, first_line, raise_mistake
from halfop.warehouse.tables import NO_TABLE, Marker
from halfop.warehouse.upkeep import first_whole_run
from halfop.warehouse.where import equal

log = logging.getLogger("halfop.examine")


@dataclass(frozen=True)
class Deficit:
    """A run and the rows of `decisions` that it lacks; None if their number is not known."""

    run_id: int
    rows: int | None

    def __str__(self) -> str:
        return f"run {self.run_id} lacks {'some' if self.rows is None else self.rows} of its decisions"


def deficits(warehouse: KernelWarehouse, topics: Sequence[str]) -> list[Deficit]:
    """The runs that have fewer decisions than they recorded, or than other tables prove."""
    if warehouse.version("decisions") == NO_TABLE:
        counted, whole = {}, 1
    else:
        rows = warehouse.read("decisions").groupBy("run_id").count().collect()
        counted, whole = {row["run_id"]: int(row["count"]) for row in rows}, first_whole_run(warehouse)
    proven = {row["run_id"] for row in lacking(warehouse, topics).select("run_id").distinct().collect()}
    found = []
    for run_id, events in sorted(by_run(warehouse).items()):
        recorded = _recorded(events)
        few = recorded is not None and counted.get(run_id, 0) < recorded
        if run_id >= whole and (few or run_id in proven):
            found.append(Deficit(run_id, recorded - counted.get(run_id, 0) if few and recorded is not None else None))
    return found


def _recorded(events: dict[str, Row]) -> int | None:
    """The number of decisions that a closed run recorded."""
    closed = events.get("CLOSED")
    return None if closed is None else sum(closed["counts"].values())


def bring_back(warehouse: KernelWarehouse, topics: Sequence[str], also: Sequence[int] = ()) -> list[Deficit]:
    """Writes the rows that runs lack, in the order of the runs; `also` are runs whose plans are to be looked at.

    Returns what was brought back. A second call adds nothing.
    """
    warehouse.make("decisions")
    done = []
    for run_id in sorted({*also, *(each.run_id for each in deficits(warehouse, topics))}):
        found = found_run(warehouse, run_id)
        if found is not None and (number := _restore(warehouse, found[0], topics)):
            done.append(Deficit(run_id, number))
    return done


def _restore(warehouse: KernelWarehouse, run: Run, topics: Sequence[str]) -> int:
    proven = lacking(warehouse, topics).where(F.col("run_id") == run.run_id)
    there = warehouse.read("decisions", where=equal("run_id", run.run_id))
    early = F.when(F.col("decision") == "EARLY_OP", F.col("op_queue_offset")).alias("early")
    key = [*map(F.col, HALF_KEY), early]
    with Kept(warehouse.stage) as kept:
        proven = kept.persisted(proven)
        rows = proven
        try:
            with arrived(warehouse, _as_now(warehouse, run)) as arrivals:
                planned = plan_of(arrivals).decisions.withColumn("early", early)
                known = there.select(key).unionByName(proven.select(key)).distinct()
                same = [planned[c].eqNullSafe(known[c]) for c in (*HALF_KEY, "early")]
                rows = kept.persisted(planned.join(known, same, "left_anti").drop("early").unionByName(proven))
                return _append(warehouse, run, rows)
        except OPERATIONAL_ERRORS as error:
            raise_mistake(error)
            log.warning("what run %d decided cannot be computed again: %s", run.run_id, first_line(error))
            return _append(warehouse, run, proven)


def _append(warehouse: KernelWarehouse, run: Run, rows: DataFrame) -> int:
    number = rows.count()
    append_lost(warehouse, "decisions", rows, Marker(PLAN_APP, run.run_id), number)
    return number


def _as_now(warehouse: KernelWarehouse, run: Run) -> Run:
    """The run over decisions of earlier runs as they have been brought back."""
    return replace(run, inputs=dict(run.inputs) | {"decisions": warehouse.version("decisions")})


# ---- messages that nobody looks at any more ----


def land_forgotten(warehouse: KernelWarehouse, last: Run, at: int) -> int:
    """Lands half messages again that no run will look at: none has ended them, and none has left them open.

    The next run then decides about them, with all ops that have landed. Returns their number.
    """
    name, before = "half_messages", last.inputs["half_messages"]
    if last.slice.number < last.slice.of or warehouse.version(name) == NO_TABLE:
        return 0
    decided = warehouse.read("decisions").where("decision <> 'EARLY_OP'")
    known = decided.where(~F.col("open") | (F.col("run_id") == last.run_id)).select(HALF_KEY)
    new = warehouse.landed_between(name, before, warehouse.version(name)).select(HALF_KEY)
    rows = warehouse.read(name).join(known.unionByName(new).distinct(), HALF_KEY, "left_anti")
    with Kept(warehouse.stage) as kept:
        rows = kept.persisted(rows.withColumn("landed_at", F.lit(instant(at))))
        number = rows.count()
        if number:
            warehouse.commit(name, rows)
        return number
