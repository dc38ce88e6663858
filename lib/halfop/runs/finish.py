"""From an opened run to a closed one: whatever steps it still lacks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql import functions as F

from halfop.frame.errors import is_transient
from halfop.frame.summary import Summary, add_counts
from halfop.planning.clocks import behind
from halfop.planning.digest import Counts, Digest
from halfop.planning.inputs import Inputs, pinned
from halfop.planning.plan import PLAN_APP, Plan
from halfop.planning.run import Debt, Run
from halfop.runs.record import write_closed
from halfop.sinks.sinks import REJECTED, SINK_TABLES, Sinks
from halfop.warehouse.spark_errors import log_failure
from halfop.warehouse.tables import Warehouse

log = logging.getLogger("halfop.reconcile")

_ALARMING = ("CONFLICT", "KEY_REUSED")
_OPEN = ("CHECK", "WAIT")


@dataclass(frozen=True)
class Arrived:
    """How many rows a run took in."""

    halves: int
    ops: int
    open_halves: int
    early_ops: int
    resumes: bool


def finish(warehouse: Warehouse, run: Run, summary: Summary, parked: Collection[str] = ()) -> None:
    """Plan, apply and close an opened run, and add what it did to the summary. It will owe what `parked` names."""
    summary.run_id = run.run_id
    with pinned(warehouse, run) as inputs:
        plan = Plan(inputs)
        with summary.phase("plan"):
            if warehouse.marker("decisions", PLAN_APP) < run.run_id:
                plan.commit()
            digest, arrived = Digest.of(warehouse, run.run_id), _arrived(inputs)
        with summary.phase("apply"):
            leftovers = run.slice.copies or _leftovers(digest, arrived)
            applied = Sinks(inputs, plan, digest, leftovers).write(lambda sink: sink not in parked)
        _report(summary, inputs, digest, arrived)
    if applied.failed:
        report_failed(summary, applied.failed)
        return
    if (leftovers or "REJECT" in digest.counts) and REJECTED not in applied.left_out:
        report_rejects(warehouse, run.run_id, summary)
    with summary.phase("close"):
        run = replace(run, owed=(*run.owed, *[Debt(run.run_id, sink) for sink in applied.left_out]))
        write_closed(warehouse, run, _flat(digest.counts), summary.seconds)
    _report_owed(summary, run.owed)
    what = ", ".join(f"{n} {decision}" for decision, n in sorted(digest.totals.items()))
    log.info("run %d closed: %s", run.run_id, what or "nothing to decide")


def _arrived(inputs: Inputs) -> Arrived:
    if inputs.run.slice.copies and inputs.run.slice.number > 1:
        return Arrived(0, 0, 0, 0, inputs.any_resumes)  # every slice looks at all; the first has told
    halves, named = inputs.meeting.halves, inputs.meeting.ops
    elsewhere = inputs.open_elsewhere
    return Arrived(
        halves=halves.arrived,
        ops=inputs.op_rows,
        open_halves=halves.rows - halves.arrived + elsewhere.get(False, 0),
        early_ops=named.rows - named.arrived + elsewhere.get(True, 0),
        resumes=inputs.any_resumes,
    )


def _leftovers(digest: Digest, arrived: Arrived) -> bool:
    """Whether there may be rejects that no decision shows: more rows came in than decisions account for."""
    totals = digest.totals
    totals.pop("EARLY_OP", 0)
    after_discard = sum(reasons.get("AFTER_DISCARD", 0) for reasons in digest.counts.values())
    decided = sum(totals.values()) - after_discard
    of_ops = arrived.ops + arrived.early_ops != digest.ops
    return arrived.resumes or of_ops or arrived.halves + arrived.open_halves != decided


def report_failed(summary: Summary, failed: Mapping[str, Exception]) -> None:
    lines = {sink: log_failure(log, f"sink {sink}", error) for sink, error in failed.items()}
    summary.add_failed("failed_sinks", lines, all(map(is_transient, failed.values())))


def _report_owed(summary: Summary, owed: Collection[Debt]) -> None:
    if owed:
        summary.extra["owed"] = [f"{debt.sink} of run {debt.run_id}" for debt in owed]


def _flat(counts: Counts) -> dict[str, int]:
    return {f"{decision}.{reason}": n for decision, reasons in counts.items() for reason, n in reasons.items()}


def _report(summary: Summary, inputs: Inputs, digest: Digest, arrived: Arrived) -> None:
    for decision, reasons in digest.counts.items():
        add_counts(summary.decisions.setdefault(decision, {}), reasons)
    totals = digest.totals
    written = {table: totals[decision] for decision, table in SINK_TABLES.items() if decision in totals}
    add_counts(summary.rows_written, {"decisions": sum(totals.values())} | written)
    add_counts(summary.rows_read, {"half_messages": arrived.halves, "op_messages": arrived.ops})
    add_counts(summary.rows_read, {"open": arrived.open_halves + arrived.early_ops})
    summary.extra.setdefault("runs", []).append(inputs.run.run_id)
    summary.extra["now"] = inputs.run.now
    add_counts(summary.extra.setdefault("files_looked_back_into", {}), inputs.looked_back)
    summary.extra["open_messages"] = sum(totals.get(decision, 0) for decision in _OPEN)
    summary.extra["oldest_open_seconds"] = _age(inputs.run.now, digest.oldest(_OPEN))
    summary.extra.pop("queues_behind", None)  # of a run that this call has finished before
    if behind := _queues_behind(inputs):
        summary.extra["queues_behind"] = behind


def _age(now: datetime, born: int | None) -> float | None:
    return None if born is None else max(0.0, round(now.timestamp() - born / 1000, 3))


def report_rejects(warehouse: Warehouse, run_id: int, summary: Summary) -> None:
    """Rejects by kind and reason; what tells of a double delivery or a rebuilt broker is said aloud."""
    mine = warehouse.read(REJECTED).where(F.col("run_id") == run_id)
    found = {f"{r['kind']}.{r['reason']}": r["count"] for r in mine.groupBy("kind", "reason").count().collect()}
    add_counts(summary.extra.setdefault("rejected", {}), found)
    add_counts(summary.rows_written, {"rejected": sum(found.values())})
    for what, n in found.items():
        if what.endswith(_ALARMING):
            log.warning("run %d: %d %s, see table rejected", run_id, n, what)


def _queues_behind(inputs: Inputs) -> Mapping[str, str]:
    late = behind(inputs.clocks, inputs.run.now, inputs.run.settings.rules.transaction_check_interval)
    return {
        f"{clock.broker_name}/{clock.queue_id}": "never" if clock.known_until is None else clock.known_until.isoformat()
        for clock in late
    }
