"""Reads of what is durable: records by their place, by queue and offset, and by time."""

from __future__ import annotations

from collections.abc import Callable

from halfop.gateway.log.files import LogFiles
from halfop.gateway.log.halves import halves_of
from halfop.gateway.log.messages import Half, Pulled
from halfop.gateway.log.queues import Queue, Queues
from halfop.rocketmq.message import FIXED, store_ms_of
from halfop.rocketmq.names import HALF_TOPIC
from halfop.rocketmq.properties import decoded
from halfop.rocketmq.record import MAX_SIZE, MIN_SIZE, chain
from halfop.rocketmq.store.consumequeue import Unit


class Reader:
    """Reads of a log up to where it is flushed."""

    def __init__(self, files: LogFiles, queues: Queues, flushed_to: Callable[[], int]) -> None:
        self._files, self._queues, self._flushed_to = files, queues, flushed_to

    def record(self, physical_offset: int) -> bytes | None:
        """The record that begins there; None if none does."""
        head = self._files.read(physical_offset, MIN_SIZE) if physical_offset < self._flushed_to() else b""
        size = int.from_bytes(head[:4], "big")
        content = self._files.read(physical_offset, size) if MIN_SIZE <= size <= MAX_SIZE else b""
        records = chain(content, physical_offset).records
        if len(records) != 1:
            return None
        queue = self._queues.known(decoded(records.topics()[0].as_py()), int(records.head["queue_id"][0]))
        # a body can hold what looks like a record
        units = queue.units(int(records.head["queue_offset"][0]), 1) if queue else []
        return content if units and units[0].physical == physical_offset else None

    def half(self, physical_offset: int) -> Half | None:
        """The half message that begins there, open or ended; None if none does."""
        content = self.record(physical_offset)
        records = chain(content or b"", physical_offset).records
        if not len(records) or records.topics()[0].as_py() != HALF_TOPIC.encode():
            return None
        return halves_of(records)[0]

    def pull(self, queue: Queue, offset: int, count: int, most_bytes: int) -> Pulled:
        """Records from an offset on: at most `count`, and no more bytes than that unless the first one has more."""
        found: list[bytes] = []
        left = most_bytes
        for unit in queue.units(offset, count):
            left -= unit.size
            if found and left < 0:
                break
            record = self._files.read(unit.physical, unit.size)
            if len(record) < unit.size:  # removed meanwhile
                break
            found.append(record)
        return Pulled(found, offset + len(found))

    def offset_at(self, queue: Queue, millis: int) -> int:
        """The first offset whose message was stored at that instant or later; the next one if none was."""
        low, high = queue.offsets
        while low < high:
            middle = (low + high) // 2
            stored = self._stored(queue.units(middle, 1))
            if stored is not None and stored >= millis:
                high = middle
            else:
                low = middle + 1
        return low

    def _stored(self, units: list[Unit]) -> int | None:
        return store_ms_at(self._files, units[0].physical) if units else None


def store_ms_at(files: LogFiles, physical_offset: int) -> int | None:
    """The store time of the record that begins there; None if the log has nothing there."""
    head = files.read(physical_offset, FIXED)
    return store_ms_of(head) if len(head) == FIXED and any(head) else None
