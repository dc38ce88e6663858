"""The consume queues: for each message of a topic's queue, the place of its record in the commit log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from halfop.frame.errors import HalfopError
from halfop.frame.trouble import named, sync
from halfop.gateway.core.messages import QueueOffsets
from halfop.gateway.log.files import Handles, opened_to_write, write_all
from halfop.rocketmq.store.commitlog import store_files
from halfop.rocketmq.store.consumequeue import BLANK, PACKED, ConsumeQueue, Unit

FILE_UNITS = 300_000  # a broker's default
_MOST_OPEN = 256


class LogQueue:
    """One queue of a topic, and its files.

    `next` is the offset that the next message gets; messages from `first` to `flushed` - 1 can be read.
    """

    def __init__(self, folder: Path, topic: str, number: int, file_units: int, handles: Handles) -> None:
        self.folder, self.topic, self.number, self._handles = folder, topic, number, handles
        self._file_size = file_units * PACKED.size
        self.first = self.next = self.flushed = 0
        self._dirty: set[int] = set()
        self._new_files = self._unsure = False

    @property
    def offsets(self) -> QueueOffsets:
        return QueueOffsets(self.first, self.flushed)

    def begin(self, offset: int) -> None:
        """Begins an empty queue at an offset; the units before it in its file are blank, as a broker has them."""
        before = offset % (self._file_size // PACKED.size)
        self.write(offset - before, BLANK * before)
        self.first = self.next = self.flushed = offset

    def write(self, offset: int, units: bytes) -> None:
        """Writes units from an offset on; they are durable after `sync`."""
        at, left = offset * PACKED.size, memoryview(units)
        while left:
            begin = at - at % self._file_size
            part = left[: begin + self._file_size - at]
            write_all(self._handles.get(self, begin, self._opened), part, at - begin)
            self._dirty.add(begin)
            at, left = at + len(part), left[len(part) :]

    def units(self, offset: int, count: int) -> list[Unit]:
        """Up to `count` flushed units from an offset on; none if it is not in the queue."""
        found: list[Unit] = []
        end = min(offset + count, self.flushed)
        at = offset * PACKED.size if self.first <= offset else end * PACKED.size
        while at < end * PACKED.size:
            begin = at - at % self._file_size
            length = min(end * PACKED.size, begin + self._file_size) - at
            with self._file(begin) as handle:
                found += map(Unit._make, PACKED.iter_unpack(os.pread(handle, length, at - begin)))
            at += length
        return found

    def first_from(self, physical_offset: int) -> int:
        """The offset of the first message whose record is at or after a place; the next offset if none is."""
        return self._as_read().first_from(physical_offset) if self.next else 0

    def sync(self) -> None:
        """Makes all units durable that have been written before the call.

        Once that has failed it fails for good: the system forgets what it could not write. A start writes them again.
        """
        if self._unsure:
            raise HalfopError(f"{self.folder}: a sync has failed, and no file of the log goes: start the gateway again")
        self._unsure = True
        for begin in list(self._dirty):
            self._dirty.discard(begin)  # first: what is written meanwhile adds it again
            with named(self.folder), self._file(begin) as handle:
                os.fsync(handle)
        if self._new_files:
            self._new_files = False
            for folder in (self.folder, self.folder.parent, self.folder.parent.parent):
                sync(folder)
        self._unsure = False

    def recover(self, log_first: int, checked: int) -> None:
        """Reads the queue's offsets from its files, and cuts units of places from `checked` on."""
        self._close_gaps()
        if not self.folder.is_dir() or not store_files(self.folder):
            return
        found = self._as_read()
        self.first = found.first_from(log_first)
        self.next = self.flushed = max(found.kept_before(checked), self.first)
        self._cut(self.next * PACKED.size)

    def remove_before(self, log_first: int) -> None:
        """Moves the first offset to the first place from `log_first` on, and removes files before it; not the last."""
        self.first = min(max(self.first_from(log_first), self.first), self.flushed)
        if not self.folder.is_dir():
            return
        for file in store_files(self.folder)[:-1]:
            if file.end <= self.first * PACKED.size:
                os.unlink(file.path)
                self._dirty.discard(file.first)

    def _as_read(self) -> ConsumeQueue:
        return ConsumeQueue(str(self.folder), self.topic, self.number)

    def _close_gaps(self) -> None:
        """Makes short files whole, and removes those after a missing one: a power cut leaves both.

        Units that are missing then are written again, or the start is refused.
        """
        following: int | None = None
        for path in sorted(self.folder.glob("[0-9]" * 20)):
            if following is not None and int(path.name) > following:
                path.unlink()
            else:
                if path.stat().st_size < self._file_size:
                    os.truncate(path, self._file_size)
                following = int(path.name) + self._file_size

    def _cut(self, end: int) -> None:
        files = store_files(self.folder)
        for file in files:
            if file.first >= end and file is not files[0]:
                os.unlink(file.path)
            elif file.end > end:
                os.truncate(file.path, max(end - file.first, 0))
                os.truncate(file.path, self._file_size)

    def _opened(self, begin: int) -> int:
        """A handle to write a file by, which is made if it is missing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = opened_to_write(f"{self.folder}/{begin:020d}")
        if not os.fstat(handle).st_size:
            os.ftruncate(handle, self._file_size)
            self._new_files = True
        return handle

    @contextmanager
    def _file(self, begin: int) -> Iterator[int]:
        handle = os.open(f"{self.folder}/{begin:020d}", os.O_RDWR | os.O_CLOEXEC)
        try:
            yield handle
        finally:
            os.close(handle)


class Queues:
    """All queues of a store, by topic and number."""

    def __init__(self, folder: Path, file_units: int = FILE_UNITS) -> None:
        self._folder, self._file_units, self._handles = folder, file_units, Handles(_MOST_OPEN)
        folder.mkdir(exist_ok=True)
        self._all: dict[tuple[str, int], LogQueue] = {}
        for topic in sorted(folder.iterdir()):
            for number in topic.iterdir():
                self.get(topic.name, int(number.name))

    def __iter__(self) -> Iterator[LogQueue]:
        return iter(list(self._all.values()))

    def get(self, topic: str, number: int) -> LogQueue:
        """The queue, which need not have a message yet."""
        key = (topic, number)
        found = self._all.get(key)
        if found is None:
            folder = self._folder / topic / str(number)
            found = self._all[key] = LogQueue(folder, topic, number, self._file_units, self._handles)
        return found

    def known(self, topic: str, number: int) -> LogQueue | None:
        """The queue if it has had a message."""
        return self._all.get((topic, number))

    def close(self) -> None:
        """Closes the files that are open."""
        self._handles.close()
