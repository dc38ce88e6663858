"""The fourth stage of a run: half messages with all ops that name them, by one of two ways.

By workers, if they have decided the plain half messages: only the others are joined here. Grouped: all of them are.
What is joined is one row a transaction, with `ops` in (op offset, item) order; ops whose half message has not landed
are rows without a `state`. Both ways give the same decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.planning.arrivals import Arrivals
from halfop.planning.transactions import Transactions
from halfop.rules import ops as o
from halfop.warehouse.actions import DataFile

# Ops of which each task gets a copy, so that an open set that is large need not be sorted.
_MOST_SENT = 200_000


class Way(Enum):
    WORKERS = "by workers"
    GROUPED = "grouped"


@dataclass(frozen=True)
class Joined:
    """Half messages with their ops."""

    transactions: Transactions
    rows: DataFrame

    @property
    def arrivals(self) -> Arrivals:
        return self.transactions.arrivals

    @property
    def way(self) -> Way:
        return Way.GROUPED if self.arrivals.taken is None else Way.WORKERS

    @property
    def files(self) -> Sequence[DataFile]:
        """Files of decisions on other half messages, which workers have taken."""
        return () if self.arrivals.taken is None else self.arrivals.taken.files

    def __str__(self) -> str:
        taken, counts = self.arrivals.taken, self.arrivals.counts
        others = f"{counts.halves.rows} half messages joined with {counts.ops.rows} ops"
        return f"{self.way.value}: {others if taken is None else f'{taken}; {others}'}"


def joined(transactions: Transactions) -> Joined:
    """Joins half messages and ops."""
    counts, ops = transactions.arrivals.counts, o.by_half(transactions.named)
    if transactions.plain and counts.all_met and counts.ops.rows <= _MOST_SENT:
        return Joined(transactions, transactions.halves.join(F.broadcast(ops), HALF_KEY, "left"))
    return Joined(transactions, transactions.halves.join(ops, HALF_KEY, "full"))
