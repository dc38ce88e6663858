"""A broker's answers to pulls as checked Arrow batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from halfop.rocketmq.batches import BATCH, kinds_of
from halfop.rocketmq.record import chain
from halfop.rocketmq.wire.pull import Chunk, QueueRange
from halfop.rocketmq.wire.remoting import Corrupt


def decoded(address: str, asked: QueueRange, pulled: Chunk, kind: str) -> pa.RecordBatch | None:
    """The pulled messages of a kind; None if there are none. Raises Corrupt if a check fails."""
    found = chain(pulled.data)
    records, where = found.records, f"queue {asked.queue} of {asked.topic} from offset {pulled.first}"
    if found.stop is not None:
        raise Corrupt(address, f"{where}: byte {found.stop.position} of the answer: {found.stop.text}")
    offsets = np.arange(pulled.first, pulled.next, dtype=np.int64)
    in_order = len(records) == len(offsets) and bool(np.all(records.longs("queue_offset") == offsets))
    if not in_order or not np.all(records.longs("queue_id") == asked.queue):
        raise Corrupt(address, f"{where}: the messages are not those that were asked for")
    mine = records.select(kinds_of(records, records.topics())[kind])
    if np.any(mine.wrong_body_crc()) or np.any(mine.wrong_property_crc()):
        raise Corrupt(address, f"{where}: a message does not match its CRC")
    return BATCH[kind](mine) if len(mine) else None
