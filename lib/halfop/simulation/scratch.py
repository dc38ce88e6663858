"""The instants of a simulation's runs, and the landed rows staged so that each run sees what had landed by then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructType

from halfop.columns.keys import QUEUE
from halfop.frame.units import EPOCH
from halfop.rocketmq.names import HALF_TOPIC
from halfop.simulation.history import UnaskedHistory
from halfop.warehouse.tables import NO_TABLE

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
        if row["topic"] == HALF_TOPIC:
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
    counts = {name: _counts(rows) for name, rows in frames.items()}
    deliveries = _kept(history.deliveries, f"{root}/deliveries")
    any_answers = not answers.isEmpty()
    return StagedHistory(frames, counts, spans, history.progress, schedule, answers, any_answers, deliveries)


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


_MICROSECOND = timedelta(microseconds=1)


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
        bounds = [(instant - EPOCH) // _MICROSECOND for instant in self.instants]
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
