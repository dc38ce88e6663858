"""A run's stages, each made from the one before: arrivals → history → transactions → plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from halfop.frame.errors import HalfopError
from halfop.planning.arrivals import Arrivals, arrivals
from halfop.planning.history import history
from halfop.planning.plan import Plan, joined, plan
from halfop.planning.run import Run
from halfop.planning.transactions import transactions
from halfop.warehouse.rows import Kept
from halfop.warehouse.spark_errors import READ_ERRORS, removed_file
from halfop.warehouse.tables import Warehouse


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
