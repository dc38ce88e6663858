"""Brings back what has been lost: each step needs the one before, and a second time changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.examine import landed, runs
from halfop.examine.logs import Aside, TableLog
from halfop.examine.runs import append_lost
from halfop.frame.summary import Summary
from halfop.frame.units import plural
from halfop.landing.progress import next_instant
from halfop.planning.digest import Digest
from halfop.planning.plan import PLAN_APP, arrived, plan_of
from halfop.planning.run import Run
from halfop.runs.record import found_run, last_run, still_owed
from halfop.settings.model import Settings
from halfop.sinks.messages import in_tables_columns, messages, of_target
from halfop.sinks.removed import removed
from halfop.sinks.targets import WHOLE_TABLES, Target, WholeMessages, targets
from halfop.sinks.write import rejects
from halfop.warehouse.damage import TableOnDisk
from halfop.warehouse.disk import NOT_PARQUET, LocalDisk
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold_rejected
from halfop.warehouse.parquet import arrow_schema, cast_to
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.rows import Kept
from halfop.warehouse.schema import REJECTED
from halfop.warehouse.tables import NO_TABLE, Marker, spec_of
from halfop.warehouse.where import equal

log = logging.getLogger("halfop.examine")


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
        yield from self._salvaged(damaged)
        yield from self._runs(tables, damaged)
        short = [name for name, version in pinned(self.warehouse).items() if self.warehouse.version(name) < version]
        self.aside.begin(short)  # before the pads hide it
        damaged = self.aside.unfinished
        yield from self._pads(tables)
        at = next_instant(self.warehouse)
        landed.list_lost(self.warehouse, damaged, at, summary)
        if PROGRESS in damaged:
            yield from _said("landing_progress: rows of {}", landed.bring_back_progress(self.warehouse, at))
        if lost := landed.lost_files(self.warehouse):
            landed.forget(self.warehouse, lost, at)
            yield f"landed_files: marks on {plural(len(lost), 'file')} whose rows are lost"
        if number := bring_back_index(self.warehouse, topics):
            yield f"topics_index: {number} rows"
        also = [run.run_id for run, closed in self._all_runs() if closed] if "decisions" in damaged else []
        for each in runs.bring_back_decisions(self.warehouse, topics, also):
            yield f"decisions: {each.rows} rows of run {each.run_id}"
        yield from self._sinks(damaged)
        yield from self._forgotten()

    def _salvaged(self, damaged: Collection[str]) -> Iterator[str]:
        for name in _TABLES:
            if name in damaged and (rows := _rows_without_commit(self.warehouse, name, self.root / name)):
                self.warehouse.commit(name, rows)
                yield f"{name}: {len(rows)} rows whose commit was lost"

    def _runs(self, tables: list[str], damaged: Collection[str]) -> Iterator[str]:
        if not {"decisions", "runs"} & {*tables}:
            return
        sunk = [name for name in tables if name.startswith("topics/") or name in (*WHOLE_TABLES, REJECTED)]
        left = _rows_without_commit(self.warehouse, "runs", self.root / "runs") if "runs" in damaged else []
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
        written, planned = RowsWritten(self.warehouse), self.warehouse.marker("decisions", PLAN_APP)
        for run, closed in self._all_runs():
            if closed or run.run_id <= planned:
                for each in bring_back_messages(self.warehouse, run, written):
                    if each.rows > each.without_body:
                        yield f"{each.table}: {each.rows - each.without_body} messages of run {run.run_id}"
            if closed and REJECTED in damaged and (number := bring_back_rejects(self.warehouse, run)):
                yield f"{REJECTED}: {number} rows of run {run.run_id}"

    def _forgotten(self) -> Iterator[str]:
        found = last_run(self.warehouse)
        if found is None:
            return
        run, closed = found
        seen = run if closed or run.run_id <= self.warehouse.marker("decisions", PLAN_APP) else _before(run)
        if number := runs.land_forgotten(self.warehouse, seen, next_instant(self.warehouse)):
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


# ---- rows whose commit was lost ----

# Tables whose rows follow from nothing else. A row of theirs that a killed job has not committed does no harm.
_TABLES = ("landing_progress", "resumes", "endings", "check_deliveries", "landed_files", "rejected", "erasures")


def _rows_without_commit(warehouse: KernelWarehouse, name: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of whole files that no version names, without those that have an equal one in the table."""
    found = [rows for path in _nameless(folder) if (rows := _read(warehouse, name, path)) is not None]
    known = {repr(row) for row in warehouse.rows(name)} if found else set()
    rows = {repr(row): row for part in found for row in part.to_pylist(maps_as_pydicts="strict")}
    return [row for text, row in rows.items() if text not in known]


def _nameless(folder: Path) -> list[Path]:
    """Files that no version has ever named. One that a version removed, as an erasure did, only waits for a VACUUM."""
    named = {Path(path).name for path in TableOnDisk(LocalDisk(), str(folder)).named()}
    return sorted(path for path in folder.glob("*.parquet") if path.name not in named)


