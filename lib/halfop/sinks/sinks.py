"""What a run writes beside its decisions: each sink an idempotent projection of the plan, none waiting for another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.planning.digest import Digest
from halfop.planning.plan import Plan
from halfop.planning.removed import naming_removed_files
from halfop.planning.run import Run
from halfop.sinks.bodies import with_bodies
from halfop.sinks.projections import PAYLOAD, merged, projections
from halfop.sinks.staging import TARGET, Target, write_staged
from halfop.warehouse.lock import hold_rejected
from halfop.warehouse.rejected import in_form
from halfop.warehouse.schema import table
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.topics import comment, directories

_MOST_FILES = 4_000
_SINK_APP = "halfop.sink"
_REJECTED_APP = f"{_SINK_APP}.rejected"
SINK_TABLES = {"COMMIT": "topics", "DISCARD": "trans_check_max_time", "CHECK": "check_requests"}
REJECTED = "rejected"
WHOLE_TABLES = ("real_topics", "trans_check_max_time", "check_requests")
SINK_NAMES = ("topics/TOPIC", *WHOLE_TABLES, REJECTED)


def make_sinks(warehouse: Warehouse) -> None:
    """Empty tables for readers. One that can't be made fails the run that has rows for it, and no other."""
    for name in ("trans_check_max_time", "check_requests"):
        with suppress(*OPERATIONAL_ERRORS):
            warehouse.make(name)
    with suppress(*OPERATIONAL_ERRORS), hold_rejected(warehouse):
        warehouse.make(REJECTED)


@dataclass
class Applied:
    """The sinks that failed, and those that the caller did not want and that still have to be written."""

    failed: dict[str, Exception] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


