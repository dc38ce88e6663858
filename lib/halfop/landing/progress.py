"""landing_progress: how far each queue has landed, written so that it never goes back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.landing.check import Queue, Span
from halfop.landing.fields import LONG_MAX
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.warehouse.schema import table
from halfop.warehouse.tables import Warehouse

TABLE = "landing_progress"
_SAME_ROW = "old.broker_name = new.broker_name AND old.topic = new.topic AND old.queue_id = new.queue_id"
_RAW = (
    "broker_name STRING, topic STRING, queue_id INT, next_offset BIGINT, "
    "known_until BIGINT, landed_at BIGINT, first_offset BIGINT"
)
# greatest and least pass over nulls
_FORWARD: dict[str, str | Column] = {
    "next_offset": "greatest(old.next_offset, new.next_offset)",
    "known_until": "greatest(old.known_until, new.known_until)",
    "landed_at": "greatest(old.landed_at, new.landed_at)",
    "first_offset": "least(old.first_offset, new.first_offset)",
}


class QueueRow(NamedTuple):
    """A row; instants as epoch microseconds."""

    broker_name: str
    topic: str
    queue_id: int
    next_offset: int | None
    known_until: int | None
    landed_at: int
    first_offset: int | None


@dataclass(frozen=True)
class Landed:
    """What a landing brings, by queue: spans of halves and of ops, and until when the op log is now known."""

    halves: Mapping[Queue, Span]
    ops: Mapping[Queue, Span]
    known_until: Mapping[Queue, int | None]

    @property
    def queues(self) -> list[Queue]:
        return sorted({*self.halves, *self.ops, *self.known_until})


def known_by_ops(halves: Iterable[Queue], ops: Mapping[Queue, Span]) -> dict[Queue, int | None]:
    """Without --known-until: each broker's newest op that landed now, for all its queues that landed now."""
    newest: dict[str, int] = {}
    for queue, span in ops.items():
        newest[queue.broker_name] = max(span.newest, newest.get(queue.broker_name, span.newest))
    return {queue: newest.get(queue.broker_name) for queue in {*halves, *ops}}


def rows_before(landed: Landed, landed_at: int) -> list[QueueRow]:
    """The queues' rows as they are written first: where a queue is new, no time has passed for it."""
    return [QueueRow(*_key(queue, topic), None, None, landed_at, None) for queue in landed.queues for topic in _TOPICS]


def rows_after(landed: Landed, landed_at: int) -> list[QueueRow]:
    return [_row(landed, queue, topic, landed_at) for queue in landed.queues for topic in _TOPICS]


_TOPICS = (HALF_TOPIC, OP_TOPIC)


def _key(queue: Queue, topic: str) -> tuple[str, str, int]:
    return queue.broker_name, topic, queue.queue_id


def _row(landed: Landed, queue: Queue, topic: str, landed_at: int) -> QueueRow:
    span = (landed.halves if topic == HALF_TOPIC else landed.ops).get(queue)
    known = landed.known_until.get(queue)
    following = None if span is None else min(span.highest + 1, LONG_MAX)
    return QueueRow(*_key(queue, topic), following, known, landed_at, None if span is None else span.lowest)


def queues(warehouse: Warehouse) -> set[tuple[str, str, int]]:
    """The rows there are; one a queue and topic, so it may be collected."""
    rows = warehouse.read(TABLE).select("broker_name", "topic", "queue_id").collect()
    return {(row.broker_name, row.topic, row.queue_id) for row in rows}


def add_missing(warehouse: Warehouse, rows: Iterable[QueueRow]) -> None:
    warehouse.make(TABLE)
    present = queues(warehouse)
    missing = [row for row in rows if row[:3] not in present]
    if missing:
        merge = _target(warehouse).merge(_frame(warehouse, missing).alias("new"), _SAME_ROW)
        merge.whenNotMatchedInsertAll().execute()


def move(warehouse: Warehouse, rows: Iterable[QueueRow]) -> None:
    """Moves the rows forward; what lies behind them already stays."""
    merge = _target(warehouse).merge(_frame(warehouse, rows).alias("new"), _SAME_ROW)
    merge.whenMatchedUpdate(set=_FORWARD).whenNotMatchedInsertAll().execute()


def known_until(warehouse: Warehouse, of: Iterable[Queue]) -> list[int | None]:
    """Until when the op log of these queues is known, as it stands now."""
    wanted = set(of)
    rows = warehouse.read(TABLE).where(F.col("topic") == OP_TOPIC)
    found = rows.select("broker_name", "queue_id", F.unix_micros("known_until").alias("known")).collect()
    return [row.known for row in found if Queue(row.broker_name, row.queue_id) in wanted]


def _target(warehouse: Warehouse) -> DeltaTable:
    return DeltaTable.forPath(warehouse.spark, warehouse.path(TABLE)).alias("old")


def _frame(warehouse: Warehouse, rows: Iterable[QueueRow]) -> DataFrame:
    instants = {name: F.timestamp_micros(name) for name in ("known_until", "landed_at")}
    return warehouse.frame(rows, _RAW).withColumns(instants).select(*table(TABLE).names)
