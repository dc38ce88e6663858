"""The methods of a warehouse, which do what the jobs do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from halfop.api.calls import refuse_no_zone, refuse_text, whole
from halfop.api.lands import Lands
from halfop.audit.audit import audit
from halfop.ending.standing import standing
from halfop.explain.explain import Explained, explain
from halfop.follow import Cycle, CycleFailed, cycle, spark_answers
from halfop.frame.summary import Summary
from halfop.report.report import report
from halfop.runs.finish import idle
from halfop.runs.reconcile import Request, reconcile
from halfop.simulation.simulate import MOST_STEPS, Period, Simulated, checked, simulated
from halfop.sinks.messages import topic_rows
from halfop.warehouse.catalog import Catalog
from halfop.warehouse.kernel import files_of
from halfop.warehouse.lock import hold
from halfop.warehouse.schema import OF_A_TOPIC, table_names
from halfop.warehouse.session import FOR_FEW_ROWS
from halfop.warehouse.where import equal


class Halfop(Lands):
    """A warehouse: methods that land, decide and read. Call one at a time; another thread opens its own.

    A method that works returns its job's `Summary`, with the fields of docs/jobs.md; those that only some jobs have are
    in `extra`. One whose work failed raises a `HalfopError`, also if only parts of it did (`PartsFailed`).
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
        refuse_no_zone(now)
        refuse_text(park_sinks=park_sinks)
        settings = self.settings
        request = Request(settings, now, settings.run.max_rows, allow_future, frozenset(park_sinks))
        with self._writing() as warehouse:
            catalog = Catalog.of(warehouse, settings)
            with hold(warehouse, "run", settings.lock.wait):
                summary = (idle(warehouse, settings, request.now) if if_due else None) or reconcile(warehouse, request)
            return whole(catalog.publish(summary))

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

    def explain(self, key: str) -> Explained:
        """Returns the life of a message, by BROKER/QUEUE/OFFSET or its UNIQ_KEY; printed, it is a timeline.

        >>> wh.explain("broker-a/0/1").summary.extra["messages"]
        {'broker-a/0/1': 'COMMITTED'}
        """
        with self._reading(**FOR_FEW_ROWS) as warehouse, warehouse.for_few_rows():
            return explain(warehouse, self.settings, key)

    def topic(self, name: str) -> DataFrame:
        """Returns the committed messages of a real topic.

        >>> wh.topic("orders").select("keys").collect()
        [Row(keys='k1')]
        """
        with self._reading() as warehouse:
            return topic_rows(warehouse, name)

    def decisions(self, run: int | None = None) -> DataFrame:
        """Returns what a run has decided; without a run, what all of them have."""
        with self._reading() as warehouse:
            return warehouse.read("decisions", None, None if run is None else equal("run_id", run))

    def hanging(self) -> DataFrame:
        """Returns the transactions that are open or discarded, one a row.

        >>> wh.hanging().select("queue_offset", "decision").collect()
        [Row(queue_offset=2, decision='WAIT')]
        """
        with self._reading() as warehouse:
            return standing(warehouse).rows

    def views(self) -> None:
        """Makes a view of each table, by its name, for SQL in this session. It shows what is there now."""
        with self._reading() as warehouse:
            for name in table_names():
                if name != OF_A_TOPIC:
                    warehouse.read(name).createOrReplaceTempView(name)

    # ---- examine ----

    def audit(self) -> Summary:
        """Compares the topics of a broker that has landed, and writes a row a finding to table `audit`."""
        with self._writing() as warehouse:
            catalog = Catalog.of(warehouse, self.settings)
            with warehouse.for_few_rows():
                summary = audit(warehouse, self.settings)
                return whole(catalog.publish(summary))

    def simulate(
        self,
        what_if: Mapping[str, Sequence[object]],
        *,
        every: timedelta | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        max_steps: int = MOST_STEPS,
        out: Path | None = None,
    ) -> Simulated:
        """Plays what has landed under every combination of these values of the rules' settings; writes no table.

        >>> played = wh.simulate({"transaction_timeout": ["30s"]}, every=timedelta(seconds=10))
        >>> [outcome.name for outcome in played.outcomes]
        ['now', 'transaction_timeout=30s']
        """
        refuse_no_zone(since, until)
        refuse_text(**what_if)
        tried = checked(self.settings, what_if, out)
        with self._reading() as warehouse:
            return simulated(files_of(warehouse, "simulate"), tried, Period(since, until, every, max_steps), out)

    def report(self, path: str | Path, runs: int = 200) -> Summary:
        """Writes the state of the warehouse and what its newest runs did as one HTML page."""
        with self._reading() as warehouse:
            return report(warehouse, self.settings, Path(path), runs)
