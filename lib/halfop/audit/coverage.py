"""The parts of brokers' topics that stand, and how much of each half queue and of its broker's log has been read.

What a broker lost with the end of its log does not stand. In what stands, offsets and places in the log are unique
again, under the broker's own name: so the rest of the audit knows nothing of lives, and only its findings get the
names back that messages have landed under. What was not read proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.columns.lives import Cuts, Lives, all_lives, owner
from halfop.landing.lost import FOUND, LOST, Range, recorded
from halfop.landing.progress import micros
from halfop.planning.run import clocks
from halfop.rules.settings_columns import FOREVER, NO_TIME
from halfop.warehouse.progress import COMMIT_LOG
from halfop.warehouse.schema import REJECTED
from halfop.warehouse.tables import Warehouse

Progress = Sequence[Mapping[str, Any]]
# `rejected` is read twice: before all other tables, and after them.
LOST_AT_FIRST = "rejected, at first"
_NOTHING_LOST = {"half_messages": 0, "committed": 0, "committed_again": 0}
_MESSAGE = ["uniq_key", "producer_group"]
# Offsets in the half queue, places in the commit log, microseconds; `since` is when the last half message before a gap
# was stored.
_COLUMNS = """broker_name STRING, queue_id INT, first_offset BIGINT, last_offset BIGINT, first_place BIGINT,
    last_place BIGINT, log_from BIGINT, known BIGINT, forgets_after BIGINT,
    gaps ARRAY<STRUCT<begin:BIGINT,end:BIGINT,since:BIGINT>>,
    offset_gaps ARRAY<STRUCT<below:BIGINT,above:BIGINT>>"""


# ---- what stands ----


@dataclass(frozen=True)
class StandingRows:
    """Rows that stand, of brokers that have had several lives; all other brokers' rows are left as they are."""

    lives: Sequence[Lives]

    @classmethod
    def of(cls, progress: Progress) -> StandingRows:
        return cls(all_lives(progress))

    def own_names(self, progress: Progress) -> list[dict[str, Any]]:
        """Returns rows of landing_progress of each broker's current life, which began to land with the first one."""
        earlier = {name: each.broker_name for each in self.lives for name in each.names[:-1]}
        current = {each.current: each.broker_name for each in self.lives}
        begun = {(row["broker_name"], row["topic"], row["queue_id"]): row["first_offset"] for row in progress}
        rows = []
        for row in progress:
            if row["broker_name"] not in earlier:
                own = current.get(row["broker_name"], row["broker_name"])
                first = begun.get((own, row["topic"], row["queue_id"]), row["first_offset"])
                rows.append(dict(row) | {"broker_name": own, "first_offset": first})
        return rows

    def own_name(self, name: str) -> str:
        return next((each.broker_name for each in self.lives if name in each.names), name)

    def halves(self, rows: DataFrame) -> DataFrame:
        """Returns half messages that stand; `landed_under` is the name of their life."""
        lost = self._lost_halves()
        return self._own(rows.withColumn("landed_under", F.col("broker_name")).where(~lost))

    def ops(self, rows: DataFrame) -> DataFrame:
        """Returns op messages that stand."""

        def lost(lives: Lives, number: int) -> Column:
            """The condition for ops that a life wrote."""
            wrote = F.coalesce("life", F.when(F.col("broker_name") == lives.names[number - 1], number)) == number
            return F.col("broker_name").isin(lives.names) & wrote & _is_cut(lives.op_cuts[number - 1 :])

        return self._own(rows.where(~self._any(lost)))

    def by_place(self, rows: DataFrame) -> DataFrame:
        """Returns final messages or discards, without what landed before a life and was not there when it began."""

        def lost(lives: Lives, number: int) -> Column:
            life = lives.later[number - 1]
            before = F.col("landed_at") < F.lit(life.begun_at)
            return F.col("broker_name").isin(lives.names) & before & (F.col("physical_offset") >= life.stands_to)

        return self._own(rows.where(~self._any(lost)))

    def _lost_halves(self) -> Column:
        def lost(lives: Lives, number: int) -> Column:
            return (F.col("broker_name") == lives.names[number - 1]) & _is_cut(lives.half_cuts[number - 1 :])

        return self._any(lost)

    def _any(self, lost: Any) -> Column:
        """Returns whether a row is lost with any life but the last; null is no."""
        each = [lost(lives, number) for lives in self.lives for number in range(1, lives.number)]
        return F.coalesce(reduce(or_, each, F.lit(False)), F.lit(False))

    def _own(self, rows: DataFrame) -> DataFrame:
        return rows if not self.lives else rows.withColumn("broker_name", self._named(F.col("broker_name")))

    def _named(self, name: Column) -> Column:
        pairs = [F.lit(text) for each in self.lives for life in each.names[1:] for text in (life, each.broker_name)]
        return F.coalesce(F.get(F.array(F.create_map(*pairs)), F.lit(0))[name], name)

    def landed_under(self, found: DataFrame) -> DataFrame:
        """Returns findings under the names that their first half messages have landed under."""
        name = F.col("broker_name")
        for each in self.lives:
            life = owner(each.half_cuts, F.col("queue_id"), F.col("queue_offset"))
            landed_under = F.get(F.array(*map(F.lit, each.names)), life)
            is_known = (F.col("broker_name") == each.broker_name) & F.col("queue_offset").isNotNull()
            name = F.when(is_known, landed_under).otherwise(name)
        return found.withColumn("broker_name", name)

    def lost(self, halves: DataFrame, ops: DataFrame) -> dict[str, int]:
        """Returns how many half messages brokers lost, and how many of them were committed before, and again."""
        if not self.lives:
            return _NOTHING_LOST
        commits = ops.where("outcome = 'COMMIT'").select(*QUEUE, F.col("half_offset").alias("queue_offset")).distinct()
        narrow = halves.select(*HALF_KEY, *_MESSAGE).dropDuplicates(HALF_KEY)
        committed = narrow.join(commits.withColumn("committed", F.lit(True)), HALF_KEY, "left")
        lost = committed.where(self._lost_halves())
        stands = committed.where(~self._lost_halves() & F.col("committed") & F.col("uniq_key").isNotNull())
        again = stands.select(*_MESSAGE).distinct().withColumn("again", F.lit(True))
        found = lost.join(again, _MESSAGE, "left").agg(
            F.count("*").alias("half_messages"),
            F.count_if("committed").alias("committed"),
            F.count_if(F.col("committed") & F.col("again")).alias("committed_again"),
        )
        return found.collect()[0].asDict()


