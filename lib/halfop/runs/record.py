"""A run as `runs` records it: what was pinned when it opened, and whether it has closed."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.frame.errors import LostRows, UsageError, WarehouseBusy
from halfop.planning.run import INPUTS, Debt, Run, Slice
from halfop.settings.model import Settings
from halfop.warehouse.tables import NO_TABLE, Marker, Warehouse

OPEN_APP = "halfop.runs.open"
CLOSE_APP = "halfop.runs.close"
_OPEN = ("CHECK.", "WAIT.", "EARLY_OP.")


def wall_clock() -> datetime:
    return datetime.now(timezone.utc)


def last_run(warehouse: Warehouse) -> tuple[Run, bool] | None:
    """The run that opened last, and whether it has closed."""
    run_id = warehouse.marker("runs", OPEN_APP)
    if run_id < 0:
        return None
    has_closed = warehouse.marker("runs", CLOSE_APP) >= run_id
    events = _events(warehouse, run_id)
    closed = events.get("CLOSED")
    if has_closed and closed is None:  # to finish it again would write no row: its marker is there
        raise LostRows(warehouse.path("runs"), run_id)
    return closed or events["OPENED"], closed is not None


def refuse_held(found: tuple[Run, bool] | None, undone: str) -> None:
    """Raises WarehouseBusy, with what was not done, if the last run still needs the versions that it has pinned."""
    if held := _held(found):
        raise WarehouseBusy(f"{undone}: {held}")


def still_to_do(warehouse: Warehouse) -> list[str]:
    """Returns what the last run has not done yet, so that tables may lack its rows, and what does it."""
    held = _held(last_run(warehouse))
    return [held] if held else []


def unknown_hint(warehouse: Warehouse, undone: str) -> str:
    """Returns the hint of an error about messages that are not there: what may still bring them, and where to look."""
    return "; ".join([undone, *still_to_do(warehouse), "`explain KEY` shows what became of a message"])


def _held(found: tuple[Run, bool] | None) -> str:
    if found is None:
        return ""
    run, closed = found
    if not closed:
        return f"run {run.run_id} is open, the next reconcile finishes it"
    if run.slice.number < run.slice.of:
        return f"run {run.run_id} is slice {run.slice.number} of {run.slice.of}, the next reconcile does the others"
    if run.owed:
        owed = ", ".join(f"{debt.sink} of run {debt.run_id}" for debt in run.owed)
        return f"it is still owed: {owed}; reconcile without --park-sink writes it"
    return ""


def begun(warehouse: Warehouse) -> str:
    """The instant of the warehouse's first run: no other one has it, even if Delta gave their tables the same ids."""
    return str(warehouse.read("runs").agg(F.min(F.unix_micros("at"))).collect()[0][0])


def refuse_plan_of_another(warehouse: Warehouse, planned_in: str) -> None:
    """Raises UsageError if a plan was made where another first run was: the same half keys are other messages there."""
    if planned_in != begun(warehouse):
        raise UsageError(f"{warehouse.root}: the plan was made for another warehouse; plan again in this one")


def recorded(warehouse: Warehouse, run_id: int) -> Run:
    """A run as it opened."""
    return _events(warehouse, run_id)["OPENED"]


def found_run(warehouse: Warehouse, run_id: int) -> tuple[Run, bool] | None:
    """Any run as it opened, and whether it has closed; None if there is none of that id."""
    if not 0 < run_id <= warehouse.marker("runs", OPEN_APP):
        return None
    events = _events(warehouse, run_id)
    return events["OPENED"], "CLOSED" in events


def still_writing(warehouse: Warehouse, sink: str) -> list[Run]:
    """Returns the runs that may write to a sink before any other: one that is open, or has slices to come, and debts'.

    Each does so by the settings that it has recorded.
    """
    found = last_run(warehouse)
    if found is None:
        return []
    run, closed = found
    owed = [recorded(warehouse, debt.run_id) for debt in run.owed if debt.sink == sink]
    return owed if closed and run.slice.number == run.slice.of else [*owed, run]


def still_owed(warehouse: Warehouse, run_id: int) -> set[str]:
    """Returns the tables that a run was closed without, and that have not been written since."""
    last = _events(warehouse, warehouse.marker("runs", OPEN_APP))
    return {debt.sink for debt in last.get("CLOSED", last["OPENED"]).owed if debt.run_id == run_id}


def _events(warehouse: Warehouse, run_id: int) -> dict[str, Run]:
    found = {row["event"]: _run(row) for row in warehouse.rows("runs", run_id=run_id)}
    if "OPENED" not in found:
        raise LostRows(warehouse.path("runs"), run_id)
    return found


def _run(row: Mapping[str, Any]) -> Run:
    part = row["slice"]
    return Run(
        run_id=row["run_id"],
        now=row["now"],
        inputs=_pins(row["inputs"]),
        inputs_before=_pins(row["inputs_before"]),
        settings=Settings.from_json(row["settings"]),
        slice=Slice(part["number"], tuple(part["bounds"]), part["ops_repeat"]),
        rules_version=row["rules_version"],
        owed=tuple(Debt(**debt) for debt in row["owed"]),
        decided=sum(row["counts"].values()),
        asks=row["asks"] or {},
        delivered=row["counts_delivered"] or {},
        left_open=sum(n for name, n in row["counts"].items() if name.startswith(_OPEN)),
    )


def _pins(recorded: Mapping[str, int]) -> dict[str, int]:
    """The pinned versions; a run of an older version of halfop lacks the tables that came later."""
    return dict.fromkeys(INPUTS, NO_TABLE) | dict(recorded)


def write_opened(warehouse: Warehouse, run: Run) -> None:
    _write(warehouse, run, OPEN_APP, {"event": "OPENED", "counts": {}, "seconds": {}})


def write_closed(warehouse: Warehouse, run: Run, counts: Mapping[str, int], seconds: Mapping[str, float]) -> None:
    _write(warehouse, run, CLOSE_APP, {"event": "CLOSED", "counts": counts, "seconds": seconds})


def _write(warehouse: Warehouse, run: Run, app: str, event: Mapping[str, object]) -> None:
    row = {
        "run_id": run.run_id,
        "at": wall_clock(),
        "owner": f"{socket.gethostname()}:{os.getpid()}",
        "now": run.now,
        "inputs": run.inputs,
        "inputs_before": run.inputs_before,
        "slice": vars(run.slice) | {"bounds": list(run.slice.bounds)},
        "settings": run.settings.as_json(),
        "rules_version": run.rules_version,
        "owed": [vars(debt) for debt in run.owed],
        "asks": run.asks,
        "counts_delivered": run.delivered,
        **event,
    }
    warehouse.commit("runs", [row], Marker(app, run.run_id))


TABLE = "resumes"


def waiting(warehouse: Warehouse) -> DataFrame:
    """Returns the resumes that no run has read; a run that is open, or has slices to come, may still read them."""
    found = last_run(warehouse)
    before = NO_TABLE
    if found:
        run, closed = found
        all_taken = closed and run.slice.number == run.slice.of
        before = (run.inputs if all_taken else run.inputs_before)[TABLE]
    return warehouse.landed_between(TABLE, before, warehouse.version(TABLE))
