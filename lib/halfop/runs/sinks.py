"""What a run writes beside its decisions: each sink an idempotent projection of the plan, none waiting for another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.rocketmq import names
from halfop.rules.words import HALF_KEY
from halfop.runs.bodies import with_bodies
from halfop.runs.digest import Digest
from halfop.runs.inputs import Inputs
from halfop.runs.plan import Plan
from halfop.runs.staging import TOPIC_NUMBER, TopicWrite, side_by_side, write_topics
from halfop.warehouse.schema import table
from halfop.warehouse.topics import directories

_ROWS_A_FILE = 250_000
_MOST_FILES = 4_000
_SINK_APP = "halfop.sink"
SINK_TABLES = {"COMMIT": "topics", "DISCARD": "trans_check_max_time", "CHECK": "check_requests"}


class Sinks:
    """Writes what one planned run decided; `leftovers`: the plan may have rejects that no decision shows."""

    def __init__(self, inputs: Inputs, plan: Plan, digest: Digest, leftovers: bool) -> None:
        self._inputs, self._plan, self._digest, self._leftovers = inputs, plan, digest, leftovers
        self._run, self._warehouse = inputs.run, inputs.warehouse
        self._now = F.lit(inputs.run.now)

    def write(self) -> dict[str, Exception]:
        """Write every sink that has something to write; returns those that failed."""
        layout = self._run.settings.topics.layout
        tasks: dict[str, tuple[bool, Callable[[], dict[str, Exception] | None]]] = {
            "topics": (self._any("COMMIT"), self._one_table if layout == "single" else self._table_a_topic),
            "trans_check_max_time": (self._any("DISCARD"), self._discards),
            "check_requests": (self._any("CHECK"), self._requests),
            "rejected": (self._any("REJECT") or self._leftovers, self._rejects),
        }
        due = {name: task for name, (wanted, task) in tasks.items() if wanted}
        return _each(due)

    def _any(self, decision: str) -> bool:
        return decision in self._digest.counts

    def _decided(self, decision: str) -> DataFrame:
        mine = (F.col("run_id") == self._run.run_id) & (F.col("decision") == decision)
        return self._warehouse.read("decisions").where(mine)

    def _with_bodies(self, decision: str, payload: list[str]) -> DataFrame:
        return with_bodies(self._inputs, self._digest, decision, payload)

    # ---- committed messages ----

    def _committed(self) -> DataFrame:
        rows = self._with_bodies("COMMIT", ["op_queue_offset"])
        return rows.select(
            F.col("real_topic").alias("topic"),
            F.col("real_queue_id").alias("queue_id"),
            *["body", "flag", "tags", "keys"],
            _committed_flag().alias("sys_flag"),
            *["born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times"],
            F.col("commit_log_offset").alias("prepared_transaction_offset"),
            F.col("uniq_key").alias("transaction_id"),
            _delivered_properties().alias("properties"),
            "broker_name",
            F.col("queue_id").alias("half_queue_id"),
            F.col("queue_offset").alias("half_queue_offset"),
            "op_queue_offset",
            F.lit(self._run.run_id).cast("bigint").alias("run_id"),
            self._now.alias("committed_at"),
        )

    def _one_table(self) -> None:
        self._warehouse.make("real_topics")
        self._append("real_topics", self._committed())

    def _table_a_topic(self) -> dict[str, Exception]:
        topics = self._topics()
        due = {n: topic for n, topic in enumerate(topics) if self._marker(topic) < self._run.run_id}
        if not due:
            return {}
        numbers = self._warehouse.frame([(t.topic, n) for n, t in due.items()], f"topic string, {TOPIC_NUMBER} int")
        rows = self._committed().join(F.broadcast(numbers), "topic")
        tasks = min(math.ceil(self._digest.totals["COMMIT"] / _ROWS_A_FILE), max(1, _MOST_FILES // len(due)))
        ordered = rows.coalesce(tasks).select(*table("real_topic").names, TOPIC_NUMBER)
        return write_topics(self._warehouse, self._run.run_id, ordered, due, self._run.settings.topics.threads)

    def _marker(self, topic: TopicWrite) -> int:
        return self._warehouse.log.marker(self._warehouse.path(f"topics/{topic.directory}"), topic.app)

    def _topics(self) -> list[TopicWrite]:
        """The run's topics and their directories; new ones get theirs in topics_index first."""
        app = f"{_SINK_APP}.topics_index"
        known = self._directories()
        if self._warehouse.marker("topics_index", app) < self._run.run_id:
            new = directories(self._digest.topics, known)
            known |= new
            self._index(new, app)
        return [TopicWrite(topic, known[topic], f"{_SINK_APP}.topic") for topic in self._digest.topics]

    def _directories(self) -> dict[str, str]:
        return {row["topic"]: row["directory"] for row in self._warehouse.rows("topics_index")}

    def _index(self, new: Mapping[str, str], app: str) -> None:
        about = {"run_id": self._run.run_id, "created_at": self._run.now}
        rows = [{"topic": topic, "directory": directory} | about for topic, directory in sorted(new.items())]
        if rows:
            self._warehouse.append_rows_once("topics_index", rows, app, self._run.run_id)

    # ---- given up, asked, refused ----

    def _discards(self) -> None:
        rows = self._with_bodies("DISCARD", ["reason", "check_times", "run_id"])
        self._append("trans_check_max_time", rows.withColumn("discarded_at", self._now))

    def _requests(self) -> None:
        rows = self._with_bodies("CHECK", ["check_times", "run_id"])
        request = F.sha2(F.concat_ws("/", "run_id", "broker_name", "queue_id", "queue_offset"), 256)
        self._append(
            "check_requests",
            rows.withColumns(
                {
                    "request_id": request,
                    "tran_state_table_offset": F.col("queue_offset"),
                    "half_queue_id": F.col("queue_id"),
                    "requested_at": self._now,
                }
            ),
        )

    def _rejects(self) -> None:
        found = [("uniq_key ", "uniq_key"), (", group ", "producer_group"), (", real topic ", "real_topic")]
        parts = [F.concat(F.lit(label), F.coalesce(F.substring(c, 1, 300), F.lit("none"))) for label, c in found]
        halves = self._decided("REJECT").select(
            F.lit("HALF").alias("kind"), "reason", *HALF_KEY, F.concat(*parts).alias("detail")
        )
        with self._plan.rejects() as others:
            rows = halves.unionByName(others) if self._leftovers else halves
            run_id = F.lit(self._run.run_id).cast("bigint")
            self._append("rejected", rows.withColumns({"run_id": run_id, "rejected_at": self._now}))

    def _append(self, name: str, rows: DataFrame) -> None:
        self._warehouse.append_once(name, rows, f"{_SINK_APP}.{name}", self._run.run_id)


def _each(tasks: Mapping[str, Callable[[], dict[str, Exception] | None]]) -> dict[str, Exception]:
    """One sink after the other, each using the whole machine; a failing one stops no other."""
    failed: dict[str, Exception] = {}
    for name, task in tasks.items():
        inner: dict[str, Exception] = {}
        outer = side_by_side({name: partial(_collect, task, inner)}, 1)
        failed |= outer | {f"{name}/{part}": error for part, error in inner.items()}
    return failed


def _collect(task: Callable[[], dict[str, Exception] | None], into: dict[str, Exception]) -> None:
    into |= task() or {}


def _committed_flag() -> Column:
    cleared = F.coalesce("sys_flag", F.lit(0)).bitwiseAND(F.lit(~names.TRANSACTION_TYPE_MASK))
    return cleared.bitwiseOR(F.lit(names.TRANSACTION_COMMIT))


def _delivered_properties() -> Column:
    kept_back = (names.REAL_TOPIC, names.REAL_QUEUE_ID, names.TRAN_MSG)
    return F.map_filter("properties", lambda name, _: ~name.isin(*kept_back))
