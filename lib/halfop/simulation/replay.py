"""A warehouse whose landing tables fill as a simulated clock moves, under the runs of one variant of the settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.planning.run import INPUTS
from halfop.rules.questions import SENT, request_id
from halfop.simulation.scratch import STEP, StagedHistory
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.reading import parquet
from halfop.warehouse.rows import FoundRows, Rows
from halfop.warehouse.tables import NO_TABLE, no_rows
from halfop.warehouse.where import Where

_DECISIONS = "decisions"
_PROGRESS = "landing_progress"
_OPS = "op_messages"
_DELIVERIES = "check_deliveries"
_GROUP = ["broker_name", "producer_group"]
_OF_ANSWER = {"queue_offset": "half_offset", "op_queue_offset": "queue_offset"}


@dataclass(frozen=True)
class Replay(KernelWarehouse):
    """One variant's tables: version N of a landing table has the rows that come by step N; `decisions` are its own."""

    lands_again: ClassVar[bool] = False  # what landed twice comes with one step
    landed: StagedHistory = field(kw_only=True)
    _released: set[int] = field(default_factory=set, repr=False)
    _delivered: set[int] = field(default_factory=set, repr=False)

    def pins(self, step: int) -> dict[str, int]:
        pins = {name: self.landed.version(name, step) for name in INPUTS}
        answered = max((s for s in self._released if s <= step), default=NO_TABLE)
        pins[_OPS] = max(pins[_OPS], answered)
        delivered = max((s for s in self._delivered if s <= step), default=NO_TABLE)
        return pins | {_PROGRESS: step, _DELIVERIES: delivered, _DECISIONS: self.version(_DECISIONS)}

    def lands(self, step: int) -> bool:
        return self.landed.lands(step) or step in self._released

    def found(self, name: str, version: int | None = None, where: Where | None = None) -> FoundRows:
        """The table at a version. Ops are without answers: the half message of one came before it."""
        if name == _DECISIONS:
            return super().found(name, version, where)
        if name not in self.landed.frames or version is None or version == NO_TABLE:
            return FoundRows(no_rows(name), 0)
        rows = self.landed.rows(name, 0, version)
        return FoundRows(rows if where is None else rows.where(where.column(self.schema(name))), None)

    def found_before(self, name: str, before: int, upto: int, where: Where) -> FoundRows:
        return self.found(name, before, where)

    def added(self, name: str, before: int, upto: int) -> Rows:
        if name == _DELIVERIES:
            return self._deliveries(before, upto)
        if before == upto or name not in self.landed.frames:
            return no_rows(name)
        rows = self.landed.rows(name, before, upto)
        if name == _OPS and upto in self._released:
            rows = rows.unionByName(self._answers(upto))
        return rows

    def keeps(self, name: str, version: int) -> bool:
        return name != _DECISIONS or super().keeps(name, version)

    def rows(self, name: str, version: int | None = None, run_id: int | None = None) -> list[dict[str, Any]]:
        if name == _PROGRESS and version is not None:
            return self.landed.clocks(version)
        return super().rows(name, version, run_id)

    # ---- deliveries ----

    def deliver(self, asked: DataFrame, run_id: int, step: int, within: timedelta) -> DataFrame:
        """Delivers the questions of a run before the next one; returns the messages that they are about.

        In history the group could be reached then: by its last delivery up to the next question, or nobody tried.
        """
        until = self.landed.schedule.at(step) + within
        known = self.landed.deliveries.where(F.col("at") < F.lit(until)).groupBy(*_GROUP)
        reached = known.agg(F.max_by("delivered", "at").alias("delivered"))
        rows = asked.join(reached, _GROUP, "left").where(F.coalesce("delivered", F.lit(True))).drop("delivered")
        sent = rows.select(*_GROUP, request_id(run_id).alias("request_id"), F.lit(SENT).alias("outcome"))
        sent = sent.withColumn("at", F.lit(self.landed.schedule.at(step)))
        sent.write.parquet(f"{self._delivered_by}/{STEP}={step + 1}")
        self._delivered.add(step + 1)
        return rows

    def _deliveries(self, before: int, upto: int) -> Rows:
        folders = [f"{self._delivered_by}/{STEP}={step}" for step in sorted(self._delivered) if before < step <= upto]
        return parquet(self.spark, self.schema(_DELIVERIES), folders) if folders else no_rows(_DELIVERIES)

    @property
    def _delivered_by(self) -> str:
        return self.path("deliveries")

    # ---- answers ----

    def release(self, asked: DataFrame, now: datetime) -> None:
        """Gives the answers to the questions of a run: each as late as in history, else before the next run."""
        asked = asked.select(*QUEUE, F.col("queue_offset").alias("half_offset"))
        due = self.landed.answers.join(asked, asked.columns, "left_semi")
        due = due.where(F.col("silent_until").isNull() | (F.col("silent_until") < F.lit(now)))
        waits = F.greatest(F.coalesce("delay", F.lit(0)), F.lit(1))
        rows = due.withColumn("moment", F.unix_micros(F.lit(now)) + waits)
        self._write(rows.withColumn(STEP, self.landed.schedule.step_of("moment")))

    def release_all(self) -> None:
        """Gives every answer of the history, after the last run."""
        self._write(self.landed.answers.withColumn(STEP, F.lit(self.landed.schedule.beyond)))

    def _write(self, rows: DataFrame) -> None:
        rows.select(*self._op_columns, STEP).write.mode("append").partitionBy(STEP).parquet(self._folder)
        names = self.files.folders(self._folder)
        self._released.update(int(name.removeprefix(f"{STEP}=")) for name in names if name.startswith(f"{STEP}="))

    def _answers(self, step: int) -> DataFrame:
        schema = self.landed.frames[_OPS].select(self._op_columns).schema
        return self.spark.read.schema(schema).parquet(f"{self._folder}/{STEP}={step}")

    @cached_property
    def _op_columns(self) -> list[str]:
        return [name for name in self.landed.frames[_OPS].columns if name != STEP]

    @property
    def _folder(self) -> str:
        return self.path("answers")

    # ---- figures ----

    def answers_among(self, ended: DataFrame) -> DataFrame:
        """The ended decisions whose op answers a question."""
        answers = self.landed.answers.select(*QUEUE, *[F.col(c).alias(n) for n, c in _OF_ANSWER.items()])
        return ended.join(answers, [*HALF_KEY, "op_queue_offset"], "left_semi")
