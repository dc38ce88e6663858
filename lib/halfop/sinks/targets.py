"""The tables that a run writes to beside `decisions`, and those that get whole messages of one run."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame

from halfop.frame.errors import LostRows, UsageError
from halfop.frame.nearest import did_you_mean
from halfop.planning.digest import Digest
from halfop.planning.run import Run
from halfop.sinks.projections import HALF, PAYLOAD, About
from halfop.warehouse.lock import hold_rejected
from halfop.warehouse.rows import Stage
from halfop.warehouse.schema import REJECTED, TableSpec, comment, directories, table
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS
from halfop.warehouse.tables import NO_TABLE, Marker, Warehouse
from halfop.warehouse.upkeep import first_whole_run
from halfop.warehouse.where import Where, equal

log = logging.getLogger("halfop.reconcile")

SINK_APP = "halfop.sink"
SINK_TABLES = {"COMMIT": "topics", "DISCARD": "trans_check_max_time", "CHECK": "check_requests"}
WHOLE_TABLES = ("real_topics", "trans_check_max_time", "check_requests")
_MANY_NEW = 200
_SECONDS_A_TABLE, _FILES_A_TABLE = 0.03, 3  # on a local disk with two cores: bench/run topics
_COST = (
    "%d new topics: this run makes a table for each, which takes about %d s and %d files on a local disk, and more "
    "time elsewhere. Later runs put all topics into one table if they get topics.layout: single"
)
SINK_NAMES = ("topics/TOPIC", *WHOLE_TABLES, REJECTED)


@dataclass(frozen=True)
class Target:
    """A table that gets the `rows` messages decided so; of committed ones those of one topic, if each has its own."""

    decision: str
    path: str
    spec: TableSpec
    app: str
    rows: int
    topic: str = ""

    @property
    def name(self) -> str:
        """The name that the summary shows and --park-sink takes."""
        return f"topics/{self.topic}" if self.topic else self.path


def make_sinks(warehouse: Warehouse) -> None:
    """Makes empty tables for readers, and for who asks. If one can't be made, only a run with rows for it fails."""
    for name in ("trans_check_max_time", "check_requests", "check_deliveries"):
        with suppress(*OPERATIONAL_ERRORS):
            warehouse.make(name)
    with suppress(*OPERATIONAL_ERRORS), hold_rejected(warehouse):
        warehouse.make(REJECTED)


def targets(warehouse: Warehouse, run: Run, digest: Digest) -> list[Target]:
    """The tables that get messages of the run; new topics get their directories first."""
    found = _topics(warehouse, run, digest) if "COMMIT" in digest.counts else []
    others = [decision for decision in ("DISCARD", "CHECK") if decision in digest.counts]
    return found + [_whole_table(digest, decision, SINK_TABLES[decision]) for decision in others]


def _whole_table(digest: Digest, decision: str, name: str) -> Target:
    return Target(decision, name, table(name), f"{SINK_APP}.{name}", digest.totals[decision])


def _topics(warehouse: Warehouse, run: Run, digest: Digest) -> list[Target]:
    if run.settings.topics.layout == "single":
        return [_whole_table(digest, "COMMIT", "real_topics")]
    spec, app, rows = table("real_topic"), f"{SINK_APP}.topic", digest.topics
    return [
        Target("COMMIT", f"topics/{directory}", replace(spec, comment=comment(topic)), app, rows[topic], topic)
        for topic, directory in _directories(warehouse, run, digest).items()
    ]


def _directories(warehouse: Warehouse, run: Run, digest: Digest) -> dict[str, str]:
    """The run's topics and their directories; new ones are written to topics_index."""
    known = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
    new = directories(digest.topics, known)
    if len(new) >= _MANY_NEW:
        log.warning(_COST, len(new), math.ceil(len(new) * _SECONDS_A_TABLE), len(new) * _FILES_A_TABLE)
    if new:
        about = {"run_id": run.run_id, "created_at": run.now}
        rows = [{"topic": topic, "directory": directory} | about for topic, directory in sorted(new.items())]
        warehouse.commit("topics_index", rows, Marker(f"{SINK_APP}.topics_index", run.run_id))
    return {topic: (known | new)[topic] for topic in digest.topics}


def refuse_lost(warehouse: Warehouse, target: Target, run_id: int) -> None:
    """Raises LostRows if the table has lost a run's rows that the run, by its decisions, wrote there.

    What `decisions` has lost, too, `examine` lets a later run decide again: then the run's marker is all that is left.
    """
    try:
        warehouse.refuse_lost(target.path, run_id)
    except LostRows:
        if run_id < first_whole_run(warehouse) or Digest.of(warehouse, run_id).rows_for(target.decision, target.topic):
            raise


@dataclass(frozen=True)
class WholeMessages:
    """The tables are known by numbers."""

    warehouse: Warehouse
    run: Run
    digest: Digest
    due: Mapping[int, Target]
    stage: Stage  # of the bodies

    def read(self, name: str, version: int | None, where: Where | None) -> DataFrame:
        return self.stage.take(self.warehouse.found(name, version, where).rows)

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
    def a_table_a_topic(self) -> bool:
        return self.run.settings.topics.layout == "per_topic"

    @property
    def about(self) -> About:
        return About.of(self.run)


# ---- the committed messages of one topic, wherever runs have written them ----


_SINGLE = "real_topics"


def topic_rows(warehouse: Warehouse, topic: str) -> DataFrame:
    """Returns them: of the topic's own table, and of the table of all topics (`topics.layout`)."""
    known = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
    parts = [warehouse.read(f"topics/{known[topic]}")] if topic in known else []
    if warehouse.version(_SINGLE) != NO_TABLE:
        parts.append(warehouse.read(_SINGLE, None, equal("topic", topic)))
    if not parts:
        raise UsageError(f"{topic}: no message was committed to that topic{did_you_mean(topic, known)}")
    return reduce(DataFrame.unionByName, parts)
