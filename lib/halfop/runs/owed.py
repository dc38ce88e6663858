"""Writes later, in the order of the runs, what they were closed without (--park-sink)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from halfop.frame.errors import UsageError
from halfop.frame.log import logged_with
from halfop.frame.nearest import nearest
from halfop.frame.summary import Summary
from halfop.planning.digest import Digest
from halfop.planning.run import Debt
from halfop.planning.stages import arrived, plan_of
from halfop.runs.finish import report_failed, report_rejects
from halfop.runs.record import recorded
from halfop.sinks.targets import SINK_NAMES, WHOLE_TABLES
from halfop.sinks.write import Applied, Sinks
from halfop.warehouse.schema import REJECTED
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
    with arrived(warehouse, run) as arrivals:
        return Sinks(warehouse, run, digest, lambda: plan_of(arrivals)).write(lambda sink: sink in sinks)


_TOPIC = "topics/"


def known_form(name: str) -> str:
    """Returns the name of a table that a run writes; topics are only known when the warehouse is."""
    if name.startswith(_TOPIC) or name in SINK_NAMES:
        return name
    raise ValueError(f"{name!r} is none of {', '.join(SINK_NAMES)}{_near(name, SINK_NAMES)}")


def refuse_unknown_topics(warehouse: Warehouse, parked: Collection[str]) -> None:
    """Raises UsageError if a parked topic has no table, and no message for it has landed."""
    given = {name for name in parked if name.startswith(_TOPIC)}
    known = {f"{_TOPIC}{row['topic']}" for row in warehouse.rows("topics_index")} if given else set()
    if given <= known:
        return
    known |= _landed(warehouse)
    for name in sorted(given - known):
        near = _near(name, [*known, *WHOLE_TABLES])
        raise UsageError(f"--park-sink {name}: no message for this topic has landed{near}")


def _near(name: str, known: Collection[str]) -> str:
    close = nearest(name, known)
    return "" if close is None else f"; the nearest known sink is {close}"


def _landed(warehouse: Warehouse) -> set[str]:
    rows = warehouse.read("half_messages").where("real_topic IS NOT NULL").select("real_topic").distinct()
    return {f"{_TOPIC}{row['real_topic']}" for row in rows.collect()}
