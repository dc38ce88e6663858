"""The methods of a warehouse, which do what the jobs do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from halfop.api.calls import (
    number_of,
    refuse_failed_parts,
    refuse_no_count,
    refuse_no_instant,
    refuse_no_interval,
    refuse_text,
)
from halfop.api.ends import Hanging
from halfop.api.erases import Erasing
from halfop.api.lands import Lands
from halfop.audit.audit import audit
from halfop.columns.keys import Key
from halfop.examine.examine import examine
from halfop.explain.explain import Explained, explain
from halfop.follow import Cycle, CycleFailed, cycle, spark_answers
from halfop.frame.summary import Summary, WithRows
from halfop.html.page import refuse_no_folder
from halfop.report.report import report
from halfop.runs.finish import idle
from halfop.runs.reconcile import Request, preview, reconcile
from halfop.runs.standing import standing
from halfop.runs.verify import Difference, verify
from halfop.simulation.simulate import MOST_STEPS, Period, Simulated, checked, simulated
from halfop.sinks.topics import TopicTables
from halfop.sql.query import queried
from halfop.sql.views import make_views, names
from halfop.upkeep.maintain import Step, maintain
from halfop.upkeep.values import make_values
from halfop.warehouse.catalog import Catalog
from halfop.warehouse.kernel import files_of
from halfop.warehouse.lock import hold
from halfop.warehouse.session import WITHOUT_CODEGEN
from halfop.warehouse.where import equal

if TYPE_CHECKING:
    from halfop.api.plots import Plots

_NO_ALTAIR = "plots need altair: pip install 'halfop[plots]', or in a checkout ./spark-submit.sh setup --notebooks"
# VACUUM lists folders with so many tasks; its 10,000 are for stores far larger than a table of ours.
_FEW_TASKS = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "16"}


class Halfop(Lands, Hanging, Erasing):
    """A warehouse: methods that land, decide, end and read. Call one at a time; another thread opens its own.

    A method that works returns its job's `Summary`, with the fields of docs/jobs.md; those that only some jobs have are
    in `extra`. One that shows rows too returns both (`WithRows`). One whose work failed raises a `HalfopError`, also if
    only parts of it did (`PartsFailed`).
    """

    # ---- decide ----

    def reconcile(
        self,
        *,
        now: datetime | None = None,
        allow_future: bool = False,
        park_sinks: Sequence[str] = (),
        if_due: bool = False,
    ) -> Summary:
        """Runs the rules over what has landed; an interrupted run is finished first.

        `if_due`: there is no run if nothing has landed since the last one, and that left nothing open.

        >>> wh.reconcile().decisions["COMMIT"]
        {'PRODUCER': 1}
        """
        refuse_text(park_sinks=park_sinks)
        request = self._request(now, allow_future, park_sinks)
        with self._writing() as warehouse:
            catalog = Catalog.of(warehouse, self.settings)
            with hold(warehouse, "run", self.settings.lock.wait):
                nothing_due = idle(warehouse, self.settings, request.now) if if_due else None
                summary = nothing_due or reconcile(warehouse, request)
            return refuse_failed_parts(catalog.publish(summary))

    def preview(self, *, now: datetime | None = None, allow_future: bool = False) -> WithRows[Row]:
        """Counts what a run would decide now, and lists some of it (`reconcile --dry-run`); writes nothing.

        >>> wh.preview().summary.notes
        ['dry run: nothing was written']
        """
        request = self._request(now, allow_future)
        with self._writing() as there:
            return WithRows(*preview(there, request))

    def verify(self, run: int | Summary) -> WithRows[Difference]:
        """Computes a run again from what it read, and lists what is recorded otherwise (`reconcile --verify`).

        >>> wh.verify(1).rows
        []
        """
        with self._writing() as there:
            return WithRows(*verify(there, number_of(run)))

    def _request(self, now: datetime | None, allow_future: bool, park_sinks: Sequence[str] = ()) -> Request:
        refuse_no_instant(now=now)
        return Request(self.settings, now, self.settings.run.max_rows, allow_future, frozenset(park_sinks))

    def follow_once(self, land: Callable[[], Summary]) -> Cycle:
        """Lands, then runs the rules if that is due, whatever became of the landing; CycleFailed if a step failed.

        >>> cycle = wh.follow_once(lambda: wh.land_files(half=[halves], op=[ops]))
        >>> cycle.status
        0
        """
        ended = cycle(1, land, partial(self.reconcile, if_due=True), lambda: False, lambda: spark_answers(self.spark))
        if ended.status:
            raise CycleFailed(ended)
        return ended

    # ---- read ----

    def explain(self, key: Key | str) -> Explained:
        """Returns the life of a message, by BROKER/QUEUE/OFFSET or its UNIQ_KEY; printed, it is a timeline.

        >>> wh.explain("broker-a/0/1").summary.extra["messages"]
        {'broker-a/0/1': 'COMMITTED'}
        """
        with self._reading(**WITHOUT_CODEGEN) as warehouse, warehouse.for_few_rows():
            return explain(warehouse, self.settings, str(key))

    def topic(self, name: str) -> DataFrame:
        """Returns the committed messages of a real topic.

        >>> wh.topic("orders").select("keys").collect()
        [Row(keys='k1')]
        """
        with self._reading() as warehouse:
            return TopicTables.of(warehouse).rows(str(name))

    def decisions(self, run: int | Summary | None = None) -> DataFrame:
        """Returns what a run has decided; without a run, what all of them have."""
        with self._reading() as warehouse:
            return warehouse.read("decisions", None, None if run is None else equal("run_id", number_of(run)))

    def hanging(self) -> DataFrame:
        """Returns the transactions that are open or discarded, one a row.

        >>> wh.hanging().select("queue_offset", "decision").collect()
        [Row(queue_offset=2, decision='WAIT')]
        """
        with self._reading() as warehouse:
            return standing(warehouse).rows

    def views(self) -> None:
        """Makes a view of each table and of each topic, by its name, for SQL in this session: what is there now."""
        with self._reading() as warehouse:
            make_views(known := names(warehouse), known)

    def sql(self, statement: str, most: int | None = None) -> pa.Table:
        """Returns the rows of a statement that only reads, at most so many, over tables and topics by their names.

        It leaves no views in the session, and a view of yours by one of those names as it was.

        >>> wh.sql("SELECT decision, count(*) AS n FROM decisions GROUP BY ALL ORDER BY ALL").to_pylist()[0]
        {'decision': 'COMMIT', 'n': 1}
        """
        with self._reading() as warehouse:
            return queried(warehouse, statement, most)

    @cached_property
    def plot(self) -> Plots:
        """Plots of what runs have decided and of simulations, as charts of altair (`halfop[plots]`).

        >>> wh.plot.decided_by_run().to_dict()["title"]["text"]
        '1 messages have ended, 1 are open'
        """
        try:
            from halfop.api.plots import Plots  # noqa: PLC0415 - altair is there only where plots are wanted
        except ModuleNotFoundError as error:
            if error.name != "altair":
                raise
            raise ModuleNotFoundError(_NO_ALTAIR, name=error.name) from error
        return Plots(self._reading)

    # ---- look after ----

    def maintain(
        self, *, dry_run: bool = False, values: str | None = None, config: Path | None = None
    ) -> WithRows[Step]:
        """Joins small files, trims rows by retention, and removes files that no run needs; a step a row.

        `values` names a topic: nothing is done but to make its values again by its setting; if that infers the schema,
        it is written into the file `config`.

        >>> wh.maintain(dry_run=True).rows
        []
        """
        with self._writing(**_FEW_TASKS) as there:
            if values is not None:
                return WithRows(make_values(files_of(there, "maintain --values"), self.settings, values, config), [])
            return WithRows(*maintain(there, self.settings, dry_run))

    def examine(self, *, deep: bool = False, repair: bool = False) -> Summary:
        """Looks for damage in the tables' logs and files, and repairs it; status 3 if something is left to do.

        >>> wh.examine().extra["damaged"]
        []
        """
        with self._as_it_is() as there:
            return examine(files_of(there, "examine"), self.settings, deep, repair)

    # ---- find out ----

    def audit(self) -> Summary:
        """Compares the topics of a broker that has landed, and writes a row a finding to table `audit`."""
        with self._writing() as warehouse:
            catalog = Catalog.of(warehouse, self.settings)
            with warehouse.for_few_rows():
                summary = audit(warehouse, self.settings)
                return refuse_failed_parts(catalog.publish(summary))

    def simulate(
        self,
        what_if: Mapping[str, Sequence[object]],
        *,
        every: timedelta | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        max_steps: int = MOST_STEPS,
        out: str | Path | None = None,
    ) -> Simulated:
        """Plays what has landed under every combination of these values of the rules' settings; writes no table.

        >>> played = wh.simulate({"transaction_timeout": ["30s"]}, every=timedelta(seconds=10))
        >>> [outcome.name for outcome in played.outcomes]
        ['now', 'transaction_timeout=30s']
        """
        refuse_no_instant(since=since, until=until)
        refuse_no_interval(every=every)
        refuse_no_count(max_steps=max_steps)
        refuse_text(**what_if)
        to = None if out is None else Path(out)
        tried = checked(self.settings, what_if, to)
        with self._reading() as warehouse:
            return simulated(files_of(warehouse, "simulate"), tried, Period(since, until, every, max_steps), to)

    def report(self, path: str | Path, runs: int = 200) -> Summary:
        """Writes the state of the warehouse and what its newest runs did as one HTML page."""
        refuse_no_count(runs=runs)
        refuse_no_folder(Path(path))
        with self._reading() as warehouse:
            return report(warehouse, self.settings, Path(path), runs)
