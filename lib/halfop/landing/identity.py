"""Checks that a source is the broker whose messages have landed under its name."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.lives import Lives, own_name
from halfop.frame.errors import InputRefused, UsageError
from halfop.landing.cuts import LandedQueue, MessagePlace, There
from halfop.landing.progress import ProgressRow, Queue
from halfop.rocketmq.batches import HALF, OP
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS, ROCKSDB_QUEUES, ROCKSDB_TOPICS
from halfop.warehouse.progress import TABLE, progress_rows
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.where import Compared, all_of, equal


def refuse_name(name: str) -> None:
    """Raises UsageError for a --broker-name that is no broker's own. RocketMQ itself refuses none."""
    own = own_name(name)
    if own != name:
        raise UsageError(f"--broker-name {name}: that is how a later life is named; give the broker's own name: {own}")
    if not name:
        raise UsageError("--broker-name is empty: the name is part of every key; give the broker's brokerName")


def is_same(warehouse: Warehouse, lives: Lives, there: There, rows: Iterable[ProgressRow]) -> bool:
    """Returns whether a broker, or its store, has each queue's newest half and op message where they have landed.

    A place that it lacks says nothing: an old copy ends before it, an aged one has deleted it.
    """
    if is_reused(warehouse, lives.current):
        return False
    own = [row for row in rows if row.topic in (*HALF_TOPICS, *OP_TOPICS)]
    return all(_is_there(warehouse, lives, there, row) for row in own)


def _is_there(warehouse: Warehouse, lives: Lives, there: There, row: ProgressRow) -> bool:
    first, end = there.span(row.topic, row.queue_id)
    kind = HALF if row.topic in HALF_TOPICS else OP
    newest = newest_half(warehouse, row, end) if kind == HALF else _newest_op(warehouse, lives, row, end)
    if newest is None or not first <= newest[0] < end:
        return True
    found = there.place(kind, row.topic, row.queue_id, newest[0])
    return found is None or any(found.agrees(place) for place in newest[1])


def _newest_op(warehouse: Warehouse, lives: Lives, row: ProgressRow, end: int) -> tuple[int, list[MessagePlace]] | None:
    if not row.next_offset:
        return None
    found = LandedQueue(warehouse, lives, OP, row.queue_id).at_or_after(min(row.next_offset, end) - 1)
    return (found.offset, [found]) if found else None


def newest_half(warehouse: Warehouse, row: ProgressRow, end: int) -> tuple[int, list[MessagePlace]] | None:
    """Returns the offset of a queue's newest half message that has landed before `end`, and what distinguishes it.

    There are two places if two messages have landed under one queue offset. A killed landing has not moved progress,
    so what lies above is looked at, too; of a first landing all half messages.
    """
    last = None if row.next_offset is None else min(row.next_offset, end) - 1
    since = () if last is None else (Compared("queue_offset", ">=", last),)
    mine = all_of(equal("broker_name", row.broker_name), equal("queue_id", row.queue_id), *since)
    found = _places(warehouse.read("half_messages", where=mine).where(F.col("queue_offset") < end))
    if not found and row.next_offset is not None:  # `maintain` may have trimmed it; its decision stays
        found = [
            place for place in _places(_decided(warehouse, row, row.next_offset - 1)) if place.log_offset is not None
        ]
    return (found[0].offset, found) if found else None


def _places(rows: DataFrame) -> list[MessagePlace]:
    """The places of the messages under the last offset of these rows."""
    place = F.struct("queue_offset", "commit_log_offset", F.unix_millis("store_timestamp").alias("stored"), "uniq_key")
    last = rows.groupBy("queue_offset").agg(F.collect_set(place).alias("places")).orderBy(F.desc("queue_offset"))
    return [MessagePlace(*each) for row in last.limit(1).collect() for each in row["places"]]


def _decided(warehouse: Warehouse, row: ProgressRow, offset: int) -> DataFrame:
    queue = (equal("broker_name", row.broker_name), equal("queue_id", row.queue_id))
    rows = warehouse.read("decisions", where=all_of(*queue, equal("queue_offset", offset)))
    return rows.where(F.col("decision") != "EARLY_OP")


def reused_queues(warehouse: Warehouse, queues: Iterable[Queue]) -> list[Queue]:
    """The queues in which a run has found a reused key: their broker was rebuilt under its old name."""
    wanted = set(queues)
    if not wanted or warehouse.version("rejected") == NO_TABLE:
        return []
    rejected = warehouse.read("rejected", where=equal("reason", "KEY_REUSED"))
    found = {Queue(r.broker_name, r.queue_id) for r in rejected.select("broker_name", "queue_id").distinct().collect()}
    return sorted(found & wanted)


def is_reused(warehouse: Warehouse, broker_name: str) -> bool:
    """Returns whether a run has found a reused key in a half queue of a broker's."""
    return bool(reused_queues(warehouse, [Queue(broker_name, queue) for queue in (0, ROCKSDB_QUEUES)]))


def refuse_landed_before(warehouse: Warehouse, names: Collection[str]) -> None:
    """Raises InputRefused if an earlier version has landed transactions in RocksDB of one of these brokers.

    It took their ends for garbage, and now they would land a second time, under other keys.
    """
    for row in progress_rows(warehouse) if names else ():
        earlier = row["topic"] in ROCKSDB_TOPICS and row["queue_id"] < ROCKSDB_QUEUES and row["next_offset"]
        if row["broker_name"] in names and earlier:
            problem = f"an earlier version has landed {row['broker_name']}'s transactions in RocksDB without their ends"
            raise InputRefused(warehouse.path(TABLE), None, problem, "land this broker into a new warehouse")
