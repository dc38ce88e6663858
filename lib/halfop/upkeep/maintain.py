"""`maintain`: tables kept small, up to what the last closed run has read.

Nothing newer than that run's pins is rewritten or trimmed, so whatever comes next finds it as it was written. While a
run is open, or owed, its pins hold everything. So landings and runs may work meanwhile: a table's lock is held for that
table's commit alone, and a table that needs nothing costs a look at its log and its folder, no Spark job.
Through Spark Connect no lock is held, each look is a job, and compaction also takes what has landed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta, timezone
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, in_micros
from halfop.erasure.rows import removals, rows_left
from halfop.erasure.selection import closed_keys
from halfop.frame.summary import Summary
from halfop.frame.units import EPOCH
from halfop.planning.run import INPUTS, Run
from halfop.runs.record import last_run, refuse_held, wall_clock
from halfop.settings.model import Settings
from halfop.upkeep.layout import lacking_layouts
from halfop.warehouse.erasures import erased_keys
from halfop.warehouse.lock import hold
from halfop.warehouse.schema import literal, table_names
from halfop.warehouse.session import session_settings
from halfop.warehouse.spark_errors import SPARK_ERRORS, overtaken
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.upkeep import SMALL, TRIMMED_BEFORE, TRIMMED_RUNS, UPKEEP, TableUpkeep, trimmed_property
from halfop.warehouse.where import Where, at_most

# Rows that land, and that end; resumes are few.
LANDINGS = ("half_messages", "op_messages", "final_messages", "broker_discards")
_LANDED = {*INPUTS, "landed_files", "resumes"} - {"decisions"}
_MANY_FILES = 8
_MARGIN = timedelta(minutes=10)
LAYOUT, TRIM, COMPACT, VACUUM, ERASE = "layout", "trim", "compact", "vacuum", "erase"


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


@dataclass(frozen=True)
class Due:
    """A step, and the one commit that does it."""

    step: Step
    commit: Callable[[], object]  # returns False if there was nothing to do


def maintain(warehouse: Warehouse, settings: Settings, dry_run: bool = False) -> tuple[Summary, list[Step]]:
    """Compacts, trims and vacuums. Killed anywhere, the next call goes on: each step is one commit."""
    summary, steps = Summary("maintain"), []
    with session_settings(warehouse.spark, UPKEEP), summary.shown_in_failure():
        with hold(warehouse, "run", settings.lock.wait):  # a run that is at work now will have closed
            found = last_run(warehouse)
        refuse_held(found, "nothing was maintained")
        if found is None:
            summary.notes.append("nothing was maintained: no run has closed here yet")
        else:
            upkeep = Maintenance(warehouse, settings, found[0], dry_run, summary)
            for phase, each in ((COMPACT, upkeep.compact), (TRIM, upkeep.trim), (VACUUM, upkeep.vacuum)):
                with summary.phase(phase):
                    steps += each()
    if dry_run:
        summary.notes.append("dry run: nothing was changed")
    trimmed = [(step.table, step.rows or 0) for step in steps if step.what == TRIM]  # a table may have many topics
    summary.extra["rows_trimmed"] = {name: sum(n for of, n in trimmed if of == name) for name, _ in trimmed}
    if again := {step.table: step.rows or 0 for step in steps if step.what == ERASE}:
        summary.extra["erased"] = again
    summary.extra["files_joined"] = {step.table: step.files for step in steps if step.what == COMPACT}
    summary.extra["files_removed"] = {step.table: step.files for step in steps if step.what == VACUUM}
    return summary, steps


class Maintenance:
    """The steps over one warehouse whose last run has closed."""

    def __init__(self, warehouse: Warehouse, settings: Settings, run: Run, dry_run: bool, summary: Summary) -> None:
        self._warehouse, self._settings, self._run = warehouse, settings, run
        self._retention, self._dry, self._summary = settings.retention, dry_run, summary
        self._now = wall_clock()

    # ---- which tables, up to which version ----

    def _tables(self) -> Iterator[tuple[TableUpkeep, int]]:
        """Every table there is, with the version up to which it may be rewritten: of inputs the last run's pin."""
        topics = [f"topics/{row['directory']}" for row in self._warehouse.rows("topics_index")]
        for name in (*(each for each in table_names() if each != "real_topic"), *sorted(topics)):
            version = self._run.inputs[name] if name in INPUTS else self._warehouse.version(name)
            if version != NO_TABLE:
                yield TableUpkeep(self._warehouse, name), version

    # ---- compaction ----

    def compact(self) -> list[Step]:
        lacking = lacking_layouts(self._warehouse, self._settings.topics, self._summary)
        laid_out = self._done([Due(Step(each.table.name, LAYOUT), each.commit) for each in lacking])
        return [*laid_out, *self._each(self._compaction)]

    def _compaction(self, table: TableUpkeep, version: int) -> Due | None:
        """Compacts a table, but not again before the next run: files of the version that it pinned were removed."""
        if self._warehouse.replaced(table.name, version, self._warehouse.version(table.name)):
            return None
        small = table.small(version)
        if small.files < _MANY_FILES and not (table.clustered_by and small.bytes >= SMALL):
            return None
        return Due(Step(table.name, COMPACT, files=small.files, bytes=small.bytes), partial(table.compact, version))

    # ---- trimming ----

    def trim(self) -> list[Step]:
        self._set({table: table.lacking_guards for table, _ in self._tables()})
        return [*self._trim_waits(), *self._trim_landings(), *self._trim_topics(), *self._erase_again()]

    def _trim_waits(self) -> list[Step]:
        """Rows that carried open messages from run to run; what was asked, and what became of them, stays."""
        if self._retention.waits is None:
            return []
        kept = max(self._retention.waits, self._retention.verify)
        if not self._may_hold("runs", self._older("at", kept)):
            return []
        first = self._first_run_since(kept)
        old = f"open AND run_id < {first} AND decision IN ('WAIT', 'EARLY_OP')"
        return self._deleted("decisions", old, {TRIMMED_RUNS: str(first)})

    def _trim_landings(self) -> list[Step]:
        """Trims what landed before all that runs of the retention time have looked at, so all of it had ended."""
        kept = self._retention.landed
        if kept is None:
            return []
        before = self._older("landed_at", kept)
        there = [n for n in LANDINGS if self._run.inputs[n] != NO_TABLE and self._may_hold(n, before)]
        if not there:
            return []
        since = self._least_landing(kept)
        old = f"landed_at < CAST({literal(since)} AS TIMESTAMP)"
        return [step for name in there for step in self._deleted(name, old, {TRIMMED_BEFORE: since})]

    def _trim_topics(self) -> list[Step]:
        """Trims messages of topics that have a retention of their own, by the runs that committed them."""
        directories = {row["topic"]: f"topics/{row['directory']}" for row in self._warehouse.rows("topics_index")}
        done = list[Step]()
        for topic, kept in self._retention.topics.items():
            last = self._last_run_before(self._now - kept)
            for name, own in ((directories.get(topic), ""), ("real_topics", topic)):
                if last is not None and name is not None and self._warehouse.version(name) != NO_TABLE:
                    old = f"run_id <= {last} AND topic = {literal(topic)}"
                    since = f"{self._now - kept:%Y-%m-%d %H:%M:%S.%f}"
                    done += self._deleted(name, old, {trimmed_property(own): since}, at_most("run_id", last))
        return done

    def _last_run_before(self, instant: datetime) -> int | None:
        """The last run whose instant, that of the messages it committed, lies before this one."""
        runs = self._warehouse.read("runs").where(F.col("now") < instant)
        last: int | None = runs.agg(F.max("run_id")).collect()[0][0]
        return last

    def _erase_again(self) -> list[Step]:
        """Removes rows of erased messages that have come back, by a repair or a user's own pipeline, or were left.

        A message that is open again stays until it has ended.
        """
        keys = erased_keys(self._warehouse)
        rows = None if keys is None else rows_left(self._warehouse, keys)
        if rows is None:
            return []
        closed = closed_keys(self._warehouse, rows)
        found = removals(self._warehouse, closed, rows.join(closed, HALF_KEY, "left_semi"))
        return self._done([Due(Step(each.table, ERASE, rows=each.rows), each.commit) for each in found])

    def _older(self, column: str, kept: timedelta) -> Where:
        return at_most(column, in_micros(self._now - kept - EPOCH))

    def _may_hold(self, name: str, rows: Where) -> bool:
        """Returns whether the table may hold such rows: by files, a look at their bounds."""
        return self._warehouse.found(name, where=rows).files != 0

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
        own = looked_at.select(F.coalesce("half_landed_at", F.lit(EPOCH)).alias("landed_at"))
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

    def _deleted(self, name: str, old: str, said: dict[str, str], near: Where | None = None) -> list[Step]:
        rows = self._warehouse.read(name, None, near).where(old).count()
        if not rows:
            return []
        step = Step(name, TRIM, rows=rows)
        return self._done([Due(step, partial(TableUpkeep(self._warehouse, name).delete, old, said))])

    # ---- vacuum ----

    def vacuum(self) -> list[Step]:
        inputs = [table for table, _ in self._tables() if table.name in INPUTS]
        self._set({table: table.lacking_retention(self._retention.verify) for table in inputs})
        return self._each(self._vacuum)

    def _vacuum(self, table: TableUpkeep, version: int) -> Due | None:
        keep = max(self._retention.verify, self._retention.files, self._since_pins_changed(table.name, version))
        files = table.removable(keep)
        return Due(Step(table.name, VACUUM, files=files), partial(table.vacuum, keep)) if files else None

    def _since_pins_changed(self, name: str, version: int) -> timedelta:
        """The next run looks back at what the last one had pinned, however long ago that was."""
        removed = self._warehouse.first_removal(name, version, self._warehouse.version(name))
        if removed is None:
            return timedelta(0)
        return self._now - datetime.fromtimestamp(removed / 1000, timezone.utc) + _MARGIN

    # ---- what is due is done, a few tables at a time ----

    def _each(self, look: Callable[[TableUpkeep, int], Due | None]) -> list[Step]:
        """Looks at all tables, side by side, and does what is due."""
        with ThreadPoolExecutor(self._settings.topics.threads) as pool:
            found = list(pool.map(lambda each: look(*each), list(self._tables())))
        return self._done([each for each in found if each])

    def _set(self, lacking: dict[TableUpkeep, dict[str, str]]) -> None:
        """Sets properties that tables lack; where they lack none, nothing is done."""
        self._done(
            [Due(Step(table.name, TRIM), partial(table.set, props)) for table, props in lacking.items() if props]
        )

    def _done(self, due: Sequence[Due]) -> list[Step]:
        """Does the steps, as many at once as sinks are written; returns those that are done, in a dry run all."""
        if self._dry:
            return [each.step for each in due]
        done: list[Step] = []
        for lock in ("landing", "run", "audit", "ending"):
            steps = [each for each in due if _lock_of(each.step.table) == lock]
            threads = self._settings.topics.threads
            for start in range(0, len(steps), threads):
                with hold(self._warehouse, lock, self._settings.lock.wait), ThreadPoolExecutor(threads) as pool:
                    done += [each for each in pool.map(self._commit, steps[start : start + threads]) if each]
        return done

    def _commit(self, due: Due) -> Step | None:
        """Without a lock another process may come first: its commit stands, ours is for the next time."""
        try:
            return None if due.commit() is False else due.step
        except SPARK_ERRORS as error:
            if not overtaken(error):
                raise
            self._summary.notes.append(f"{due.step.table}: another commit came first; left for the next time")
            return None


def _lock_of(table: str) -> str:
    """The lock of those who write the table."""
    return {"audit": "audit", "endings": "ending"}.get(table) or ("landing" if table in _LANDED else "run")


def _landings_of_copies(rows: DataFrame) -> DataFrame:
    others = F.coalesce("copies_elsewhere.landed_at", F.array().cast("array<timestamp>"))
    return rows.select(F.explode(F.concat("copies.landed_at", others)).alias("landed_at"))
