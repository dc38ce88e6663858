"""The stages of a run, and the last of them: the plan, all that the run decides, in one commit to `decisions`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.frame.errors import HalfopError
from halfop.planning.arrivals import Arrivals, arrivals
from halfop.planning.history import Transactions, history, transactions
from halfop.planning.run import Run
from halfop.rules import cases as c
from halfop.rules import halves as h
from halfop.rules import ops as o
from halfop.rules.questions import all_held_back, limited, over_limit, with_questions
from halfop.warehouse.disk import DataFile
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.rows import Kept, Rows
from halfop.warehouse.schema import table
from halfop.warehouse.spark_errors import READ_ERRORS, removed_file
from halfop.warehouse.table_files import files_by_spark, staging_folder
from halfop.warehouse.tables import Marker, Warehouse

PLAN_APP = "halfop.plan"


@dataclass(frozen=True)
class Plan:
    """All that follows from a run's pinned inputs. Evaluating it twice gives the same rows."""

    joined: Joined
    rows: DataFrame  # decisions without those that workers have written, and marks of what was not used (open: null)

    @property
    def decisions(self) -> DataFrame:
        return self.rows.where("open IS NOT NULL")

    @property
    def arrivals(self) -> Arrivals:
        return self.joined.arrivals

    @property
    def files(self) -> dict[str, int]:
        """The number of files of each table that the run looked back into."""
        return self.joined.transactions.history.files

    def __str__(self) -> str:
        stages = (self.arrivals, self.joined.transactions.history, self.joined.transactions, self.joined)
        return "\n".join(map(str, stages))

    @contextmanager
    def rejects(self) -> Iterator[DataFrame]:
        """Ops, halves and resumes that no decision shows."""
        rules, resumes = self.arrivals.rules, self.joined.transactions.resumes
        with Kept(self.arrivals.warehouse.stage) as kept:
            rows = kept.persisted(c.may_have_rejects(_cases(self.joined), rules))
            found = [c.rejected_ops(rows, rules), c.faulty_ops(self.arrivals.ops), c.reused_keys(rows)]
            if resumes is not None:
                found.append(c.refused_resumes(rows, resumes))
            yield reduce(DataFrame.unionByName, found)

    def commit(self) -> bool:
        """Writes open rows apart from ended ones: the next run reads the former alone.

        Returns whether the run has rejects that no decision shows; true also if only `rejects` can know.
        """
        arrivals = self.arrivals
        return self._written() or arrivals.faulty_ops or arrivals.resumes is not None

    def _written(self) -> bool:
        """Returns whether one of the rows is a mark; true also if Spark wrote the rows, and nobody knows."""
        run, warehouse = self.arrivals.run, self.arrivals.warehouse
        rows, marker = warehouse.rows_of("decisions", self.rows), Marker(PLAN_APP, run.run_id)
        if isinstance(warehouse, KernelWarehouse) and (self.joined.files or _becomes_files(warehouse, rows)):
            return self._written_as_files(warehouse, rows, marker)
        if isinstance(rows, DataFrame):
            warehouse.commit("decisions", self.decisions, marker)
            return True
        decided, has_marks = _decided(rows)
        warehouse.commit("decisions", decided, marker)
        return has_marks

    def _written_as_files(self, warehouse: KernelWarehouse, rows: Rows, marker: Marker) -> bool:
        with ExitStack() as staged:
            if isinstance(rows, DataFrame):
                folder = staging_folder(warehouse, marker.number)
                staged.callback(warehouse.files.remove, folder)
                files, left = files_by_spark(warehouse, "decisions", rows, folder)
            else:
                decided, left = _decided(rows)
                files = warehouse.files_from("decisions", decided)
            warehouse.commit_files("decisions", [*self.joined.files, *files], marker)
        return left


def _decided(rows: pa.Table) -> tuple[pa.Table, bool]:
    """The rows that are decisions, and whether the others, marks of rejects, are any."""
    return rows.filter(pc.is_valid(rows["open"])), rows["open"].null_count > 0


def _becomes_files(warehouse: KernelWarehouse, rows: Rows) -> bool:
    """Returns whether the rows are best written to files that are moved: elsewhere than on a local disk that copies."""
    is_local = warehouse.files.local(warehouse.root) is not None
    return not isinstance(rows, DataFrame) or (is_local and warehouse.takes_files("decisions"))


def plan(joined: Joined) -> Plan:
    """Decides about every row that a way gave back."""
    return Plan(joined, _rows(joined))