class Sinks:
    """Writes what one planned run decided; `plan` is needed where it may have rejects that no decision shows."""

    def __init__(self, warehouse: Warehouse, run: Run, digest: Digest, plan: Plan | None) -> None:
        self._warehouse, self._run, self._digest, self._plan = warehouse, run, digest, plan

    def write(self, wanted: Callable[[str], bool]) -> Applied:
        """Write every wanted sink that has something to write; one that fails stops no other."""
        result = Applied()
        self._messages(wanted, result)
        self._refused(wanted, result)
        return result

    # ---- whole messages: committed, given up, asked about ----

    def _messages(self, wanted: Callable[[str], bool], result: Applied) -> None:
        """One pass over the bodies, whatever became of them."""
        try:
            due = dict(enumerate(t for t in self.targets() if self._due(t.name, t.path, t.app, wanted, result)))
            if due:
                with naming_removed_files(self._run):
                    result.failed.update(self._write_staged(due))
        except OPERATIONAL_ERRORS as error:
            result.failed["messages"] = error

    def _write_staged(self, due: Mapping[int, Target]) -> dict[str, Exception]:
        threads = self._run.settings.topics.threads
        return write_staged(self._warehouse, self._run.run_id, self.messages(due), due, threads)

    def _due(self, name: str, path: str, app: str, wanted: Callable[[str], bool], result: Applied) -> bool:
        """Whether to write it now; one that is not wanted is left out unless it has been written before."""
        try:
            due = (marker := self._warehouse.marker(path, app)) < self._run.run_id
            if not due and path != REJECTED:  # its rejects may have been none
                self._warehouse.refuse_lost(path, marker)
        except OPERATIONAL_ERRORS as error:
            due = not wanted(name)
            if wanted(name):
                result.failed[name] = error
        if due and not wanted(name):
            result.left_out.append(name)
        return due and wanted(name)

    def messages(self, due: Mapping[int, Target]) -> DataFrame:
        """The rows of these tables, each with its table's number."""
        decisions = sorted({target.decision for target in due.values()})
        payload = sorted({column for decision in decisions for column in PAYLOAD[decision]})
        rows = with_bodies(self._warehouse, self._run, self._digest, decisions, ["decision", *payload])
        each = projections(self._run)
        columns = merged({decision: each[decision] for decision in decisions})
        rows_due = sum(self._digest.totals[decision] for decision in decisions)
        tasks = max(1, min(self._warehouse.tasks(rows_due), _MOST_FILES // len(due)))
        return self._numbered(rows, due).coalesce(tasks).select(*columns, TARGET)

    def _numbered(self, rows: DataFrame, due: Mapping[int, Target]) -> DataFrame:
        """With the number of the table that a row goes to; rows of tables that have them already are left out."""
        given = [(target.decision, target.topic, n) for n, target in due.items()]
        numbers = self._warehouse.frame(given, f"decision STRING, to_topic STRING, {TARGET} INT")
        a_table_each = (F.col("decision") == "COMMIT") & F.lit(self._run.settings.topics.layout == "per_topic")
        rows = rows.withColumn("to_topic", F.when(a_table_each, F.col("real_topic")).otherwise(""))
        return rows.join(F.broadcast(numbers), ["decision", "to_topic"])

    def targets(self) -> list[Target]:
        """The tables that get messages."""
        found = self._topics() if "COMMIT" in self._digest.counts else []
        others = [decision for decision in ("DISCARD", "CHECK") if decision in self._digest.counts]
        return found + [self._whole_table(decision, SINK_TABLES[decision]) for decision in others]

    def _topics(self) -> list[Target]:
        if self._run.settings.topics.layout == "single":
            return [self._whole_table("COMMIT", "real_topics")]
        spec, app, rows = table("real_topic"), f"{_SINK_APP}.topic", self._digest.topics
        return [
            Target("COMMIT", f"topics/{directory}", replace(spec, comment=comment(topic)), app, rows[topic], topic)
            for topic, directory in self._directories().items()
        ]

    def _whole_table(self, decision: str, name: str) -> Target:
        return Target(decision, name, table(name), f"{_SINK_APP}.{name}", self._digest.totals[decision])

    def _directories(self) -> dict[str, str]:
        """The run's topics and their directories; new ones get theirs in topics_index first."""
        known = {row["topic"]: row["directory"] for row in self._warehouse.rows("topics_index")}
        new = directories(self._digest.topics, known)
        if new:
            about = {"run_id": self._run.run_id, "created_at": self._run.now}
            rows = [{"topic": topic, "directory": directory} | about for topic, directory in sorted(new.items())]
            self._warehouse.append_rows_once("topics_index", rows, f"{_SINK_APP}.topics_index", self._run.run_id)
        return {topic: (known | new)[topic] for topic in self._digest.topics}

    # ---- refused ----

    def _refused(self, wanted: Callable[[str], bool], result: Applied) -> None:
        if not (self._plan or "REJECT" in self._digest.counts):
            return
        if not self._due(REJECTED, REJECTED, _REJECTED_APP, wanted, result):
            return
        try:
            self._rejects()
        except OPERATIONAL_ERRORS as error:
            result.failed[REJECTED] = error

    def _rejects(self) -> None:
        with self.refused() as rows, hold_rejected(self._warehouse):
            self._warehouse.append_once(REJECTED, rows, _REJECTED_APP, self._run.run_id)

    @contextmanager
    def refused(self) -> Iterator[DataFrame]:
        """Half messages that were refused, and what no decision shows."""
        found = [("uniq_key ", "uniq_key"), (", group ", "producer_group"), (", real topic ", "real_topic")]
        parts = [F.concat(F.lit(label), F.coalesce(F.substring(c, 1, 300), F.lit("none"))) for label, c in found]
        decided = (F.col("run_id") == self._run.run_id) & (F.col("decision") == "REJECT")
        refused = self._warehouse.read("decisions").where(decided)
        half_offset = F.col("queue_offset").alias("half_offset")
        halves = refused.select(
            F.lit("HALF").alias("kind"), "reason", *HALF_KEY, half_offset, F.concat(*parts).alias("detail")
        )
        run = {"run_id": F.lit(self._run.run_id).cast("bigint"), "rejected_at": F.lit(self._run.now)}
        if self._plan is None:
            yield in_form(halves.withColumns(run))
            return
        with self._plan.rejects() as others:
            yield in_form(halves.unionByName(others, allowMissingColumns=True).withColumns(run))
