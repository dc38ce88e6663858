"""How far the ops of a queue have landed without a gap: time passes up to the op before the first one that is missing.

Files may land in any order, so ops that landed earlier count as well. `landing_progress` knows of a gap, so that a
landing in order does not read the table of ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.lives import Lives
from halfop.landing import progress
from halfop.landing.fields import LONG_MAX
from halfop.landing.progress import Complete, OffsetSpan, Queue
from halfop.landing.table_rows import RESOLVE
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import Compared, all_of, equal, one_of


def complete(
    warehouse: Warehouse,
    queues: Iterable[Queue],
    landed: Mapping[Queue, OffsetSpan],
    lives: Mapping[str, Lives],
) -> dict[Queue, Complete]:
    """Returns how far the ops of each queue in the table are complete; `lives` are of brokers that have several."""
    found, before = {}, progress.of_ops(warehouse)
    for queue in queues:
        row, span = before.get(queue), landed.get(queue)
        start = row.next_offset if row and row.next_offset is not None else span.lowest if span else None
        highest = row.highest_offset if row else None
        if start is not None:
            known = Complete(start, None, highest if highest is not None and highest > start else None)
            ops = _Ops(warehouse, queue, [*lives.values()])
            found[queue] = _joined(ops, known, span) if span else known
    return found


def known_by_ops(halves: Iterable[Queue], ops: Mapping[Queue, Complete]) -> dict[Queue, int | None]:
    """The known-until without --known-until: each broker's newest op, but of a queue with a gap its own before that."""
    newest: dict[str, int] = {}
    for queue, found in ops.items():
        if found.newest is not None:
            newest[queue.broker_name] = max(found.newest, newest.get(queue.broker_name, found.newest))
    known = {queue: newest.get(queue.broker_name) for queue in {*halves, *ops}}
    return known | {queue: found.newest for queue, found in ops.items() if found.highest is not None}


@dataclass(frozen=True)
class _Ops:
    """Ops of a queue that have landed; those of a later life may be under the name of an earlier one."""

    warehouse: Warehouse
    queue: Queue
    lives: Sequence[Lives]

    def since(self, offset: int) -> DataFrame:
        name, queue_id = self.queue
        mine = next((each for each in self.lives if name in each.names), Lives(name))
        near = one_of("broker_name", mine.names)
        ops = self.warehouse.read(
            "op_messages", where=all_of(near, equal("queue_id", queue_id), Compared("queue_offset", ">=", offset))
        )
        number = mine.names.index(name) + 1
        own = (F.col("broker_name") == name) & F.col("life").isNull()
        given_by_us = F.col("source").eqNullSafe(F.lit(RESOLVE))
        return ops.where(~given_by_us & (own | (F.col("life") == number))).select("queue_offset", "store_timestamp")


def _joined(landed: _Ops, known: Complete, span: OffsetSpan) -> Complete:
    """The known offsets of a queue together with the ops that landed now."""
    start, end = known.next_offset, min(span.highest + 1, LONG_MAX)
    if known.highest is None:
        if span.whole and span.lowest <= start:
            return Complete(max(start, end), span.newest if end > start else None)
        if span.lowest > start:
            return Complete(start, None, end)
    elif end <= start:
        return known
    return _beyond(landed.since(start), start)


def _beyond(ops: DataFrame, start: int) -> Complete:
    """The same of all ops at or above the first offset that was missing."""
    offsets = ops.select("queue_offset").distinct()
    bounds = offsets.agg(F.min("queue_offset").alias("low"), F.max("queue_offset").alias("high")).collect()[0]
    if bounds["low"] is None:
        return Complete(start, None)
    highest = min(bounds["high"] + 1, LONG_MAX)
    if bounds["low"] > start:
        return Complete(start, None, highest)
    follow = offsets.select((F.col("queue_offset") - 1).alias("queue_offset"))
    last = offsets.join(follow, "queue_offset", "left_anti").agg(F.min("queue_offset").alias("at")).collect()[0]["at"]
    newest = ops.where(F.col("queue_offset") <= last).agg(F.max(F.unix_micros("store_timestamp")).alias("at"))
    return Complete(min(last + 1, LONG_MAX), newest.collect()[0]["at"], highest if last < bounds["high"] else None)
