"""A warehouse whose landing tables fill as a simulated clock moves, under the runs of one variant of the settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructType

from halfop.rocketmq.names import HALF_TOPIC
from halfop.rules.words import HALF_KEY, QUEUE
from halfop.runs.record import INPUTS
from halfop.simulation.history import History
from halfop.simulation.schedule import Schedule
from halfop.warehouse.tables import NO_TABLE, Warehouse

STEP = "step"
_DECISIONS = "decisions"
_PROGRESS = "landing_progress"
_OPS = "op_messages"
_COMES_AT = {
    "half_messages": "store_timestamp",
    _OPS: "store_timestamp",
    "final_messages": "store_timestamp",
    "resumes": "resumed_at",
}


@dataclass(frozen=True)
class Landed:
    """A history's rows by the step in which they come in, in a scratch folder that all variants share.

    `counts`: how many rows each step brings. `answers` have no step: theirs depends on when the replay asks.
    """

    frames: Mapping[str, DataFrame]
    counts: Mapping[str, Mapping[int, int]]
    spans: Mapping[tuple[str, int], Sequence[tuple[int, int, int]]]
    progress: Sequence[Mapping[str, Any]]
    schedule: Schedule
    answers: DataFrame
    any_answers: bool

    def lands(self, step: int) -> bool:
        """Whether anything comes in."""
        return any(step in counts for counts in self.counts.values())

    @property
    def most_rows(self) -> int:
        """The most rows of a table that one step brings."""
        return max((rows for counts in self.counts.values() for rows in counts.values()), default=0)

    def version(self, name: str, step: int) -> int:
        """The last step by then that brought rows of the table."""
        return max((s for s in self.counts.get(name, ()) if s <= step), default=NO_TABLE)

    def rows(self, name: str, before: int, upto: int) -> DataFrame:
        step: Column = F.col(STEP)
        return self.frames[name].where((step > before) & (step <= upto)).drop(STEP)

    def clocks(self, step: int) -> list[dict[str, Any]]:
        """`landing_progress` as it stood then: known until the step's instant, as far as history knows."""
        now = self.schedule.at(min(step, len(self.schedule.instants)))
        return [self._clock(row, step, now) for row in self.progress]

    def _clock(self, row: Mapping[str, Any], step: int, now: datetime) -> dict[str, Any]:
        known = row["known_until"]
        moved = dict(row) | {"known_until": None if known is None else min(known, now)}
        if row["topic"] == HALF_TOPIC:
            spans = [s for s in self.spans.get((row["broker_name"], row["queue_id"]), ()) if s[0] <= step]
            moved["first_offset"] = min((low for _, low, _ in spans), default=None)
            moved["next_offset"] = max((min(high + 1, 2**63 - 1) for _, _, high in spans), default=None)
        return moved


def land(history: History, progress: Sequence[Mapping[str, Any]], schedule: Schedule, root: str) -> Landed:
    """Write a history's rows to a scratch folder, cut by steps."""
    sources = {name: getattr(history, each) for name, each in _SOURCES.items()}
    frames = {name: _staged(rows, schedule, _COMES_AT[name], f"{root}/{name}") for name, rows in sources.items()}
    answers = _kept(history.answers, f"{root}/answers")
    offsets = frames["half_messages"].groupBy(*QUEUE, STEP)
    spans: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for row in offsets.agg(F.min("queue_offset").alias("low"), F.max("queue_offset").alias("high")).collect():
        spans[row["broker_name"], row["queue_id"]].append((row[STEP], row["low"], row["high"]))
    counts = {name: _counts(rows) for name, rows in frames.items()}
    return Landed(frames, counts, spans, progress, schedule, answers, not answers.isEmpty())


_SOURCES = {"half_messages": "halves", _OPS: "ops", "final_messages": "finals", "resumes": "resumes"}


def _staged(rows: DataFrame, schedule: Schedule, comes_at: str, path: str) -> DataFrame:
    numbered = rows.withColumn("moment", F.unix_micros(comes_at)).withColumn(STEP, schedule.step_of("moment"))
    numbered = numbered.drop("moment").repartition(STEP)
    numbered.write.partitionBy(STEP).parquet(path)
    return _read(numbered, path)


def _counts(rows: DataFrame) -> dict[int, int]:
    return {row[STEP]: row["rows"] for row in rows.groupBy(STEP).agg(F.count("*").alias("rows")).collect()}


def _kept(rows: DataFrame, path: str) -> DataFrame:
    rows.write.parquet(path)
    return rows.sparkSession.read.schema(rows.schema).parquet(path)


def _read(like: DataFrame, path: str) -> DataFrame:
    fields = [f for f in like.schema if f.name != STEP]
    return like.sparkSession.read.schema(StructType(fields).add(STEP, IntegerType())).parquet(path)


@dataclass(frozen=True)
class Replay(Warehouse):
    """One variant's tables: version N of a landing table is what had landed by step N; `decisions` are its own."""

    landed: Landed = field(kw_only=True)
    _released: set[int] = field(default_factory=set, repr=False)

    def pins(self, step: int) -> dict[str, int]:
        pins = {name: self.landed.version(name, step) for name in INPUTS}
        answered = max((s for s in self._released if s <= step), default=NO_TABLE)
        pins[_OPS] = max(pins[_OPS], answered)
        return pins | {_PROGRESS: step, _DECISIONS: self.version(_DECISIONS)}

    def lands(self, step: int) -> bool:
        return self.landed.lands(step) or step in self._released

    def read(self, name: str, version: int | None = None) -> DataFrame:
        """No op that came before is looked back at: what landed twice has one store time, and came in one step."""
        if name == _DECISIONS:
            return super().read(name, version)
        if name not in self.landed.frames or name == _OPS or version is None or version == NO_TABLE:
            return self.empty(name)
        return self.landed.rows(name, 0, version)

    def landed_between(self, name: str, before: int, upto: int) -> DataFrame:
        if before == upto or name not in self.landed.frames:
            return self.empty(name)
        rows = self.landed.rows(name, before, upto)
        if name == _OPS and upto in self._released:
            rows = rows.unionByName(self._answers(upto))
        return rows

    def rows(self, name: str, version: int | None = None, run_id: int | None = None) -> list[dict[str, Any]]:
        if name == _PROGRESS and version is not None:
            return self.landed.clocks(version)
        return super().rows(name, version, run_id)

    # ---- answers ----

    def release(self, asked: DataFrame, now: datetime) -> None:
        """Give the answers to the questions of a run: each as long after it as in history, else before the next run."""
        asked = asked.select(*QUEUE, F.col("queue_offset").alias("half_offset"))
        due = self.landed.answers.join(asked, asked.columns, "left_semi")
        due = due.where(F.col("silent_until").isNull() | (F.col("silent_until") < F.lit(now)))
        waits = F.greatest(F.coalesce("delay", F.lit(0)), F.lit(1))
        rows = due.withColumn("moment", F.unix_micros(F.lit(now)) + waits)
        self._write(rows.withColumn(STEP, self.landed.schedule.step_of("moment")))

    def release_all(self) -> None:
        """Give every answer that history knows, after the last run."""
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

    # ---- what came out ----

    def answers_among(self, ended: DataFrame) -> DataFrame:
        """Those of some ended decisions whose op answers a question."""
        answers = self.landed.answers.select(*QUEUE, *[F.col(c).alias(n) for n, c in _NAMES.items()])
        return ended.join(answers, [*HALF_KEY, "op_queue_offset"], "left_semi")


_NAMES = {"queue_offset": "half_offset", "op_queue_offset": "queue_offset"}
