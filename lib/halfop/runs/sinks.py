"""What a run writes beside its decisions: each sink an idempotent projection of the plan, none waiting for another."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.rules.words import HALF_KEY
from halfop.runs.bodies import with_bodies
from halfop.runs.digest import Digest
from halfop.runs.inputs import Inputs
from halfop.runs.plan import Plan
from halfop.runs.projections import PAYLOAD, merged, projections
from halfop.runs.staging import TARGET, Target, write_staged
from halfop.warehouse.schema import table
from halfop.warehouse.topics import directories

_ROWS_A_TASK = 1_000_000
_MOST_FILES = 4_000
_SINK_APP = "halfop.sink"
SINK_TABLES = {"COMMIT": "topics", "DISCARD": "trans_check_max_time", "CHECK": "check_requests"}


class Sinks:
    """Writes what one planned run decided; `leftovers`: the plan may have rejects that no decision shows."""

    def __init__(self, inputs: Inputs, plan: Plan, digest: Digest, leftovers: bool) -> None:
        self._inputs, self._plan, self._digest, self._leftovers = inputs, plan, digest, leftovers
        self._run, self._warehouse = inputs.run, inputs.warehouse

    def write(self) -> dict[str, Exception]:
        """Write every sink that has something to write; returns those that failed."""
        return self._messages() | self._refused()

    # ---- whole messages: committed, given up, asked about ----

    def _messages(self) -> dict[str, Exception]:
        """One pass over the bodies, whatever became of them."""
        try:
            due = {n: target for n, target in enumerate(self._targets()) if self._marker(target) < self._run.run_id}
            if not due:
                return {}
            threads = self._run.settings.topics.threads
            return write_staged(self._warehouse, self._run.run_id, self._staged(due), due, threads)
        except Exception as error:
            return {"messages": error}

    def _staged(self, due: Mapping[int, Target]) -> DataFrame:
        decisions = sorted({target.decision for target in due.values()})
        payload = sorted({column for decision in decisions for column in PAYLOAD[decision]})
        rows = with_bodies(self._inputs, self._digest, decisions, ["decision", *payload])
        each = projections(self._run)
        columns = merged({decision: each[decision] for decision in decisions})
        tasks = self._tasks(sum(self._digest.totals[decision] for decision in decisions), len(due))
        return self._numbered(rows, due).coalesce(tasks).select(*columns, TARGET)

    def _numbered(self, rows: DataFrame, due: Mapping[int, Target]) -> DataFrame:
        """With the number of the table that a row goes to; rows of tables that have them already are left out."""
        given = [(target.decision, target.topic, n) for n, target in due.items()]
        numbers = self._warehouse.frame(given, f"decision STRING, to_topic STRING, {TARGET} INT")
        a_table_each = (F.col("decision") == "COMMIT") & F.lit(self._run.settings.topics.layout == "per_topic")
        rows = rows.withColumn("to_topic", F.when(a_table_each, F.col("real_topic")).otherwise(""))
        return rows.join(F.broadcast(numbers), ["decision", "to_topic"])

    def _tasks(self, rows: int, targets: int) -> int:
        """Every task writes a file a table: few tasks for large files, but every core busy in each round."""
        cores = int(self._warehouse.spark.sparkContext.defaultParallelism)
        rounds = math.ceil(rows / _ROWS_A_TASK / cores)
        return max(1, min(rounds * cores, _MOST_FILES // targets))

    def _marker(self, target: Target) -> int:
        return self._warehouse.marker(target.path, target.app)

    def _targets(self) -> list[Target]:
        """The tables that get messages."""
        found = self._topics() if "COMMIT" in self._digest.counts else []
        others = [decision for decision in ("DISCARD", "CHECK") if decision in self._digest.counts]
        return found + [self._whole_table(decision, SINK_TABLES[decision]) for decision in others]

    def _topics(self) -> list[Target]:
        if self._run.settings.topics.layout == "single":
            return [self._whole_table("COMMIT", "real_topics")]
        spec, app, rows = table("real_topic"), f"{_SINK_APP}.topic", self._digest.topics
        return [
            Target("COMMIT", f"topics/{directory}", spec, app, rows[topic], topic)
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

    def _refused(self) -> dict[str, Exception]:
        try:
            if self._leftovers or "REJECT" in self._digest.counts:
                self._rejects()
        except Exception as error:
            return {"rejected": error}
        return {}

    def _rejects(self) -> None:
        found = [("uniq_key ", "uniq_key"), (", group ", "producer_group"), (", real topic ", "real_topic")]
        parts = [F.concat(F.lit(label), F.coalesce(F.substring(c, 1, 300), F.lit("none"))) for label, c in found]
        decided = (F.col("run_id") == self._run.run_id) & (F.col("decision") == "REJECT")
        refused = self._warehouse.read("decisions").where(decided)
        halves = refused.select(F.lit("HALF").alias("kind"), "reason", *HALF_KEY, F.concat(*parts).alias("detail"))
        with self._plan.rejects() as others:
            rows = halves.unionByName(others) if self._leftovers else halves
            run_id = F.lit(self._run.run_id).cast("bigint")
            rows = rows.withColumns({"run_id": run_id, "rejected_at": F.lit(self._run.now)})
            self._warehouse.append_once("rejected", rows, f"{_SINK_APP}.rejected", self._run.run_id)
