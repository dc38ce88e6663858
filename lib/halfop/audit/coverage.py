"""The part of each half queue and of its broker's log has been read, so that what was not read proves nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from halfop.audit.standing import Standing
from halfop.columns.keys import QUEUE
from halfop.landing.lost import FOUND, LOST, Range, recorded
from halfop.landing.progress import micros
from halfop.planning.clocks import clocks
from halfop.rules.settings_columns import FOREVER, NO_TIME
from halfop.warehouse.progress import COMMIT_LOG, progress_rows
from halfop.warehouse.schema import REJECTED
from halfop.warehouse.tables import Warehouse

Pins = Mapping[str, int]
# `rejected` is read twice: before all other tables, and after them.
LOST_AT_FIRST = "rejected, at first"

# Offsets in the half queue, places in the commit log, microseconds; `since` is when the last half message before a gap
# was stored.
_COLUMNS = """broker_name STRING, queue_id INT, first_offset BIGINT, last_offset BIGINT, first_place BIGINT,
    last_place BIGINT, log_from BIGINT, known BIGINT, gaps ARRAY<STRUCT<begin:BIGINT,end:BIGINT,since:BIGINT>>,
    offset_gaps ARRAY<STRUCT<below:BIGINT,above:BIGINT>>"""


@dataclass(frozen=True)
class Gap:
    """A range of a broker's commit log that could not be read."""

    broker_name: str
    begin: int
    end: int


@dataclass(frozen=True)
class Coverage:
    """The parts that have been read: `queues` has one row a half queue."""

    queues: DataFrame
    gaps: list[Gap]


def coverage(warehouse: Warehouse, pins: Pins, standing: Standing) -> Coverage:
    """Returns how much of each queue and log the pinned tables have."""
    gaps = [replace(gap, broker_name=standing.own_name(gap.broker_name)) for gap in _gaps(warehouse, pins)]
    progress = standing.own_names(progress_rows(warehouse, pins["landing_progress"]))
    known = {(clock.broker_name, clock.queue_id): _micros(clock.known_until) for clock in clocks(_queues(progress))}
    log_from = {row["broker_name"]: row["first_offset"] for row in progress if row["topic"] == COMMIT_LOG}
    halves = standing.halves(warehouse.read("half_messages", pins["half_messages"]))
    spans = halves.groupBy(*QUEUE).agg(*_spans(), *[c for i, gap in enumerate(gaps) for c in _around(i, gap)])
    rows = [
        (
            *[row[c] for c in (*QUEUE, "first_offset", "last_offset", "first_place", "last_place")],
            log_from.get(row["broker_name"]),
            known.get((row["broker_name"], row["queue_id"]), FOREVER),
            [_gap(row, i, gap) for i, gap in enumerate(gaps) if gap.broker_name == row["broker_name"]],
            [_offset_gap(row, i) for i, gap in enumerate(gaps) if gap.broker_name == row["broker_name"]],
        )
        for row in spans.collect()  # one a queue
    ]
    return Coverage(F.broadcast(warehouse.frame(rows, _COLUMNS)), gaps)


def checks(warehouse: Warehouse, pins: Pins, standing: Standing) -> DataFrame:
    """Returns how far each broker's own check has come in its half queues, and since when, if that was landed."""
    columns = ("broker_name", "queue_id", "check_offset", "check_since")
    rows = standing.own_names(progress_rows(warehouse, pins["landing_progress"]))
    found = [[row[c] for c in columns] for row in rows if row["check_offset"] is not None]
    return warehouse.frame(found, "broker_name STRING, queue_id INT, check_offset BIGINT, check_since TIMESTAMP")


def _queues(progress: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in progress if row["topic"] != COMMIT_LOG]


def _micros(known_until: Any) -> int:
    return NO_TIME if known_until is None else micros(known_until)


def _gaps(warehouse: Warehouse, pins: Pins) -> list[Gap]:
    """Ranges that the last look at `rejected` shows as lost and the first does not show as found again.

    The rows of a range that was found between the two looks may not be in the pinned tables.
    """
    lost = _ranges(warehouse, pins["rejected"], LOST)
    return sorted(lost - _ranges(warehouse, pins[LOST_AT_FIRST], FOUND), key=lambda gap: (gap.broker_name, gap.begin))


def _ranges(warehouse: Warehouse, version: int, reason: str) -> set[Gap]:
    return {_as_gap(broker_name, lost) for broker_name, lost in recorded(warehouse.read(REJECTED, version), reason)}


def _as_gap(broker_name: str, lost: Range) -> Gap:
    """A hole of a queue may be anywhere in the log, because its place there is not known."""
    of_log = lost.topic == COMMIT_LOG
    return Gap(broker_name, lost.since, lost.upto) if of_log else Gap(broker_name, 0, FOREVER)


def _spans() -> list[Column]:
    offset, place = F.col("queue_offset"), F.col("commit_log_offset")
    least = [F.min(offset).alias("first_offset"), F.min(place).alias("first_place")]
    return [*least, F.max(offset).alias("last_offset"), F.max(place).alias("last_place")]


def _around(i: int, gap: Gap) -> list[Column]:
    """A queue's last half message before a gap and its first one after it."""
    mine = F.col("broker_name") == gap.broker_name
    before, after = mine & (F.col("commit_log_offset") < gap.begin), mine & (F.col("commit_log_offset") >= gap.end)
    return [
        F.max(F.when(before, F.unix_micros("store_timestamp"))).alias(f"since_{i}"),
        F.max(F.when(before, F.col("queue_offset"))).alias(f"below_{i}"),
        F.min(F.when(after, F.col("queue_offset"))).alias(f"above_{i}"),
    ]


def _gap(row: Row, i: int, gap: Gap) -> dict[str, int]:
    since = row[f"since_{i}"]
    return {"begin": gap.begin, "end": gap.end, "since": NO_TIME if since is None else since}


def _offset_gap(row: Row, i: int) -> dict[str, int]:
    below, above = row[f"below_{i}"], row[f"above_{i}"]
    return {"below": -1 if below is None else below, "above": FOREVER if above is None else above}
