"""The thread that makes appended records durable.

What it cannot write ends the process, so that nobody acknowledges it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Thread

from halfop.gateway.log.buffer import Batch
from halfop.gateway.log.files import LogFiles
from halfop.gateway.log.queues import Queue

DISK_FAILED = 74  # EX_IOERR: the exit status of a gateway whose disk failed
# After a flush of so many records the next one waits, so that it has many as well: each costs its calls of the system.
_MANY, _REST_SECONDS = 16, 0.002

_WAY_OUT = "%s: repair the disk, or make room on it, and start again: all that was acknowledged is there"
_log = logging.getLogger(__name__)


class Flusher:
    """Takes batches by `swap`, writes each, and then says with `flushed` up to where the log is durable.

    An error of the disk ends the process at once: after a failed fsync nobody knows what is on the disk.
    """

    def __init__(self, files: LogFiles, swap: Callable[[], Batch | None], flushed: Callable[[int], None]) -> None:
        self._files, self._swap, self._flushed = files, swap, flushed
        self._appended = Event()
        self._closing = False
        self._thread = Thread(target=self._run, name="gateway-log", daemon=True)
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
        while (batch := self._swap()) is not None:
            self._files.write(batch.runs)
            write_units(batch.units)
            self._flushed(batch.end)
            if batch.records >= _MANY and not self._closing:
                time.sleep(_REST_SECONDS)


def write_units(units: Mapping[Queue, list[bytes]]) -> None:
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
