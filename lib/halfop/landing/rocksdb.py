"""Refuses brokers that keep their transactions in RocksDB alone: nobody could see there how a transaction ended."""

from __future__ import annotations

from collections.abc import Collection
from typing import NoReturn

from halfop.frame.errors import InputRefused
from halfop.rocketmq.names import ROCKSDB_TOPICS
from halfop.rocketmq.wire.client import Broker
from halfop.warehouse.progress import TABLE, progress_rows
from halfop.warehouse.tables import Warehouse

_WAY_OUT = (
    "set transWriteOriginTransHalfEnable=true at the broker, which then writes both forms; it can be landed and ended "
    f"as soon as its log has no messages of {ROCKSDB_TOPICS[0]} any more, and until then its own checks end those"
)


def refuse(where: str, name: str) -> NoReturn:
    """Raises InputRefused for a broker of this name."""
    problem = f"{name} keeps its transactions in RocksDB alone (RocketMQ 5.4 and later), which halfop cannot read"
    raise InputRefused(where, None, problem, _WAY_OUT)


def refuse_broker(broker: Broker, name: str, is_configured: bool) -> None:
    """Raises InputRefused for a running broker that is configured so, or has such messages still."""
    if is_configured or _has_such(broker):
        refuse(broker.remote.address, name)


def _has_such(broker: Broker) -> bool:
    queues = [(topic, 0) for topic in ROCKSDB_TOPICS]
    ends = broker.max_offsets(queues)
    return any(ends) and any(end > first for end, first in zip(ends, broker.min_offsets(queues), strict=True))


def refuse_landed(warehouse: Warehouse, names: Collection[str]) -> None:
    """Raises InputRefused if one of these brokers has landed so: earlier versions took its ends for garbage."""
    for row in progress_rows(warehouse) if names else ():
        if row["broker_name"] in names and row["topic"] in ROCKSDB_TOPICS and row["next_offset"]:
            refuse(warehouse.path(TABLE), row["broker_name"])
