"""Reads of what is durable: records by their place, by queue and offset, and by time."""

from __future__ import annotations

from collections.abc import Callable

from halfop.gateway.log.files import LogFiles
from halfop.gateway.log.halves import halves_of
from halfop.gateway.log.messages import Half, Pulled, Unit
from halfop.gateway.log.queues import Queue, Queues
from halfop.gateway.log.records import HEAD, store_ms_of
from halfop.rocketmq.names import HALF_TOPIC
from halfop.rocketmq.record import MAGIC_V1, MAX_SIZE, MIN_SIZE, chain

_HEAD_AND_TIME = 100


class Reader:
    """Reads of a log up to where it is flushed."""

    def __init__(self, files: LogFiles, queues: Queues, flushed_to: Callable[[], int]) -> None:
        self._files, self._queues, self._flushed_to = files, queues, flushed_to

    def record(self, physical_offset: int) -> bytes | None:
        """The record that begins there; None if none does."""
        head = self._files.read(physical_offset, HEAD.size) if physical_offset < self._flushed_to() else b""
        if len(head) < HEAD.size:
            return None
        size, magic, _, queue_id, _, queue_offset, place, _, _ = HEAD.unpack(head)
        if magic != MAGIC_V1 or place != physical_offset or not MIN_SIZE <= size <= MAX_SIZE:
            return None
        content = self._files.read(physical_offset, size)
        records = chain(content, physical_offset).records
        if len(records) != 1:
            return None
        queue = self._queues.known(records.topics()[0].as_py().decode(errors="replace"), queue_id)
        units = queue.units(queue_offset, 1) if queue else []  # a body can hold what looks like a record
        return content if units and units[0].physical_offset == physical_offset else None

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
            record = self._files.read(unit.physical_offset, unit.size)
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
        return store_ms_at(self._files, units[0].physical_offset) if units else None


def store_ms_at(files: LogFiles, physical_offset: int) -> int | None:
    """The store time of the record that begins there; None if the log has nothing there."""
    head = files.read(physical_offset, _HEAD_AND_TIME)
    return store_ms_of(head) if len(head) == _HEAD_AND_TIME and any(head) else None
