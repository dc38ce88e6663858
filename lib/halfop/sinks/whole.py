"""The work of one pass over the bodies: the whole messages that a run owes to some tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from halfop.planning.digest import Digest
from halfop.planning.run import Run
from halfop.sinks.projections import HALF, PAYLOAD, About
from halfop.sinks.targets import Target
from halfop.warehouse.tables import Warehouse

_MOST_FILES = 4_000


@dataclass(frozen=True)
class WholeMessages:
    """The tables are known by numbers."""

    warehouse: Warehouse
    run: Run
    digest: Digest
    due: Mapping[int, Target]

    @property
    def decisions(self) -> list[str]:
        return sorted({target.decision for target in self.due.values()})

    @property
    def payload(self) -> list[str]:
        """The columns of decisions that go into the tables."""
        return sorted({column for decision in self.decisions for column in PAYLOAD[decision]})

    @property
    def columns(self) -> list[str]:
        """The columns that the tables' rows are made of."""
        return [*HALF, "decision", *self.payload]

    @property
    def rows(self) -> int:
        return sum(self.digest.totals[decision] for decision in self.decisions)

    @property
    def tasks(self) -> int:
        """The number of tasks that write: each may write a file of each table."""
        return max(1, min(self.warehouse.tasks(self.rows), _MOST_FILES // len(self.due)))

    @property
    def a_table_a_topic(self) -> bool:
        return self.run.settings.topics.layout == "per_topic"

    @property
    def about(self) -> About:
        return About.of(self.run)
