"""A broker's answers to pulls as checked records."""

from __future__ import annotations

import numpy as np

from halfop.rocketmq.batches import kinds_of
from halfop.rocketmq.record import Records, chain
from halfop.rocketmq.wire.pull import Chunk, QueueRange
from halfop.rocketmq.wire.remoting import Corrupt


def checked(address: str, asked: QueueRange, pulled: Chunk, kind: str) -> Records:
    """The pulled messages of a kind. Raises Corrupt if a check fails."""
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
    return mine