def _is_cut(cuts: Sequence[Cuts]) -> Column:
    """Returns whether a row lies at or above one of these cuts."""
    return reduce(or_, [owner([each], F.col("queue_id"), F.col("queue_offset")) == 1 for each in cuts])


# ---- what has been read ----


@dataclass(frozen=True)
class LostPart:
    """A range of a broker's commit log that could not be read."""

    broker_name: str
    begin: int
    end: int


@dataclass(frozen=True)
class Coverage:
    """The parts that have been read: `queues` has one row a half queue."""

    queues: DataFrame
    gaps: list[LostPart]


def coverage(warehouse: Warehouse, pins: Mapping[str, int], standing: StandingRows, progress: Progress) -> Coverage:
    """Returns how much of each queue and log the pinned tables have; `progress` is under the brokers' own names."""
    gaps = [replace(gap, broker_name=standing.own_name(gap.broker_name)) for gap in _gaps(warehouse, pins)]
    of_queues = clocks(row for row in progress if row["topic"] != COMMIT_LOG)
    known = {clock[:2]: NO_TIME if clock.known_until is None else micros(clock.known_until) for clock in of_queues}
    forgets = {clock[:2]: clock.forgets_after for clock in of_queues}
    log_from = {row["broker_name"]: row["first_offset"] for row in progress if row["topic"] == COMMIT_LOG}
    halves = standing.halves(warehouse.read("half_messages", pins["half_messages"]))
    spans = halves.groupBy(*QUEUE).agg(*_spans(), *[c for i, gap in enumerate(gaps) for c in _around(i, gap)])
    rows = []
    for row in spans.collect():  # one a queue
        mine = [i for i, gap in enumerate(gaps) if gap.broker_name == row["broker_name"]]
        found = [row[c] for c in (*QUEUE, "first_offset", "last_offset", "first_place", "last_place")]
        queue = (row["broker_name"], row["queue_id"])
        found += [log_from.get(row["broker_name"]), known.get(queue, FOREVER), forgets.get(queue)]
        rows.append([*found, [_gap(row, i, gaps[i]) for i in mine], [_offset_gap(row, i) for i in mine]])
    return Coverage(F.broadcast(warehouse.frame(rows, _COLUMNS)), gaps)


