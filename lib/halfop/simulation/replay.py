"""A history staged by the instants of its runs, and a variant's warehouse, which fills with it as a clock moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructType

from halfop.columns.keys import HALF_KEY, QUEUE, in_micros
from halfop.frame.units import EPOCH
from halfop.planning.run import INPUTS
from halfop.rocketmq.names import HALF_TOPICS
from halfop.rules.questions import SENT, request_id
from halfop.simulation.history import UnaskedHistory
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.reading import parquet
from halfop.warehouse.rows import FoundRows, Rows
from halfop.warehouse.tables import NO_TABLE, no_rows
from halfop.warehouse.where import Where

STEP = "step"
# By table: the rows of a history that it gets, and the instant by which they come.
_TABLES = {
    "half_messages": ("halves", "store_timestamp"),
    "op_messages": ("ops", "store_timestamp"),
    "final_messages": ("finals", "store_timestamp"),
    "resumes": ("resumes", "resumed_at"),
}


@dataclass(frozen=True)
class StagedHistory:
    """A history's rows by the step that they come with, in a scratch folder that all variants share.

    `counts`: the number of rows of each step. `answers` have no step: it depends on when the replay asks.
    """

    frames: Mapping[str, DataFrame]
    counts: Mapping[str, Mapping[int, int]]
    spans: Mapping[tuple[str, int], Sequence[tuple[int, int, int]]]
    progress: Sequence[Mapping[str, Any]]
    schedule: Schedule
    answers: DataFrame
    any_answers: bool
    deliveries: DataFrame

    def lands(self, step: int) -> bool:
        """Returns whether any rows come with the step."""
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
        """`landing_progress` as of a step: known until the step's instant, but never further than in the history."""
        now = self.schedule.at(min(step, len(self.schedule.instants)))
        return [self._clock(row, step, now) for row in self.progress]

    def _clock(self, row: Mapping[str, Any], step: int, now: datetime) -> dict[str, Any]:
        known = row["known_until"]
        moved = dict(row) | {"known_until": None if known is None else min(known, now)}
        if row["begun_at"] is not None and row["begun_at"] > now:  # nobody knew yet what the broker had lost
            moved["life_of"] = None
        if row["topic"] in HALF_TOPICS:
            spans = [s for s in self.spans.get((row["broker_name"], row["queue_id"]), ()) if s[0] <= step]
            moved["first_offset"] = min((low for _, low, _ in spans), default=None)
            moved["next_offset"] = max((min(high + 1, 2**63 - 1) for _, _, high in spans), default=None)
        return moved


def stage(history: UnaskedHistory, schedule: Schedule, root: str) -> StagedHistory:
    """Writes a history's rows to a scratch folder, cut into steps."""
    frames = {
        name: _staged(getattr(history, rows), schedule, comes_at, f"{root}/{name}")
        for name, (rows, comes_at) in _TABLES.items()
    }
    answers = _kept(history.answers, f"{root}/answers")
    offsets = frames["half_messages"].groupBy(*QUEUE, STEP)
    spans: dict[tuple[str, int], list[tuple[int, int, int]]] = defaultdict(list)
    for row in offsets.agg(F.min("queue_offset").alias("low"), F.max("queue_offset").alias("high")).collect():
        spans[row["broker_name"], row["queue_id"]].append((row[STEP], row["low"], row["high"]))
    counts = {
        name: {row[STEP]: row["count"] for row in rows.groupBy(STEP).count().collect()} for name, rows in frames.items()
    }
    deliveries = _kept(history.deliveries, f"{root}/deliveries")
    any_answers = not answers.isEmpty()
    return StagedHistory(frames, counts, spans, history.progress, schedule, answers, any_answers, deliveries)


def _staged(rows: DataFrame, schedule: Schedule, comes_at: str, path: str) -> DataFrame:
    numbered = rows.withColumn("moment", F.unix_micros(comes_at)).withColumn(STEP, schedule.step_of("moment"))
    numbered = numbered.drop("moment").repartition(STEP)
    numbered.write.partitionBy(STEP).parquet(path)
    return _read(numbered, path)


