"""A run's stages, each made from the one before: arrivals → history → transactions → way → plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from halfop.planning.arrivals import Arrivals, arrivals
from halfop.planning.history import history
from halfop.planning.plan import Plan, plan
from halfop.planning.removed import naming_removed_files
from halfop.planning.run import Run
from halfop.planning.transactions import transactions
from halfop.planning.way import joined
from halfop.warehouse.kept import Kept
from halfop.warehouse.tables import Warehouse


@contextmanager
def arrived(warehouse: Warehouse, run: Run, to_commit: bool = False) -> Iterator[Arrivals]:
    """The first stage of a run; what it and later stages keep at hand is released when the block ends.

    Of a plan that is to be committed, workers may write a large part.
    """
    with naming_removed_files(run), Kept() as kept:
        yield arrivals(warehouse, run, kept, to_commit)


def plan_of(arrivals: Arrivals) -> Plan:
    """All further stages, up to the plan."""
    return plan(joined(transactions(history(arrivals))))