def _rows(joined: Joined) -> DataFrame:
    arrivals = joined.arrivals
    rows = with_questions(c.decision_rows(_limited(joined), arrivals.rules), arrivals.rules, arrivals.run.run_id)
    if arrivals.open is not None and arrivals.open.elsewhere is not None:
        carried = c.carried_over(arrivals.open.elsewhere, arrivals.rules)
        rows = rows.unionByName(carried, allowMissingColumns=True)
    if joined.transactions.superseded is not None:
        rows = rows.unionByName(joined.transactions.superseded, allowMissingColumns=True)
    run_id = F.lit(arrivals.run.run_id).cast("bigint")
    return rows.withColumn("run_id", run_id).select(table("decisions").names)


def _limited(joined: Joined) -> DataFrame:
    """The cases with line 10b. Questions of a sliced backlog are given in its last slice, which knows of all slices."""
    arrivals, rows = joined.arrivals, _cases(joined)
    if arrivals.run.slice.to_offset is not None:
        return all_held_back(rows, arrivals.rules)
    if not arrivals.may_exceed_a_limit:
        return rows
    if arrivals.here:  # else Spark would decide each row twice: for its group, and for itself
        rows = arrivals.kept.persisted(rows)
    return limited(rows, over_limit(rows, arrivals.rules))


def _cases(joined: Joined) -> DataFrame:
    arrivals, rows = joined.arrivals, joined.rows
    if arrivals.open is not None and arrivals.open.held_back is not None:
        held_back = h.nothing_else(h.carried(arrivals.open.held_back))
        rows = rows.unionByName(held_back, allowMissingColumns=True)
    return c.cases(rows, joined.transactions.resumes, arrivals.queues, arrivals.rules)


# Ops of which each task gets a copy, so that an open set that is large need not be sorted.
_MOST_SENT = 200_000


@dataclass(frozen=True)
class Joined:
    """Half messages with their ops."""

    transactions: Transactions
    rows: DataFrame

    @property
    def arrivals(self) -> Arrivals:
        return self.transactions.arrivals

    @property
    def files(self) -> Sequence[DataFile]:
        """Files of decisions on other half messages, which workers have taken."""
        return () if self.arrivals.taken is None else self.arrivals.taken.files

    def __str__(self) -> str:
        taken, counts = self.arrivals.taken, self.arrivals.counts
        others = f"{counts.halves.rows} half messages joined with {counts.ops.rows} ops"
        return f"grouped: {others}" if taken is None else f"by workers: {taken}; {others}"


def joined(transactions: Transactions) -> Joined:
    """Joins half messages and ops."""
    counts, ops = transactions.arrivals.counts, o.by_half(transactions.named)
    if transactions.plain and counts.all_met and counts.ops.rows <= _MOST_SENT:
        return Joined(transactions, transactions.halves.join(F.broadcast(ops), HALF_KEY, "left"))
    return Joined(transactions, transactions.halves.join(ops, HALF_KEY, "full"))


@contextmanager
def arrived(warehouse: Warehouse, run: Run, to_commit: bool = False) -> Iterator[Arrivals]:
    """The first stage of a run; what it and later stages keep at hand is released when the block ends.

    Of a plan that is to be committed, workers may write a large part.
    """
    with warehouse.for_few_rows(), naming_removed_files(run), Kept(warehouse.stage) as kept:
        yield arrivals(warehouse, run, kept, to_commit)


def plan_of(arrivals: Arrivals) -> Plan:
    """All further stages, up to the plan."""
    return plan(joined(transactions(history(arrivals))))


class InputRemoved(HalfopError):
    """Files of a pinned version have been removed."""


@contextmanager
def naming_removed_files(run: Run) -> Iterator[None]:
    """Makes the error of a removed file say what to do; nothing wrong is written, because the job fails."""
    try:
        yield
    except READ_ERRORS as error:
        file = removed_file(error)
        if file is None:
            raise
        pins = ", ".join(f"{name} {version}" for name, version in sorted(run.inputs.items()) if version >= 0)
        raise InputRemoved(
            f"VACUUM or log clean-up removed a file that run {run.run_id} reads: keep versions as long as a run may "
            "be open or is to be verified, by delta.deletedFileRetentionDuration and delta.logRetentionDuration\n"
            f"it reads tables as they were when it opened ({pins}): {file}\n"
            "if you can bring the file back (from a backup or a bucket's versions), the next start finishes the run"
        ) from error