def checks(warehouse: Warehouse, progress: Progress) -> DataFrame:
    """Returns how far each broker's own check has come in its half queues, and since when, if that was landed."""
    columns = ("broker_name", "queue_id", "check_offset", "check_since")
    found = [[row[c] for c in columns] for row in progress if row["check_offset"] is not None]
    return warehouse.frame(found, "broker_name STRING, queue_id INT, check_offset BIGINT, check_since TIMESTAMP")


def _gaps(warehouse: Warehouse, pins: Mapping[str, int]) -> list[LostPart]:
    """Ranges that the last look at `rejected` shows as lost and the first does not show as found again.

    The rows of a range that was found between the two looks may not be in the pinned tables.
    """
    lost = _ranges(warehouse, pins["rejected"], LOST)
    return sorted(lost - _ranges(warehouse, pins[LOST_AT_FIRST], FOUND), key=lambda gap: (gap.broker_name, gap.begin))


def _ranges(warehouse: Warehouse, version: int, reason: str) -> set[LostPart]:
    return {_as_gap(broker_name, lost) for broker_name, lost in recorded(warehouse.read(REJECTED, version), reason)}


def _as_gap(broker_name: str, lost: Range) -> LostPart:
    """A lost part of the log; a hole of a queue may be anywhere in it, because its place there is not known."""
    of_log = lost.topic == COMMIT_LOG
    return LostPart(broker_name, lost.since, lost.upto) if of_log else LostPart(broker_name, 0, FOREVER)


def _spans() -> list[Column]:
    offset, place = F.col("queue_offset"), F.col("commit_log_offset")
    least = [F.min(offset).alias("first_offset"), F.min(place).alias("first_place")]
    return [*least, F.max(offset).alias("last_offset"), F.max(place).alias("last_place")]


def _around(i: int, gap: LostPart) -> list[Column]:
    """A queue's last half message before a gap and its first one after it."""
    mine = F.col("broker_name") == gap.broker_name
    before, after = mine & (F.col("commit_log_offset") < gap.begin), mine & (F.col("commit_log_offset") >= gap.end)
    return [
        F.max(F.when(before, F.unix_micros("store_timestamp"))).alias(f"since_{i}"),
        F.max(F.when(before, F.col("queue_offset"))).alias(f"below_{i}"),
        F.min(F.when(after, F.col("queue_offset"))).alias(f"above_{i}"),
    ]


def _gap(row: Row, i: int, gap: LostPart) -> dict[str, int]:
    since = row[f"since_{i}"]
    return {"begin": gap.begin, "end": gap.end, "since": NO_TIME if since is None else since}


def _offset_gap(row: Row, i: int) -> dict[str, int]:
    below, above = row[f"below_{i}"], row[f"above_{i}"]
    return {"below": -1 if below is None else below, "above": FOREVER if above is None else above}
