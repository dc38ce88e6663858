"""Writes what follows from a plan: each sink an idempotent projection of it, and none waits for another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.frame.summary import add_counts
from halfop.planning.digest import Digest
from halfop.planning.plan import Plan, naming_removed_files
from halfop.planning.run import Run
from halfop.sinks.removed import refuse_lost
from halfop.sinks.staging import write_messages
from halfop.sinks.targets import SINK_TABLES, Target, WholeMessages, app_of, index_topics, targets
from halfop.warehouse.lock import hold_rejected
from halfop.warehouse.rows import Stage
from halfop.warehouse.schema import REJECTED, completed, table
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS, raise_mistake
from halfop.warehouse.tables import Marker, Warehouse
from halfop.warehouse.where import equal

_REJECTED_APP = app_of(REJECTED)
_REJECTS = Target("REJECT", REJECTED, table(REJECTED), _REJECTED_APP, rows=0)


@dataclass
class Applied:
    """The sinks that failed, those that the caller did not want and that still have to be written, rows written."""

    failed: dict[str, Exception] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    value_errors: dict[str, int] = field(default_factory=dict)
    without_values: list[str] = field(default_factory=list)  # topics that should have them


class Sinks:
    """Writes what one planned run decided.

    `plan` makes the run's plan, only when rejects are written; None if decisions show all rejects.
    """

    def __init__(self, warehouse: Warehouse, run: Run, digest: Digest, plan: Callable[[], Plan] | None) -> None:
        self._warehouse, self._run, self._digest, self._plan = warehouse, run, digest, plan

    def write(self, wanted: Callable[[str], bool]) -> Applied:
        """Writes every wanted sink that has something to write; one that fails stops no other."""
        result = Applied()
        self._messages(wanted, result)
        if self._plan or "REJECT" in self._digest.counts:
            self._rejected(wanted, result)
        return result

    def _messages(self, wanted: Callable[[str], bool], result: Applied) -> None:
        """One pass over the bodies serves every table that gets whole messages."""
        try:
            every = targets(self._warehouse, self._run, self._digest)
            index_topics(self._warehouse, self._run, [target for target in every if target.is_new])
            due = dict(enumerate(t for t in every if self._due(t, wanted, result)))
            if due:
                with naming_removed_files(self._run):
                    stage = Stage(self._warehouse.spark)  # bodies may be few whatever the run has looked at
                    whole = WholeMessages(self._warehouse, self._run, self._digest, due, stage)
                    result.failed.update(write_messages(whole))
                    result.value_errors.update(whole.value_errors)
                    result.without_values += sorted(whole.without_values)
                for target in due.values():
                    if target.name not in result.failed:
                        add_counts(result.rows, {SINK_TABLES[target.decision]: target.rows})
        except OPERATIONAL_ERRORS as error:
            raise_mistake(error)
            result.failed["messages"] = error

    def _rejected(self, wanted: Callable[[str], bool], result: Applied) -> None:
        if not self._due(_REJECTS, wanted, result):
            return
        try:
            self._write_rejects()
        except OPERATIONAL_ERRORS as error:
            raise_mistake(error)
            result.failed[REJECTED] = error

    def _write_rejects(self) -> None:
        plan = None if self._plan is None else self._plan()
        with rejects(self._warehouse, self._run, plan) as rows, hold_rejected(self._warehouse):
            self._warehouse.commit(REJECTED, rows, Marker(_REJECTED_APP, self._run.run_id))

    def _due(self, target: Target, wanted: Callable[[str], bool], result: Applied) -> bool:
        """Returns whether to write it now; one that is not wanted is left out unless it has been written before."""
        name = target.name
        try:
            due = (marker := self._warehouse.marker(target.path, target.app)) < self._run.run_id
            if not due and target is not _REJECTS:  # they may have been none
                refuse_lost(self._warehouse, target, marker)
        except OPERATIONAL_ERRORS as error:
            raise_mistake(error)
            due = not wanted(name)
            if wanted(name):
                result.failed[name] = error
        if due and not wanted(name):
            result.left_out.append(name)
        elif due and target.unfit:
            result.failed[name] = target.unfit
        return due and wanted(name) and not target.unfit


_NAMED = [("uniq_key ", "uniq_key"), (", group ", "producer_group"), (", real topic ", "real_topic")]


@contextmanager
def rejects(warehouse: Warehouse, run: Run, plan: Plan | None) -> Iterator[DataFrame]:
    """Half messages that the run rejected; with a plan also its ops, halves and resumes that no decision shows."""
    about = {"run_id": F.lit(run.run_id).cast("bigint"), "rejected_at": F.lit(run.now)}
    halves = _halves(warehouse, run)
    if plan is None:
        yield completed(REJECTED, halves.withColumns(about))
        return
    with plan.rejects() as others:
        yield completed(REJECTED, halves.unionByName(others, allowMissingColumns=True).withColumns(about))


def _halves(warehouse: Warehouse, run: Run) -> DataFrame:
    parts = [F.concat(F.lit(label), F.coalesce(F.substring(c, 1, 300), F.lit("(none)"))) for label, c in _NAMED]
    half_offset, detail = F.col("queue_offset").alias("half_offset"), F.concat(*parts).alias("detail")
    rows = warehouse.read("decisions", where=equal("run_id", run.run_id)).where(F.col("decision") == "REJECT")
    return rows.select(F.lit("HALF").alias("kind"), "reason", *HALF_KEY, half_offset, detail)
