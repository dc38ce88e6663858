"""Checks that a source is the broker whose messages have landed under its name, and one that halfop can follow."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NoReturn

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.lives import own_name
from halfop.frame.errors import InputRefused, UsageError
from halfop.landing.cuts import MessagePlace
from halfop.landing.progress import ProgressRow, Queue
from halfop.rocketmq.names import ROCKSDB_TOPICS
from halfop.rocketmq.wire.client import Broker
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


_WAY_OUT = (
    "set transWriteOriginTransHalfEnable=true at the broker, which then writes both forms; it can be landed and ended "
    f"as soon as its log has no messages of {ROCKSDB_TOPICS[0]} any more, and until then its own checks end those"
)


def refuse_rocksdb(where: str, name: str) -> NoReturn:
    """Raises InputRefused for a broker of this name."""
    problem = f"{name} keeps its transactions in RocksDB alone (RocketMQ 5.4 and later), which halfop cannot read"
    raise InputRefused(where, None, problem, _WAY_OUT)


def refuse_rocksdb_broker(broker: Broker, name: str, is_configured: bool) -> None:
    """Raises InputRefused for a running broker that is configured so, or has such messages still."""
    if is_configured or _has_such(broker):
        refuse_rocksdb(broker.remote.address, name)


def _has_such(broker: Broker) -> bool:
    queues = [(topic, 0) for topic in ROCKSDB_TOPICS]
    ends = broker.max_offsets(queues)
    return any(ends) and any(end > first for end, first in zip(ends, broker.min_offsets(queues), strict=True))


def refuse_landed_with_rocksdb_alone(warehouse: Warehouse, names: Collection[str]) -> None:
    """Raises InputRefused if one of these brokers has landed so: earlier versions took its ends for garbage."""
    for row in progress_rows(warehouse) if names else ():
        if row["broker_name"] in names and row["topic"] in ROCKSDB_TOPICS and row["next_offset"]:
            refuse_rocksdb(warehouse.path(TABLE), row["broker_name"])
