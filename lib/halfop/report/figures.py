"""The figures of a report: the runs that it looks at, each with its counts, and the results of the queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pyspark.sql import Row

from halfop.columns.keys import millis
from halfop.planning.digest import Digest
from halfop.planning.plan import PLAN_APP
from halfop.planning.run import Clock, Run, clocks, late_clocks
from halfop.report.queries import Queries, Rows, at
from halfop.runs.record import last_run
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import between
from halfop.wording import refuse_empty

MOST_COLUMNS = 100  # of a plot over runs; more runs share columns
_COUNTED = ("half_messages", "op_messages")


class RunFigures(NamedTuple):
    """One run; its counts are not known until it has decided."""

    run_id: int
    now: datetime
    opened: datetime
    closed: datetime | None
    counts: Mapping[str, int]


@dataclass
class Figures:
    """The data of a report, on the runs `first` to `last`; `planned` is the last of them that has decided."""

    first: int = 1
    last: int = 0
    planned: int = 0
    run: Run | None = None
    closed: bool = True
    runs: list[RunFigures] = field(default_factory=list)
    late: list[Clock] = field(default_factory=list)
    tables: dict[str, int] = field(default_factory=dict)
    found: dict[str, Rows] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Rows:
        """The rows that `Queries` found under that name."""
        return self.found.get(name, [])

    @property
    def now(self) -> datetime | None:
        """The instant of the newest run."""
        return self.runs[-1].now if self.runs else None

    @property
    def per_column(self) -> int:
        """The number of runs that share a column of a plot."""
        return max(1, -(-(self.last - self.first + 1) // MOST_COLUMNS))

    @property
    def columns(self) -> list[list[RunFigures]]:
        """The runs by the column of a plot that they share."""
        columns: list[list[RunFigures]] = [[] for _ in range(self.first, self.last + 1, self.per_column)]
        for run in self.runs:
            columns[(run.run_id - self.first) // self.per_column].append(run)
        return columns

    @property
    def open_messages(self) -> Rows:
        """The messages that the last run left open, by age and reason."""
        return [row for row in self["open_by_age"] if row["decision"] != "EARLY_OP"]

    @property
    def counts(self) -> Counter[str]:
        """The rows of all runs that have decided, by decision and reason."""
        return sum((Counter(run.counts) for run in self.runs), Counter())

    def total(self, decision: str) -> int:
        """Returns how many rows of all runs that have decided have this decision."""
        return of_decision(self.counts, decision)


def of_decision(counts: Mapping[str, int], decision: str) -> int:
    """Returns how many rows have this decision, whatever their reason."""
    return sum(n for name, n in counts.items() if name.startswith(f"{decision}."))


def read_figures(warehouse: Warehouse, newest: int) -> Figures:
    """Returns the figures of the `newest` runs, worked out by a few Spark jobs side by side."""
    refuse_empty(warehouse)
    made = _window(warehouse, newest)
    since = made.runs[0].opened if made.first > 1 and made.runs else None
    queries = Queries(warehouse, made.first, made.planned, made.per_column, since)
    with warehouse.for_few_rows(), ThreadPoolExecutor(4) as pool:  # each waits more than it works
        counts = {name: pool.submit(warehouse.read(name).count) for name in _COUNTED}
        for rows in pool.map(lambda query: query(), queries.all):
            made.found |= rows
        made.tables = {name: count.result() for name, count in counts.items()}
    return made


def _window(warehouse: Warehouse, newest: int) -> Figures:
    opened = last_run(warehouse)
    if opened is None:
        return Figures()
    run, closed = opened
    first = max(1, run.run_id - newest + 1)
    planned, runs = warehouse.marker("decisions", PLAN_APP), _runs(warehouse, first, run.run_id)
    if not closed and planned >= run.run_id:
        runs[-1] = runs[-1]._replace(counts=Digest.of(warehouse, run.run_id).recorded)
    known = clocks(progress_rows(warehouse))
    late = late_clocks(known, run.now, run.settings.rules.transaction_check_interval)
    return Figures(first, run.run_id, planned, run, closed, runs, late)


def _runs(warehouse: Warehouse, first: int, last: int) -> list[RunFigures]:
    rows = warehouse.read("runs", where=between("run_id", first, last))
    found: dict[int, dict[str, Row]] = {}
    for row in rows.select("run_id", "event", millis("at"), millis("now"), "counts").collect():  # two a run
        found.setdefault(row["run_id"], {})[row["event"]] = row
    return [_run(run_id, events) for run_id, events in sorted(found.items()) if "OPENED" in events]


def _run(run_id: int, events: Mapping[str, Row]) -> RunFigures:
    opened, closed = events["OPENED"], events.get("CLOSED")
    now, since = at(opened["now"]), at(opened["at"])
    if closed is None:
        return RunFigures(run_id, now, since, None, {})
    return RunFigures(run_id, now, since, at(closed["at"]), closed["counts"])
