"""Writes later, in the order of the runs, what they were closed without (--park-sink)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from halfop.frame.log import logged_with
from halfop.frame.summary import Summary
from halfop.planning.digest import Digest
from halfop.planning.run import Debt
from halfop.planning.stages import arrived, plan_of
from halfop.runs.finish import report_failed
from halfop.runs.record import recorded, refuse_old_slice
from halfop.runs.rejected import report_rejects
from halfop.sinks.targets import REJECTED
from halfop.sinks.write import Applied, Sinks
from halfop.warehouse.tables import Warehouse


def pay(warehouse: Warehouse, owed: Sequence[Debt], parked: Collection[str], summary: Summary) -> tuple[Debt, ...]:
    """Writes what earlier runs owe, except to sinks that are still parked; returns what is owed then.

    A sink holds runs in their order, so it must have this before a later run may write to it. If that fails, the
    summary shows it and has status 1.
    """
    due = [debt for debt in owed if debt.sink not in parked]
    for run_id, debts in groupby(due, key=lambda debt: debt.run_id):
        sinks = [debt.sink for debt in debts]
        with logged_with(run_id=run_id):
            applied = _write(warehouse, run_id, sinks)
            if applied.failed:
                report_failed(summary, applied.failed)
                return tuple(owed)
            if REJECTED in sinks:
                report_rejects(warehouse, run_id, summary)
        summary.notes.append(f"wrote what run {run_id} owed: {', '.join(sinks)}")
    return tuple(debt for debt in owed if debt.sink in parked)


def _write(warehouse: Warehouse, run_id: int, sinks: Collection[str]) -> Applied:
    run, digest = recorded(warehouse, run_id), Digest.of(warehouse, run_id)
    if REJECTED not in sinks:
        return Sinks(warehouse, run, digest, None).write(lambda sink: sink in sinks)
    refuse_old_slice(run)
    with arrived(warehouse, run) as arrivals:
        return Sinks(warehouse, run, digest, lambda: plan_of(arrivals)).write(lambda sink: sink in sinks)
