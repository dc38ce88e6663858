"""Appended records on their way to the disk: buffered, taken as a batch, and made durable by a thread.

What it cannot write ends the process, so that nobody acknowledges it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from halfop.gateway.log.files import LogFiles, LogRun
from halfop.gateway.log.queues import LogQueue
from halfop.gateway.log.records import tags_code_of
from halfop.rocketmq.message import BLANK_SIZE, Message, Place, blank
from halfop.rocketmq.store.consumequeue import PACKED

DISK_FAILED = 74  # EX_IOERR: the exit status of a gateway whose disk failed
# After a flush of so many records the next one waits, so that it has many as well: each costs its calls of the system.
_MANY, _REST_SECONDS = 16, 0.002
_WAY_OUT = "%s: repair the disk, or make room on it, and start again: all that was acknowledged is there"

_log = logging.getLogger(__name__)


@dataclass
class Batch:
    """Records that become durable together: their bytes, and their units by queue."""

    runs: list[LogRun]
    units: dict[LogQueue, list[bytes]] = field(default_factory=dict)
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

    def put(self, queue: LogQueue, message: Message, now_ms: int) -> tuple[Place, bytes]:
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
        return Batch([LogRun(self.end, self._chunks)])

    def _room(self, size: int) -> int:
        """The place of a record of that size: the end, or the next file if this one has no room for it."""
        left = self._file_size - self.end % self._file_size
        if size + BLANK_SIZE > self._file_size:
            raise ValueError(f"a record of {size} bytes does not fit into a file of {self._file_size}")
        if size + BLANK_SIZE > left:
            self._chunks.append(blank(left))
            self.end += left
            self._chunks = []
            self._batch.runs.append(LogRun(self.end, self._chunks))
        return self.end


class Flusher:
    """Takes batches by `swap`, writes each, and then says with `flushed` up to where the log is durable.

    An error of the disk ends the process at once: after a failed fsync nobody knows what is on the disk.
    """

    def __init__(self, files: LogFiles, swap: Callable[[], Batch | None], flushed: Callable[[int], None]) -> None:
        self._files, self._swap, self._flushed = files, swap, flushed
        self._appended = Event()
        self._closing = False
        self._thread = Thread(target=self._run, name="gateway-log", daemon=True)

    def start(self) -> None:
        """Begins to flush whenever something is appended."""
        self._thread.start()

    def wake(self) -> None:
        """Has what was appended written soon."""
        if not self._appended.is_set():
            self._appended.set()

    def close(self) -> None:
        """Writes what is left, and ends the thread."""
        self._closing = True
        self._appended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing:
                self._appended.wait()
                self._appended.clear()
                self._flush()
            self._flush()
        except BaseException as error:
            end_process(self._files.folder, error)

    def _flush(self) -> None:
        while (batch := self.flush_once()) is not None:
            if batch.records >= _MANY and not self._closing:
                time.sleep(_REST_SECONDS)

    def flush_once(self) -> Batch | None:
        """Makes durable what has been appended, and returns it; None if nothing has."""
        batch = self._swap()
        if batch is not None:
            self._files.write(batch.runs)
            write_units(batch.units)
            self._flushed(batch.end)
        return batch


def write_units(units: Mapping[LogQueue, list[bytes]]) -> None:
    """Writes the units of durable records, after which their queues can be read to there."""
    for queue, packed in units.items():
        queue.write(queue.flushed, b"".join(packed))
        queue.flushed += len(packed)


def end_process(folder: Path, error: BaseException) -> None:
    """Ends the process without another answer."""
    trace = None if isinstance(error, OSError) else error
    _log.critical("the log cannot be written, so this process ends: %s. %s", error, _WAY_OUT % folder, exc_info=trace)
    for handler in logging.getLogger().handlers:
        handler.flush()
    os._exit(DISK_FAILED)
