"""A run's own decisions in short, read back from the plan in one small job, whoever committed it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from pyspark.sql import Row
from pyspark.sql import functions as F

from halfop.columns.keys import QUEUE
from halfop.planning.ranges import OffsetRange
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import equal

Counts = dict[str, dict[str, int]]
# Bounds of commit latency, in seconds.
LATENCIES = (1, 2, 5, 10, 20, 30, 60, 120, 300, 900, 3_600, 86_400)


@dataclass(frozen=True)
class Latency:
    """The time that messages took from their birth to their commit: how many at most each of LATENCIES, and in all."""

    within: tuple[int, ...] = (0,) * len(LATENCIES)
    messages: int = 0
    seconds: float = 0.0

    def plus(self, other: Latency) -> Latency:
        within = tuple(map(sum, zip(self.within, other.within, strict=True)))
        return Latency(within, self.messages + other.messages, round(self.seconds + other.seconds, 3))


@dataclass(frozen=True)
class Digest:
    """Rows by decision, reason, queue, landing and (of committed ones) topic, with the offsets that they span."""

    rows: list[Row]

    @staticmethod
    def of(warehouse: Warehouse, run_id: int, at: datetime | None = None) -> Digest:
        """Reads a run's decisions; `at` is when its messages are committed, if that counts for their latency."""
        mine = warehouse.read("decisions", where=equal("run_id", run_id))
        landing = F.unix_micros("half_landed_at").alias("landing")
        half = F.coalesce("copy_offset", "queue_offset")
        now = F.lit(None if at is None else int(at.timestamp() * 1_000)).cast("long")
        took = F.when(F.col("decision") == "COMMIT", F.greatest(now - F.unix_millis("born_timestamp"), F.lit(0)))
        topic = F.when(F.col("decision") == "COMMIT", F.col("real_topic")).alias("topic")
        spans = mine.groupBy("decision", "reason", topic, *QUEUE, "half_landed_at").agg(
            F.count("*").alias("rows"),
            F.min(half).alias("low"),
            F.max(half).alias("high"),
            F.bool_or("repeated").alias("repeated"),
            F.bool_or(F.col("copy_offset").isNotNull()).alias("by_copy"),
            F.count("op_queue_offset").alias("ops"),
            F.min(F.unix_millis("born_timestamp")).alias("born"),
            F.array(*[F.count_if(took <= bound * 1_000) for bound in LATENCIES]).alias("within"),
            F.count(took).alias("timed"),
            F.sum(took).alias("took"),
        )
        found = ["rows", "low", "high", "repeated", "by_copy", "ops", "born", "within", "timed", "took"]
        return Digest(spans.select("decision", "reason", "topic", *QUEUE, landing, *found).collect())

    @property
    def counts(self) -> Counts:
        return by_reason((row["decision"], row["reason"], row["rows"]) for row in self.rows)

    @property
    def totals(self) -> dict[str, int]:
        return {decision: sum(reasons.values()) for decision, reasons in self.counts.items()}

    def repeated(self, decisions: Collection[str]) -> bool:
        """Returns whether one of the messages landed more than once."""
        return any(row["repeated"] for row in self.rows if row["decision"] in decisions)

    @property
    def ops(self) -> int:
        """Ops that ended a transaction, or wait for their half messages."""
        return sum(row["ops"] for row in self.rows)

    def by_copy(self, decisions: Collection[str]) -> bool:
        """Returns whether a copy is delivered that another row stands for."""
        return any(row["by_copy"] for row in self.rows if row["decision"] in decisions)

    def ranges(self, decisions: Collection[str]) -> list[OffsetRange]:
        """Ranges of offsets in which the half messages lie that were decided so."""
        found: dict[tuple[str, int, int], list[Row]] = {}
        for row in self.rows:
            if row["decision"] in decisions:
                found.setdefault((row["broker_name"], row["queue_id"], row["landing"]), []).append(row)
        return [
            OffsetRange(broker, queue, min(r["low"] for r in rows), max(r["high"] for r in rows), landing)
            for (broker, queue, landing), rows in found.items()
        ]

    def oldest(self, decisions: Collection[str]) -> int | None:
        """Returns when the oldest message that was decided so was born, in epoch milliseconds."""
        born = [row["born"] for row in self.rows if row["decision"] in decisions and row["born"] is not None]
        return min(born, default=None)

    @property
    def latency(self) -> Latency:
        """Returns how long the committed messages took."""
        timed = [Latency(tuple(r["within"]), r["timed"], r["took"] / 1_000) for r in self.rows if r["timed"]]
        return reduce(Latency.plus, timed, Latency())

    @property
    def topics(self) -> dict[str, int]:
        """The topics that messages were committed to, with their number."""
        found: dict[str, int] = {}
        for row in self.rows:
            if row["topic"] is not None:
                found[row["topic"]] = found.get(row["topic"], 0) + row["rows"]
        return dict(sorted(found.items()))


def by_reason(rows: Iterable[tuple[str, str | None, int]]) -> Counts:
    """Rows by decision and reason, in the order of their names: a run that is done again records the same."""
    counts: Counts = {}
    for decision, reason, n in sorted((decision, reason or "NONE", n) for decision, reason, n in rows):
        reasons = counts.setdefault(decision, {})
        reasons[reason] = reasons.get(reason, 0) + n
    return counts