def _kept(rows: DataFrame, path: str) -> DataFrame:
    rows.write.parquet(path)
    return parquet(rows.sparkSession, rows.schema, [path])


def _read(like: DataFrame, path: str) -> DataFrame:
    fields = [f for f in like.schema if f.name != STEP]
    return parquet(like.sparkSession, StructType(fields).add(STEP, IntegerType()), [path])


@dataclass(frozen=True)
class Schedule:
    """The instants of the runs, ascending; `every` is the time between two if it is constant. Step 1 is the first."""

    instants: Sequence[datetime]
    every: timedelta | None = None

    @property
    def steps(self) -> range:
        return range(1, len(self.instants) + 1)

    @property
    def beyond(self) -> int:
        """The step of rows that come after the last run."""
        return len(self.instants) + 1

    def at(self, step: int) -> datetime:
        return self.instants[step - 1]

    def step_of(self, micros: str) -> Column:
        """The first step that is not before an instant, given as a column of microseconds."""
        bounds = [in_micros(instant - EPOCH) for instant in self.instants]
        return F.expr(_search(micros, bounds, 1, self.beyond))


def _search(micros: str, bounds: Sequence[int], low: int, high: int) -> str:
    """A binary search as one expression."""
    if low == high:
        return str(low)
    middle = (low + high) // 2
    below, above = _search(micros, bounds, low, middle), _search(micros, bounds, middle + 1, high)
    return f"IF({micros} <= {bounds[middle - 1]}, {below}, {above})"


def regular(since: datetime, until: datetime, every: timedelta) -> Schedule:
    """Runs at each multiple of `every`, as a clock shows them, after `since` and before `until`, and at `until`."""
    first = _after(since, every)
    return Schedule([*(first + n * every for n in range(_number(since, until, every) - 1)), until], every)


def widened(since: datetime, until: datetime, every: timedelta, most: int) -> timedelta:
    """The least multiple of `every` that gives no more than `most` runs."""
    times = max(1, (until - since) // (every * most))
    while _number(since, until, every * times) > most:
        times += 1
    return every * times


def _number(since: datetime, until: datetime, every: timedelta) -> int:
    return max(0, -((_after(since, every) - until) // every)) + 1


def _after(since: datetime, every: timedelta) -> datetime:
    return ((since - EPOCH) // every + 1) * every + EPOCH


# ---- the warehouse ----


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
        sent.write.parquet(f"{self.path('deliveries')}/{STEP}={step + 1}")
        self._delivered.add(step + 1)
        return rows

    def _deliveries(self, before: int, upto: int) -> Rows:
        folders = [
            f"{self.path('deliveries')}/{STEP}={step}" for step in sorted(self._delivered) if before < step <= upto
        ]
        return parquet(self.spark, self.schema(_DELIVERIES), folders) if folders else no_rows(_DELIVERIES)

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
        rows.select(*self._op_columns, STEP).write.mode("append").partitionBy(STEP).parquet(self.path("answers"))
        names = self.files.folders(self.path("answers"))
        self._released.update(int(name.removeprefix(f"{STEP}=")) for name in names if name.startswith(f"{STEP}="))

    def _answers(self, step: int) -> DataFrame:
        schema = self.landed.frames[_OPS].select(self._op_columns).schema
        return parquet(self.spark, schema, [f"{self.path('answers')}/{STEP}={step}"])

    @cached_property
    def _op_columns(self) -> list[str]:
        return [name for name in self.landed.frames[_OPS].columns if name != STEP]

    # ---- figures ----

    def answers_among(self, ended: DataFrame) -> DataFrame:
        """The ended decisions whose op answers a question."""
        answers = self.landed.answers.select(*QUEUE, *[F.col(c).alias(n) for n, c in _OF_ANSWER.items()])
        return ended.join(answers, [*HALF_KEY, "op_queue_offset"], "left_semi")
