"""The fourth stage of a run: which join brings half messages and ops together, chosen by the counts.

A way gives back the half messages of a run, one row a transaction, each with the ops that name it. If no half message
has two, that is `op`, a struct or null; else it is `ops`, an array in (op offset, item) order. Ops whose half message
has not landed are rows without a `state`. Every way gives the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from pyspark.sql import DataFrame

from halfop.columns.keys import HALF_KEY
from halfop.planning.arrivals import Arrivals
from halfop.planning.by_workers import decided_by_workers, unfit
from halfop.planning.transactions import Transactions
from halfop.rules import ops as o
from halfop.warehouse.actions import DataFile


class Way(Enum):
    """The ways, the cheapest first."""

    WORKERS = "by workers"
    PACKED = "packed"
    ONE_TO_ONE = "one to one"
    GROUPED = "grouped"


@dataclass(frozen=True)
class Joined:
    """Half messages with their ops, by a way that was taken for a reason."""

    transactions: Transactions
    way: Way
    why: str
    rows: DataFrame
    files: Sequence[DataFile] = ()  # of decisions on other half messages, which workers have taken

    @property
    def arrivals(self) -> Arrivals:
        return self.transactions.arrivals

    @property
    def with_every_op(self) -> DataFrame:
        """The rows with all that is known of every op; the packed way keeps only what decides."""
        return _one_to_one(self.transactions) if self.way is Way.PACKED else self.rows

    def __str__(self) -> str:
        return f"{self.way.value}: {self.why}"


def joined(transactions: Transactions, by_workers: bool) -> Joined:
    """Joins half messages and ops by the cheapest way that fits; workers write what they decide."""
    found = decided_by_workers(transactions) if by_workers and unfit(transactions) is None else None
    if found is not None:
        why = "every op names one half message that is here; the plain ones are decided"
        rows = found.halves.join(found.named, HALF_KEY, "full")
        return Joined(transactions, Way.WORKERS, why, rows, found.files)
    way, why = chosen(transactions)
    return Joined(transactions, way, why, ROWS[way](transactions))


def chosen(transactions: Transactions) -> tuple[Way, str]:
    """The cheapest way that fits, and why none that is cheaper does."""
    counts = transactions.arrivals.counts
    if not transactions.plain:
        return Way.GROUPED, "copies or final messages count"
    if counts.ops.repeated:
        return Way.GROUPED, "a half message is named by several ops"
    if counts.headers:
        return Way.ONE_TO_ONE, "ops have headers to check"
    if not counts.all_met:
        return Way.ONE_TO_ONE, "ops name half messages that are not here"
    return Way.PACKED, "every op names a half message that is here, alone and without a header"


def _packed(transactions: Transactions) -> DataFrame:
    """No shuffle: ops in few bytes travel to the half messages.

    Fewer tasks, larger files; and Spark compiles what is below a coalesce apart, so that it stays small enough.
    """
    arrivals = transactions.arrivals
    rows = o.with_packed(transactions.halves, o.packed(transactions.named, arrivals.counts.ops.rows))
    return rows.coalesce(arrivals.warehouse.tasks(arrivals.counts.halves.rows))


def _one_to_one(transactions: Transactions) -> DataFrame:
    return transactions.halves.join(transactions.named, HALF_KEY, "full")


def _grouped(transactions: Transactions) -> DataFrame:
    return transactions.halves.join(o.by_half(transactions.named), HALF_KEY, "full")


ROWS: dict[Way, Callable[[Transactions], DataFrame]] = {
    Way.PACKED: _packed,
    Way.ONE_TO_ONE: _one_to_one,
    Way.GROUPED: _grouped,
}
