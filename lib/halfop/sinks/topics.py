"""The committed messages of real topics, wherever runs have written them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from operator import itemgetter

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.frame.errors import UsageError
from halfop.frame.nearest import did_you_mean
from halfop.warehouse.schema import directories
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.where import equal

_SINGLE = "real_topics"


@dataclass(frozen=True)
class TopicTables:
    """The topics of a warehouse that have tables of their own, and whether there is the table of all topics.

    `topics.layout` says where a run writes; it may have changed, so that a topic's messages are in both.
    """

    warehouse: Warehouse
    directories: Mapping[str, str]
    has_single: bool

    @classmethod
    def of(cls, warehouse: Warehouse) -> TopicTables:
        """Returns them as they are now."""
        known = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
        return cls(warehouse, known, warehouse.version(_SINGLE) != NO_TABLE)

    def names(self) -> dict[str, str]:
        """Returns every topic with a directory: its own, or the one that it would have, by the run that it came in."""
        found = dict(self.directories)
        if self.has_single:
            rows = self.warehouse.read(_SINGLE).groupBy("topic").agg(F.min("run_id").alias("first")).collect()
            for _, of_a_run in groupby(sorted(rows, key=itemgetter("first")), itemgetter("first")):
                found |= directories({row["topic"] for row in of_a_run}, found)
        return found

    def rows(self, topic: str) -> DataFrame:
        """Returns a topic's messages; UsageError if there is none."""
        parts = [self.warehouse.read(f"topics/{self.directories[topic]}")] if topic in self.directories else []
        if self.has_single:
            parts.append(self.warehouse.read(_SINGLE, None, equal("topic", topic)))
        if topic not in self.directories and not (parts and parts[0].take(1)):
            raise UsageError(f"{topic}: no message was committed to that topic{did_you_mean(topic, self.names())}")
        return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
