"""Brings back what has been lost: each step needs the one before, and a second time changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from halfop.examine import aside, decisions, landed, runs, sinks
from halfop.examine.aside import Aside
from halfop.examine.logs import TableLog
from halfop.frame.summary import Summary
from halfop.frame.units import plural
from halfop.landing.progress import next_instant
from halfop.planning.plan import PLAN_APP
from halfop.planning.run import Run
from halfop.runs.record import found_run, last_run
from halfop.settings.model import Settings
from halfop.sinks.targets import WHOLE_TABLES
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.schema import OF_A_TOPIC, REJECTED, table_names
from halfop.warehouse.tables import spec_of

log = logging.getLogger("halfop.examine")


def tables_there(root: Path) -> list[str]:
    """The tables whose folders are there: halfop's own, and a topic's each."""
    named = [name for name in table_names() if name != OF_A_TOPIC]
    topics = sorted((root / "topics").iterdir()) if (root / "topics").is_dir() else []
    return [name for name in [*named, *(f"topics/{each.name}" for each in topics)] if (root / name).is_dir()]


@dataclass(frozen=True)
class Repair:
    """The repair of a warehouse on a local disk. The caller holds all locks."""

    warehouse: KernelWarehouse
    settings: Settings
    root: Path
    aside: Aside

    def log_of(self, name: str) -> TableLog:
        return TableLog(self.root / name, self.aside, lambda: self._created(name))

    def _created(self, name: str) -> bytes:
        """The first commit of a new table."""
        with TemporaryDirectory(dir=self.root, prefix=".halfop-") as folder:
            self.warehouse.log.create(folder, spec_of(name))
            return (Path(folder) / "_delta_log" / f"{0:020}.json").read_bytes()

    def logs(self, tables: Collection[str]) -> None:
        """Makes the logs of damaged tables whole."""
        for name in sorted(tables):
            log.info("%s: its log is made whole", name)
            self.log_of(name).repair()

    def bring_back(self, tables: list[str], damaged: Collection[str], summary: Summary) -> Iterator[str]:
        """Writes again what follows from other tables; yields what was done, in words."""
        topics = [name for name in tables if name.startswith("topics/")]
        yield from self._rows_without_commit(damaged)
        yield from self._runs(tables, damaged)
        yield from self._pads(tables)
        at = next_instant(self.warehouse)
        landed.list_lost(self.warehouse, damaged, at, summary)
        yield from _said("landing_progress: rows of {}", landed.bring_back_progress(self.warehouse, at))
        if lost := landed.lost_files(self.warehouse):
            landed.forget(self.warehouse, lost, at)
            yield f"landed_files: marks on {plural(len(lost), 'file')} whose rows are lost"
        if number := sinks.bring_back_index(self.warehouse, topics):
            yield f"topics_index: {number} rows"
        also = [run.run_id for run, closed in self._all_runs() if closed] if "decisions" in damaged else []
        for each in decisions.bring_back(self.warehouse, topics, also):
            yield f"decisions: {each.rows} rows of run {each.run_id}"
        yield from self._sinks(damaged)
        yield from self._forgotten()

    def _rows_without_commit(self, damaged: Collection[str]) -> Iterator[str]:
        for name in aside.TABLES:
            if name in damaged and (number := aside.salvage(self.warehouse, name, self.root / name)):
                yield f"{name}: {number} rows whose commit was lost"

    def _runs(self, tables: list[str], damaged: Collection[str]) -> Iterator[str]:
        if not {"decisions", "runs"} & {*tables}:
            return
        sunk = [name for name in tables if name.startswith("topics/") or name in (*WHOLE_TABLES, REJECTED)]
        left = aside.rows_without_commit(self.warehouse, "runs", self.root / "runs") if "runs" in damaged else []
        done = runs.bring_back(self.warehouse, self.settings, sunk, left)
        yield from _said("runs: run {}", list(map(str, done)))

    def _pads(self, tables: list[str]) -> Iterator[str]:
        """Versions that a run has pinned stay what they were: a table that ends before gets commits without rows."""
        for name, version in pinned(self.warehouse).items():
            if version >= 0 and (name in tables or (self.root / name).exists()) and self.log_of(name).pad(version):
                yield f"{name}: its newest commits up to version {version} were missing"

    def _all_runs(self) -> list[tuple[Run, bool]]:
        found = (found_run(self.warehouse, run_id) for run_id in sorted(runs.by_run(self.warehouse)))
        return [each for each in found if each is not None]

    def _sinks(self, damaged: Collection[str]) -> Iterator[str]:
        written, planned = sinks.RowsWritten(self.warehouse), self.warehouse.marker("decisions", PLAN_APP)
        for run, closed in self._all_runs():
            if closed or run.run_id <= planned:
                for each in sinks.bring_back(self.warehouse, run, written):
                    if each.rows > each.without_body:
                        yield f"{each.table}: {each.rows - each.without_body} messages of run {run.run_id}"
            if closed and REJECTED in damaged and (number := sinks.bring_back_rejects(self.warehouse, run)):
                yield f"{REJECTED}: {number} rows of run {run.run_id}"

    def _forgotten(self) -> Iterator[str]:
        found = last_run(self.warehouse)
        if found is None:
            return
        run, closed = found
        seen = run if closed or run.run_id <= self.warehouse.marker("decisions", PLAN_APP) else _before(run)
        if number := decisions.land_forgotten(self.warehouse, seen, next_instant(self.warehouse)):
            yield f"half_messages: {number} rows landed again, of messages that no run would look at"


def _before(run: Run) -> Run:
    """Returns the run before one that has not decided yet."""
    return replace(run, run_id=run.run_id - 1, inputs=run.inputs_before)


def pinned(warehouse: KernelWarehouse) -> dict[str, int]:
    """The newest version of each input that a run has pinned."""
    found: dict[str, int] = {}
    for row in warehouse.rows("runs"):
        for name, version in dict(row["inputs"]).items():
            found[name] = max(version, found.get(name, -1))
    return found


def _said(text: str, of: list[str]) -> Iterator[str]:
    if of:
        yield text.format(", ".join(of))
