"""A run as `runs` records it: what was pinned when it opened, and whether it has closed."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from halfop.errors import LostRows
from halfop.rules import VERSION
from halfop.settings import Settings
from halfop.warehouse.tables import Warehouse

OPEN_APP = "halfop.runs.open"
CLOSE_APP = "halfop.runs.close"
# Landing commits halves, then ops, then progress: pinned the other way round, a run never believes ops complete
# that it does not see.
INPUTS = (
    "landing_progress",
    "op_messages",
    "final_messages",
    "broker_discards",
    "half_messages",
    "resumes",
    "decisions",
)


@dataclass(frozen=True)
class Slice:
    """One range of half queue offsets of a backlog; `bounds` part the slices.

    `ops_repeat`: two op rows of the backlog share a key; `copies`: some of its half messages may be copies of others.
    So each slice must look at all of them.
    """

    number: int = 1
    bounds: tuple[int, ...] = ()
    ops_repeat: bool = False
    copies: bool = False

    @property
    def of(self) -> int:
        return len(self.bounds) + 1

    @property
    def from_offset(self) -> int | None:
        """The lowest offset, inclusive; None for the first slice."""
        return self.bounds[self.number - 2] if self.number > 1 else None

    @property
    def to_offset(self) -> int | None:
        """The highest offset, exclusive; None for the last slice."""
        return self.bounds[self.number - 1] if self.number < self.of else None


@dataclass(frozen=True)
class Debt:
    """A sink that a run was closed without, because the user parked it."""

    run_id: int
    sink: str


@dataclass(frozen=True)
class Run:
    run_id: int
    now: datetime
    inputs: Mapping[str, int]
    inputs_before: Mapping[str, int]
    settings: Settings
    slice: Slice = field(default_factory=Slice)
    rules_version: str = VERSION
    owed: tuple[Debt, ...] = ()
    decided: int = 0  # rows of `decisions`, known when it has closed


def wall_clock() -> datetime:
    return datetime.now(timezone.utc)


def last_run(warehouse: Warehouse) -> tuple[Run, bool] | None:
    """The run that opened last, and whether it has closed."""
    run_id = warehouse.marker("runs", OPEN_APP)
    if run_id < 0:
        return None
    events = _events(warehouse, run_id)
    closed = events.get("CLOSED")
    return closed or events["OPENED"], closed is not None


def recorded(warehouse: Warehouse, run_id: int) -> Run:
    """A run as it opened."""
    return _events(warehouse, run_id)["OPENED"]


def found_run(warehouse: Warehouse, run_id: int) -> tuple[Run, bool] | None:
    """Any run as it opened, and whether it has closed; None where there is none of that id."""
    if not 0 < run_id <= warehouse.marker("runs", OPEN_APP):
        return None
    events = _events(warehouse, run_id)
    return events["OPENED"], "CLOSED" in events


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
        inputs=row["inputs"],
        inputs_before=row["inputs_before"],
        settings=Settings.from_json(row["settings"]),
        slice=Slice(part["number"], tuple(part["bounds"]), part["ops_repeat"], part["copies"]),
        rules_version=row["rules_version"],
        owed=tuple(Debt(**debt) for debt in row["owed"]),
        decided=sum(row["counts"].values()),
    )


def write_opened(warehouse: Warehouse, run: Run) -> None:
    _write(warehouse, run, OPEN_APP, {"event": "OPENED", "counts": {}, "seconds": {}})


def write_closed(warehouse: Warehouse, run: Run, counts: Mapping[str, int], seconds: Mapping[str, float]) -> None:
    _write(warehouse, run, CLOSE_APP, {"event": "CLOSED", "counts": counts, "seconds": seconds})


def _write(warehouse: Warehouse, run: Run, app: str, told: Mapping[str, object]) -> None:
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
        **told,
    }
    warehouse.append_rows_once("runs", [row], app, run.run_id)
