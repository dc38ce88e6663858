"""The queue clock of a message in each run that decided about it, from the versions that the run had pinned."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from halfop.columns.keys import Key
from halfop.frame.units import duration, exact
from halfop.planning.clocks import Clock, clocks
from halfop.planning.run import Run
from halfop.runs.record import found_run
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.spark_errors import READ_ERRORS, removed_file
from halfop.warehouse.tables import Warehouse

NO_TIME = "no time has passed for the queue yet"
_NOT_KEPT = "not kept any more"


@dataclass
class QueueClocks:
    """Reads each run that is asked for once."""

    warehouse: Warehouse
    _pinned: dict[int, tuple[Run, list[Clock]] | None] = field(default_factory=dict)

    def text(self, run_id: int, key: Key, born: int | None) -> str:
        """Returns the clock of the key's queue in a run and the age by it, as the rules of the run had them."""
        if run_id not in self._pinned:
            self._pinned[run_id] = self._read(run_id)
        pinned = self._pinned[run_id]
        if pinned is None:
            return _NOT_KEPT
        run, known = pinned
        return _shown(queue_clock(known, key, run.now), born)

    def _read(self, run_id: int) -> tuple[Run, list[Clock]] | None:
        found = found_run(self.warehouse, run_id)
        if found is None:
            return None
        run, _ = found
        try:
            return run, clocks(progress_rows(self.warehouse, run.inputs["landing_progress"]))
        except READ_ERRORS as error:
            if removed_file(error) is None:
                raise
            return None


def queue_clock(known: list[Clock], key: Key, now: datetime) -> datetime | None:
    """Returns the earlier of now and known until; None if no time has passed yet. A queue without a row is known."""
    mine = [clock for clock in known if clock[:2] == key[:2]]
    if not mine:
        return now
    return None if mine[0].known_until is None else min(now, mine[0].known_until)


def _shown(clock: datetime | None, born: int | None) -> str:
    if clock is None:
        return NO_TIME
    at = round(clock.timestamp() * 1000)
    return exact(at) + ("" if born is None else f", age {duration(at - born)}")
