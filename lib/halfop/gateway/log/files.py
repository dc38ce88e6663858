"""Files of a store: replaced as a whole, kept open between writes, and the commit log's, filled from the front."""

from __future__ import annotations

import errno
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from halfop.frame.errors import InputRefused
from halfop.frame.trouble import named, sync
from halfop.rocketmq.store.commitlog import StoreFile, store_files

_PAUSE = 0.05  # seconds
_AT_ONCE = 4 << 20  # bytes


# ---- the commit log's ----


class LogRun(NamedTuple):
    """Bytes that follow each other in one file, from a physical offset on."""

    physical_offset: int
    chunks: list[bytes]


class LogFiles:
    """The files of a commit log, read and written by physical offset. One thread writes, any may read."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size = folder, size
        self._reading = Lock()  # so that no file is closed while it is being read
        folder.mkdir(parents=True, exist_ok=True)
        found = store_files(folder)
        self._refuse_other_sizes(found)
        self._handles = {file.first: opened_to_write(Path(file.path)) for file in found}
        if self._handles:  # a copy of a store may end with its last record
            with named(self._path(max(self._handles))):
                os.posix_fallocate(self._handles[max(self._handles)], 0, size)

    @property
    def first(self) -> int:
        """The first physical offset that is there."""
        return min(self._handles, default=0)

    @property
    def firsts(self) -> list[int]:
        """The first physical offset of each file, ascending."""
        return sorted(self._handles)

    def begin_of(self, physical_offset: int) -> int:
        """The first offset of the file that has or would have this one."""
        return physical_offset - physical_offset % self.size

    def write(self, runs: Iterable[LogRun]) -> None:
        """Writes the runs and makes them durable; files that do not exist yet are made."""
        for run in runs:
            begin = self.begin_of(run.physical_offset)
            handle = self._handles.get(begin)
            if handle is None:
                handle = self._handles[begin] = self._made(begin)
            write_all(handle, b"".join(run.chunks), run.physical_offset - begin)
            os.fdatasync(handle)

    def read(self, physical_offset: int, length: int) -> bytes:
        """Up to `length` bytes of one file; none if no file has the offset."""
        begin = self.begin_of(physical_offset)
        with self._reading:
            handle = self._handles.get(begin)
            if handle is None or physical_offset < 0:
                return b""
            return os.pread(handle, min(length, begin + self.size - physical_offset), physical_offset - begin)

    def write_again(self, begin: int, end: int) -> None:
        """Makes durable what is there: after a failed sync the system takes what it could not write for written."""
        for first in self.firsts:
            handle, upto = self._handles[first], min(end, first + self.size)
            with named(self._path(first)):
                for at in range(max(begin, first), upto, _AT_ONCE):
                    write_all(handle, self.read(at, min(_AT_ONCE, upto - at)), at - first)
                if begin < upto:
                    os.fdatasync(handle)
        sync(self.folder)

    def cut(self, end: int) -> None:
        """Ends the log at a physical offset: what was written after it becomes zeros."""
        for begin in self.firsts:
            if begin > end or (begin == end and end > self.first):
                self._remove(begin)
        begin = self.begin_of(end)
        if begin in self._handles:
            with named(self._path(begin)):
                os.ftruncate(self._handles[begin], end - begin)
                os.posix_fallocate(self._handles[begin], 0, self.size)
                os.fsync(self._handles[begin])
        sync(self.folder)

    def remove_before(self, physical_offset: int) -> None:
        """Removes the files that end at or before a physical offset."""
        for begin in self.firsts:
            if begin + self.size <= physical_offset:
                self._remove(begin)
        sync(self.folder)

    def _refuse_other_sizes(self, files: Sequence[StoreFile]) -> None:
        for file, is_last in zip(files, [*[False] * (len(files) - 1), True], strict=False):
            if file.first % self.size or file.size > self.size or (file.size < self.size and not is_last):
                problem = f"a file of {file.size} bytes from {file.first} on, in a log of files of {self.size}"
                raise InputRefused(file.path, None, problem, "set gateway.file_size to what the store was made with")

    def close(self) -> None:
        while self._handles:
            os.close(self._handles.popitem()[1])

    def _made(self, begin: int) -> int:
        path = self._path(begin)
        handle = opened_to_write(path)
        with named(path):
            os.posix_fallocate(handle, 0, self.size)
            os.fsync(handle)
        sync(self.folder)
        return handle

    def _remove(self, begin: int) -> None:
        self._path(begin).unlink()
        with self._reading:
            os.close(self._handles.pop(begin))

    def _path(self, begin: int) -> Path:
        return self.folder / f"{begin:020d}"


# ---- any file ----


def whole_file(path: Path) -> bytes:
    """Returns a small file's bytes. Raises OSError that names it."""
    with named(path):
        return path.read_bytes()


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file so that a crash leaves the old one or the new one."""
    draft = path.with_name(path.name + ".tmp")
    with named(path), draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    sync(path.parent)


def opened_to_write(path: str | Path) -> int:
    """Opens a file, or makes it; if the process has too many open, as soon as some connections have ended."""
    while (handle := _opened(path)) is None:
        time.sleep(_PAUSE)
    return handle


def _opened(path: str | Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return None
        raise


def write_all(handle: int, content: bytes | memoryview, position: int) -> None:
    """Writes all of it at that position of an open file."""
    left = memoryview(content)
    while left:
        written = os.pwrite(handle, left, position)
        left, position = left[written:], position + written


class Handles:
    """The file that each owner wrote to last, of the owners that wrote last: `most` files at most. For one thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()

    def get(self, owner: Hashable, number: int, opened: Callable[[int], int]) -> int:
        """The handle of an owner's file; closes the owner's other file, and those that are too many."""
        found = self._open.get(owner)
        if found is not None and found[0] == number:
            self._open.move_to_end(owner)
            return found[1]
        self._drop(owner)
        while len(self._open) >= self._most:
            self._drop(next(iter(self._open)))
        self._open[owner] = number, opened(number)
        return self._open[owner][1]

    def close(self) -> None:
        """Closes all files."""
        for owner in list(self._open):
            self._drop(owner)

    def _drop(self, owner: Hashable) -> None:
        found = self._open.pop(owner, None)
        if found is not None:
            os.close(found[1])
