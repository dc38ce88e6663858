"""Records that have been appended to the log and are not written yet: swapped as a whole when a flush begins."""

from __future__ import annotations

from dataclasses import dataclass, field

from halfop.gateway.log.files import Run
from halfop.gateway.log.queues import Queue
from halfop.gateway.log.records import tags_code_of
from halfop.rocketmq.message import BLANK_SIZE, Message, Place, blank
from halfop.rocketmq.store.consumequeue import PACKED


@dataclass
class Batch:
    """Records that become durable together: their bytes, and their units by queue."""

    runs: list[Run]
    units: dict[Queue, list[bytes]] = field(default_factory=dict)
    size: int = 0
    end: int = 0
    oldest_ms: int | None = None  # the first one's store time

    @property
    def records(self) -> int:
        return sum(map(len, self.units.values()))


class Buffer:
    """Gives messages their places, in the order in which they come. For one thread at a time.

    `end` is the physical offset after the last one, `newest_ms` its store time: store times never go back.
    """

    def __init__(self, end: int, newest_ms: int, file_size: int) -> None:
        self.end, self.newest_ms, self._least_ms = end, newest_ms, newest_ms
        self._file_size = file_size
        self._batch = self._new_batch()

    def put(self, queue: Queue, message: Message, now_ms: int) -> tuple[Place, bytes]:
        """Appends a message, and returns the place that it got, and its record."""
        size = message.size()
        at = self._room(size)
        self.newest_ms = store_ms = self.not_before(now_ms)
        place = Place(queue.next, at, size, store_ms)
        record = message.packed(place)
        self._chunks.append(record)
        unit = PACKED.pack(at, size, tags_code_of(message))
        units = self._batch.units.get(queue)
        if units is None:
            self._batch.units[queue] = [unit]
        else:
            units.append(unit)
        queue.next += 1
        self.end = at + size
        self._batch.size += size
        if self._batch.oldest_ms is None:
            self._batch.oldest_ms = store_ms
        return place, record

    @property
    def oldest_ms(self) -> int | None:
        """The store time of the first message since the last swap; None if there is none."""
        return self._batch.oldest_ms

    def not_before(self, now_ms: int) -> int:
        """The instant, or a later one: nothing is stored before it from now on, also if the clock is set back."""
        self._least_ms = max(self._least_ms, now_ms)
        return self._least_ms

    def swap(self) -> Batch | None:
        """Takes what has been appended since the last swap; None if nothing has."""
        if not self._batch.size:
            return None
        batch, batch.end = self._batch, self.end
        self._batch = self._new_batch()
        return batch

    def _new_batch(self) -> Batch:
        self._chunks: list[bytes] = []
        return Batch([Run(self.end, self._chunks)])

    def _room(self, size: int) -> int:
        """The place of a record of that size: the end, or the next file if this one has no room for it."""
        left = self._file_size - self.end % self._file_size
        if size + BLANK_SIZE > self._file_size:
            raise ValueError(f"a record of {size} bytes does not fit into a file of {self._file_size}")
        if size + BLANK_SIZE > left:
            self._chunks.append(blank(left))
            self.end += left
            self._chunks = []
            self._batch.runs.append(Run(self.end, self._chunks))
        return self.end