def _read(warehouse: KernelWarehouse, name: str, path: Path) -> pa.Table | None:
    """The rows with the columns that the table has; None if the file is not whole."""
    try:
        rows = pq.read_table(path, partitioning=None)
    except NOT_PARQUET:
        return None
    schema = arrow_schema(warehouse.schema(name))
    columns = [
        cast_to(rows[f.name].combine_chunks(), f.type) if f.name in rows.column_names else pa.nulls(len(rows), f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


# ---- rows of topics, discards and questions: each is a projection of what its run decided, written once ----


_PLACES = {"COMMIT": ("half_queue_id", "half_queue_offset"), "DISCARD": ("queue_id", "queue_offset")}
_PLACES |= {"CHECK": ("half_queue_id", "tran_state_table_offset")}
_OF_REJECT = ["kind", "reason", "broker_name", "queue_id", "queue_offset", "item", "half_offset"]


@dataclass(frozen=True)
class Missing:
    """Messages of a run that a table lacks; `without_body`: of those, the ones that no half message is there for."""

    table: str
    run_id: int
    rows: int
    without_body: int = 0

    def __str__(self) -> str:
        return f"{self.table} lacks {self.rows} messages of run {self.run_id}"


class RowsWritten:
    """The number of rows of each run in each table, counted once."""

    def __init__(self, warehouse: KernelWarehouse) -> None:
        self._warehouse, self._counts = warehouse, dict[str, dict[int, int]]()

    def of(self, name: str, run_id: int) -> int:
        if name not in self._counts:
            rows = self._warehouse.read(name).groupBy("run_id").count().collect()
            self._counts[name] = {row["run_id"]: int(row["count"]) for row in rows}
        return self._counts[name].get(run_id, 0)


def bring_back_index(warehouse: KernelWarehouse, topics: Sequence[str]) -> int:
    """Writes the rows of `topics_index` that it lacks, from the topics' own tables; returns their number."""
    warehouse.make("topics_index")
    known = {f"topics/{row['directory']}" for row in warehouse.rows("topics_index")}
    rows = []
    for name in sorted(set(topics) - known):
        first = warehouse.read(name).orderBy("run_id").select("topic", "run_id", "committed_at").limit(1).collect()
        about = {"directory": name.partition("/")[2]}
        made = {"topic": "topic", "run_id": "run_id", "created_at": "committed_at"}
        rows += [about | {column: r[of] for column, of in made.items()} for r in first]
    warehouse.commit("topics_index", rows)
    return len(rows)


def missing(warehouse: KernelWarehouse, run: Run, written: RowsWritten) -> list[tuple[Target, Missing]]:
    """The tables that have fewer messages of a closed run than it decided, and were not erased or trimmed since."""
    digest = Digest.of(warehouse, run.run_id)
    owed = still_owed(warehouse, run.run_id)
    every = [target for target in targets(warehouse, run, digest, again=True) if target.name not in owed]
    counted = [(target, target.rows - written.of(target.path, run.run_id)) for target in every]
    lacking = [(t, few - removed(warehouse, t, run.run_id)) for t, few in counted if few > 0]
    return [(target, Missing(target.path, run.run_id, few)) for target, few in lacking if few > 0]


def bring_back_messages(warehouse: KernelWarehouse, run: Run, written: RowsWritten) -> list[Missing]:
    """Writes the messages that tables lack, each once, as far as their bodies are there."""
    done = []
    for target, few in missing(warehouse, run, written):
        number = _append_missing(warehouse, run, target)
        done.append(replace(few, without_body=max(few.rows - number, 0)))
    return done


def _append_missing(warehouse: KernelWarehouse, run: Run, target: Target) -> int:
    """The bodies are those of the newest version: they may have landed again since the run."""
    now = replace(run, inputs=dict(run.inputs) | {"half_messages": warehouse.version("half_messages")})
    whole = WholeMessages(warehouse, now, Digest.of(warehouse, run.run_id).of_any_landing, {0: target}, warehouse.stage)
    if target.unfit:
        raise target.unfit
    if warehouse.log.complete(warehouse.path(target.path), target.spec) is None:
        warehouse.log.create(warehouse.path(target.path), target.spec)
    queue, offset = _PLACES[target.decision]
    there = warehouse.read(target.path, where=equal("run_id", run.run_id))
    keys = there.select(F.col(offset).alias("queue_offset"), F.col(queue).alias("queue_id"), "broker_name")
    with Kept(warehouse.stage) as kept:
        rows = messages(whole).join(keys, HALF_KEY, "left_anti").dropDuplicates(HALF_KEY)
        rows = kept.persisted(of_target(in_tables_columns(rows, whole), whole, 0))
        number = rows.count()
        if number:
            append_lost(warehouse, target.path, rows, Marker(target.app, run.run_id))
        return number


def bring_back_rejects(warehouse: KernelWarehouse, run: Run) -> int:
    """Writes the rejects of a closed run that the table lacks; returns their number."""
    if warehouse.version(REJECTED) == NO_TABLE:
        return 0
    stage = warehouse.stage
    with arrived(warehouse, run) as arrivals, rejects(warehouse, run, plan_of(arrivals)) as rows, Kept(stage) as kept:
        there = warehouse.read(REJECTED).where(F.col("run_id") == run.run_id)
        same = [rows[c].eqNullSafe(there[c]) for c in _OF_REJECT]
        lacking = kept.persisted(rows.join(there, same, "left_anti"))
        number = lacking.count()
        if number:
            with hold_rejected(warehouse):
                warehouse.commit(REJECTED, lacking)
        return number
