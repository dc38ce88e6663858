"""Finds whether a run would decide anything: who reconciles every few seconds need not record runs that do not."""

from __future__ import annotations

from dataclasses import replace

from halfop.frame.summary import Summary
from halfop.planning.run import INPUTS, Run, clocks
from halfop.runs.finish import late_queues
from halfop.runs.reconcile import Request
from halfop.runs.record import last_run, wall_clock
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.tables import Warehouse

# Time passes by landing_progress, and questions are delivered, but only for open messages.
_DECIDED_BY = [name for name in INPUTS if name not in ("landing_progress", "check_deliveries", "decisions")]


def idle(warehouse: Warehouse, request: Request) -> Summary | None:
    """Returns the summary of no run if nothing has landed since the last and nothing is open; None if one is due."""
    found = None if request.now else last_run(warehouse)  # a given instant is recorded
    if found is None or not _nothing_left(warehouse, *found):
        return None
    run = replace(found[0], now=wall_clock(), settings=request.settings)
    summary = Summary("reconcile", notes=[f"nothing has landed since run {run.run_id}, and it left nothing open"])
    late = late_queues(clocks(progress_rows(warehouse)), run)
    summary.extra = {"now": run.now, "runs": [], "open_messages": 0, "oldest_open_seconds": None}
    summary.extra |= {"queues_behind": late} if late else {}
    return summary


def _nothing_left(warehouse: Warehouse, last: Run, closed: bool) -> bool:
    if not closed or last.owed or last.left_open or last.slice.number < last.slice.of:
        return False
    return all(warehouse.version(name) == last.inputs[name] for name in _DECIDED_BY)
