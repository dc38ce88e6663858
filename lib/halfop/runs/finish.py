"""From an opened run to a closed one: whatever steps it still lacks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta

from pyspark.sql import Row
from pyspark.sql import functions as F

from halfop.runs.inputs import Inputs, pinned
from halfop.runs.plan import PLAN_APP, Plan
from halfop.runs.record import EPOCH, Run, write_closed
from halfop.runs.sinks import Sinks
from halfop.summary import Summary
from halfop.warehouse.tables import Warehouse

log = logging.getLogger("halfop.reconcile")

Counts = dict[str, dict[str, int]]
_MOST_QUEUES_NAMED = 50


def finish(warehouse: Warehouse, run: Run, summary: Summary) -> None:
    """Plan, apply and close an opened run, and add what it did to the summary."""
    summary.run_id = run.run_id
    with pinned(warehouse, run) as inputs:
        plan = Plan(inputs)
        with summary.phase("plan"):
            if warehouse.marker("decisions", PLAN_APP) < run.run_id:
                plan.commit()
            counts = _counts(warehouse, run)
        with summary.phase("apply"):
            totals = {decision: sum(reasons.values()) for decision, reasons in counts.items()}
            failed = Sinks(inputs, plan, totals, _leftovers(inputs, counts)).write()
        _report(summary, inputs, counts)
    if failed:
        summary.status = 1
        summary.extra["failed_sinks"] = {name: str(error).splitlines()[0][:300] for name, error in failed.items()}
        return
    with summary.phase("close"):
        write_closed(warehouse, run, _flat(counts), summary.seconds)
    log.info(
        "run %d closed: %s", run.run_id, ", ".join(f"{n} {d}" for d, n in sorted(totals.items())) or "nothing to do"
    )


def _counts(warehouse: Warehouse, run: Run) -> Counts:
    """The run's rows by decision and reason, read back from the plan, whoever committed it."""
    mine = warehouse.read("decisions").where(F.col("run_id") == run.run_id)
    counts: Counts = {}
    for row in mine.groupBy("decision", "reason").count().collect():
        counts.setdefault(row["decision"], {})[row["reason"] or "NONE"] = row["count"]
    return counts


def _leftovers(inputs: Inputs, counts: Counts) -> bool:
    """Whether there may be rejects that no decision shows: more rows came in than decisions account for."""
    sums = {decision: sum(reasons.values()) for decision, reasons in counts.items()}
    used = sums.get("COMMIT", 0) + sums.get("ROLLBACK", 0) + sums.get("EARLY_OP", 0)
    after_discard = sum(reasons.get("AFTER_DISCARD", 0) for reasons in counts.values())
    decided = sum(sums.values()) - sums.get("EARLY_OP", 0) - after_discard
    carried = inputs.open_rows.groupBy(F.col("decision") == "EARLY_OP").count().collect()
    early, still_open = (sum(row["count"] for row in carried if row[0] is is_op) for is_op in (True, False))
    ops, halves = inputs.ops.count() + early, inputs.arrived_halves.count() + still_open
    return ops != used or halves != decided or not inputs.resumes.isEmpty()


def _flat(counts: Counts) -> dict[str, int]:
    return {f"{decision}.{reason}": n for decision, reasons in counts.items() for reason, n in reasons.items()}


def _report(summary: Summary, inputs: Inputs, counts: Counts) -> None:
    for decision, reasons in counts.items():
        known = summary.decisions.setdefault(decision, {})
        for reason, n in reasons.items():
            known[reason] = known.get(reason, 0) + n
    summary.extra["looked_back"] = inputs.looked_back
    late = _late_queues(inputs)
    if late:
        summary.extra["queues_behind"] = late


def _late_queues(inputs: Inputs) -> Mapping[str, str]:
    """Queues whose clock is behind `now` by more than the check interval: their op log has not landed."""
    due = inputs.run.now - inputs.run.settings.rules.transaction_check_interval
    behind = F.col("known_until").isNull() | (F.col("known_until") < F.lit(due))
    rows = (
        inputs.queues.where(behind)
        .withColumn("until", F.unix_micros("known_until"))
        .limit(_MOST_QUEUES_NAMED)
        .collect()
    )
    return {f"{row['broker_name']}/{row['queue_id']}": _until(row) for row in rows}


def _until(row: Row) -> str:
    return "never" if row["until"] is None else (EPOCH + timedelta(microseconds=row["until"])).isoformat()
