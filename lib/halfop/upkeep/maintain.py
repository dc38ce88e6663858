"""`maintain`: tables kept small, up to what the last closed run has read.

Nothing newer than that run's pins is rewritten or trimmed, so whatever comes next finds it as it was written. While a
run is open, or owed, its pins hold everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta, timezone
from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.frame.errors import WarehouseBusy
from halfop.frame.summary import Summary
from halfop.planning.run import INPUTS, Run
from halfop.runs.record import last_run, wall_clock
from halfop.settings.model import Settings
from halfop.warehouse import trimmed
from halfop.warehouse.lock import hold
from halfop.warehouse.schema import table_names
from halfop.warehouse.session import session_settings
from halfop.warehouse.spark_errors import SPARK_ERRORS, overtaken
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.upkeep import UPKEEP, Upkeep

# Rows that land, and that end; resumes are few.
LANDINGS = ("half_messages", "op_messages", "final_messages", "broker_discards")
_MANY_FILES = 8
_MARGIN = timedelta(minutes=10)
_UNKNOWN = datetime(1970, 1, 1, tzinfo=timezone.utc)
TRIM, COMPACT, VACUUM = "trim", "compact", "vacuum"


@dataclass(frozen=True)
class Step:
    """A thing done to a table, or to be done."""

    table: str
    what: str
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None

    @property
    def cells(self) -> list[object]:
        return list(astuple(self))


def maintain(warehouse: Warehouse, settings: Settings, dry_run: bool = False) -> tuple[Summary, list[Step]]:
    """Compacts, trims and vacuums. Killed anywhere, the next call goes on: each step is one commit."""
    summary, steps = Summary("maintain"), []
    with ExitStack() as locks:
        locks.enter_context(session_settings(warehouse.spark, UPKEEP))
        for group in ("landing", "run", "audit"):
            locks.enter_context(hold(warehouse, group, settings.lock.wait))
        found = last_run(warehouse)
        if held := _held(found):
            raise WarehouseBusy(f"nothing was maintained: {held}")
        if found is None:
            summary.notes.append("nothing was maintained: no run has closed here yet")
        else:
            upkeep = Maintenance(warehouse, settings, found[0], dry_run, summary)
            for phase, each in ((COMPACT, upkeep.compact), (TRIM, upkeep.trim), (VACUUM, upkeep.vacuum)):
                with summary.phase(phase):
                    steps += each()
    if dry_run:
        summary.notes.append("dry run: nothing was changed")
    summary.extra["rows_trimmed"] = {step.table: step.rows for step in steps if step.what == TRIM}
    summary.extra["files_joined"] = {step.table: step.files for step in steps if step.what == COMPACT}
    summary.extra["files_removed"] = {step.table: step.files for step in steps if step.what == VACUUM}
    return summary, steps


def _held(found: tuple[Run, bool] | None) -> str:
    """Names of what still needs the versions that it has pinned."""
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


class Maintenance:
    """The steps over one warehouse whose last run has closed."""

    def __init__(self, warehouse: Warehouse, settings: Settings, run: Run, dry_run: bool, summary: Summary) -> None:
        self._warehouse, self._retention, self._run = warehouse, settings.retention, run
        self._threads, self._dry, self._summary = settings.topics.threads, dry_run, summary
        self._now = wall_clock()

    # ---- which tables, up to which version ----

    def _tables(self) -> Iterator[tuple[Upkeep, int]]:
        """Every table there is, with the version up to which it may be rewritten: of inputs the last run's pin."""
        topics = [f"topics/{row['directory']}" for row in self._warehouse.rows("topics_index")]
        for name in (*(each for each in table_names() if each != "real_topic"), *sorted(topics)):
            version = self._run.inputs[name] if name in INPUTS else self._warehouse.version(name)
            if version != NO_TABLE:
                yield Upkeep(self._warehouse, name), version

    # ---- compaction ----

    def compact(self) -> list[Step]:
        return self._each(self._compact)

    def _compact(self, table: Upkeep, version: int) -> Step | None:
        """Compacts a table, but not again before the next run: files of the version that it pinned were removed."""
        path = self._warehouse.path(table.name)
        if self._warehouse.log.takes_files_away(path, version, self._warehouse.version(table.name)):
            return None
        small = table.small(version)
        if small.files < _MANY_FILES or not (self._dry or self._done(table.name, partial(table.compact, version))):
            return None
        return Step(table.name, COMPACT, files=small.files, bytes=small.bytes)

    # ---- trimming ----

    def trim(self) -> list[Step]:
        if not self._dry:
            for table, _ in self._tables():
                self._done(table.name, table.guard)
        return [*self._trim_waits(), *self._trim_landings()]

    def _trim_waits(self) -> list[Step]:
        """Rows that carried open messages from run to run; what was asked, and what became of them, stays."""
        kept = self._retention.waits
        if kept is None:
            return []
        first = self._first_run_since(max(kept, self._retention.verify))
        old = F.col("open") & (F.col("run_id") < first) & F.col("decision").isin("WAIT", "EARLY_OP")
        return self._deleted("decisions", old, {trimmed.RUNS: str(first)})

    def _trim_landings(self) -> list[Step]:
        """Trims what landed before all that runs of the retention time have looked at, so all of it had ended."""
        if self._retention.landed is None:
            return []
        since = self._least_landing(self._retention.landed)
        old = F.col("landed_at") < F.lit(since).cast("timestamp")
        there = [name for name in LANDINGS if self._run.inputs[name] != NO_TABLE]
        return [step for name in there for step in self._deleted(name, old, {trimmed.BEFORE: since})]

    def _first_run_since(self, kept: timedelta) -> int:
        """The first run that closed within that time; else the last run, whose open rows the next one takes up."""
        closed = self._warehouse.read("runs").where((F.col("event") == "CLOSED") & (F.col("at") >= self._now - kept))
        first: int | None = closed.agg(F.min("run_id")).collect()[0][0]
        return self._run.run_id if first is None else min(first, self._run.run_id)

    def _least_landing(self, kept: timedelta) -> str:
        """The instant before which landings go, as text."""
        first = self._first_run_since(kept)
        looked_at = self._warehouse.read("decisions").where(
            (F.col("run_id") >= first) & (F.col("decision") != "EARLY_OP")
        )
        own = looked_at.select(F.coalesce("half_landed_at", F.lit(_UNKNOWN)).alias("landed_at"))
        others = [_landings_of_copies(looked_at), _landings_of_copies(self._discarded_with_copies())]
        new = [self._new(name).select("landed_at") for name in LANDINGS]
        edge = self._warehouse.frame([(self._now - kept,)], "landed_at TIMESTAMP")
        every = reduce(DataFrame.unionByName, [edge, own, *others, *new])
        least: str = every.agg(F.min("landed_at").cast("string")).collect()[0][0]
        return least

    def _new(self, name: str) -> DataFrame:
        """Files that have landed since the pins."""
        return self._warehouse.landed_between(name, self._run.inputs[name], self._warehouse.version(name))

    def _discarded_with_copies(self) -> DataFrame:
        """Discarded transactions of several copies: an op may still name one whose body is nowhere else."""
        rows = self._warehouse.read("decisions").where("NOT open AND copies IS NOT NULL")
        ended = rows.where(F.col("decision").isin("COMMIT", "ROLLBACK")).select(HALF_KEY)
        return rows.where("decision = 'DISCARD'").join(ended, HALF_KEY, "left_anti")

    def _deleted(self, name: str, old: Column, said: dict[str, str]) -> list[Step]:
        rows = self._warehouse.read(name).where(old).count()
        if not rows:
            return []
        done = self._dry or self._done(name, partial(Upkeep(self._warehouse, name).delete, old, said))
        return [Step(name, TRIM, rows=rows)] if done else []

    # ---- vacuum ----

    def vacuum(self) -> list[Step]:
        return self._each(self._vacuum)

    def _vacuum(self, table: Upkeep, version: int) -> Step | None:
        keep = max(self._retention.verify, self._retention.files, self._since_pins_changed(table.name, version))
        if table.name in INPUTS and not self._dry:
            self._done(table.name, partial(table.keep_versions, self._retention.verify))
        files = table.removable(keep)
        if not files or not (self._dry or self._done(table.name, partial(table.vacuum, keep))):
            return None
        return Step(table.name, VACUUM, files=files)

    def _since_pins_changed(self, name: str, version: int) -> timedelta:
        """The next run looks back at what the last one had pinned, however long ago that was."""
        removed = self._warehouse.log.first_removal(self._warehouse.path(name), version, self._warehouse.version(name))
        if removed is None:
            return timedelta(0)
        return self._now - datetime.fromtimestamp(removed / 1000, timezone.utc) + _MARGIN

    def _each(self, step: Callable[[Upkeep, int], Step | None]) -> list[Step]:
        """Runs it for all tables, side by side."""
        with ThreadPoolExecutor(self._threads) as pool:
            done = list(pool.map(lambda each: step(*each), list(self._tables())))
        return [each for each in done if each]

    def _done(self, name: str, step: Callable[[], None]) -> bool:
        """Without a lock another process may come first: its commit stands, ours is for the next time."""
        try:
            step()
        except SPARK_ERRORS as error:
            if not overtaken(error):
                raise
            self._summary.notes.append(f"{name}: another commit came first; left for the next time")
            return False
        return True


def _landings_of_copies(rows: DataFrame) -> DataFrame:
    others = F.coalesce("copies_elsewhere.landed_at", F.array().cast("array<timestamp>"))
    return rows.select(F.explode(F.concat("copies.landed_at", others)).alias("landed_at"))
