"""A store on any file system that Hadoop reads, copied to a local folder unless it is local already.

Of a store that has landed before, only what is new is copied, with as much before it as a landing looks back. The rest
of its files are holes, so that each has its length. If what is there then does not look sound, the rest is copied too.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from halfop.frame.errors import InputRefused, UsageError
from halfop.landing.progress import FILE
from halfop.rocketmq.names import GATEWAY_FILE, queue_number
from halfop.rocketmq.store.commitlog import DLEDGER, QUIET, dledger_refusal
from halfop.rocketmq.store.consumequeue import UNIT
from halfop.rocketmq.store.layout import BACK
from halfop.warehouse.disk import local_folder
from halfop.warehouse.files import refusing
from halfop.warehouse.kernel import KernelWarehouse, files_of
from halfop.warehouse.tables import Warehouse

LOG, QUEUES = "commitlog", "consumequeue"
_HEAD = 4096  # a file that begins with zeros is one that is not in use yet
_SOME_UNITS = 3276 * UNIT.itemsize


class LandedLog(NamedTuple):
    """The landed part: the end in the log, and the last unit of each half queue, by topic and queue."""

    offset: int
    units: Mapping[tuple[str, int], int]


class RemoteFile(NamedTuple):
    """A file of a store: its path below the store, and its length."""

    name: str
    length: int

    @property
    def folder(self) -> str:
        return os.path.dirname(self.name)

    @property
    def first(self) -> int:
        """Its first position in the log or queue, which is its name."""
        return int(os.path.basename(self.name))


@dataclass
class LocalStore:
    """A store's local folder. Unless `whole`, old parts are missing; `copied` are the bytes that came."""

    root: str
    whole: bool = True
    copied: int = 0
    _remote: Any = None

    def complete(self) -> None:
        """Copies what is missing."""
        self.copied += _copy_whole(self._remote, self.root)
        self.whole = True


@contextmanager
def local_store(warehouse: Warehouse, path: str, landed: LandedLog | None) -> Iterator[LocalStore]:
    """The local folder of a store. A remote store is copied while the block runs; if some has landed, what is new."""
    folder = local_folder(path)
    if folder is not None:
        yield LocalStore(folder)
        return
    warehouse = files_of(warehouse, f"landing from a store that is not on this machine's disk ({path})")
    if not str(warehouse.spark.sparkContext.master).startswith("local"):
        raise UsageError(f"{path}: on a cluster a store must be on a file system that all workers have mounted")
    with tempfile.TemporaryDirectory(prefix="halfop-store-") as copy:
        with refusing(path):
            remote = _Remote(warehouse, path)
            copied = _copy_whole(remote, copy) if landed is None else _copy_new(remote, copy, landed)
            if remote.has(GATEWAY_FILE):
                Path(copy, GATEWAY_FILE).touch()
        try:
            yield LocalStore(copy, landed is None, copied, remote)
        except InputRefused as error:
            at = error.path.replace(copy, path.rstrip("/"), 1)
            raise InputRefused(at, error.line, error.problem.replace(copy, path), error.hint) from error


class _Remote:
    """A store's folder on a Hadoop file system."""

    def __init__(self, warehouse: KernelWarehouse, path: str) -> None:
        jvm: Any = warehouse.spark._jvm
        jsc: Any = warehouse.spark._jsc
        self.jvm = jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._system = self._path(path).getFileSystem(jsc.hadoopConfiguration())
        self._root = self._system.makeQualified(self._path(path))
        if self._system.globStatus(self._path(self._root, f"{DLEDGER}/data")):
            raise dledger_refusal(path)
        if not self._system.exists(self._path(self._root, LOG)):
            raise InputRefused(path, None, f"no broker's store: it has no folder {LOG}")

    def files(self, folder: str) -> list[RemoteFile]:
        """All files in a folder, in the order of their names; none if it is missing."""
        place = self._path(self._root, folder)
        if not self._system.exists(place):
            return []
        found, files = self._system.listFiles(place, True), []
        below = len(str(self._root.toString()).rstrip("/")) + 1
        while found.hasNext():
            status = found.next()
            files.append(RemoteFile(str(status.getPath().toString())[below:], int(status.getLen())))
        return sorted(files)

    def has(self, name: str) -> bool:
        return bool(self._system.exists(self._path(self._root, name)))

    def open(self, file: RemoteFile) -> Any:
        return self._system.open(self._path(self._root, file.name))


class _Copy:
    """A local copy of one file, at first a hole of its length; it holds both open."""

    def __init__(self, remote: _Remote, file: RemoteFile, target: str) -> None:
        self._jvm, self._file, self.copied = remote.jvm, file, 0
        self._local = os.path.join(target, file.name)
        os.makedirs(os.path.dirname(self._local), exist_ok=True)
        self._out = self._jvm.java.io.RandomAccessFile(self._local, "rw")
        self._out.setLength(file.length)
        self._in = remote.open(file)

    def close(self) -> None:
        self._in.close()
        self._out.close()

    def take(self, at: int, length: int) -> bytes:
        """Copies some bytes, and returns them; fewer if the file ends."""
        length = max(min(length, self._file.length - at), 0)
        self._in.seek(at)
        channel = self._out.getChannel().position(at)
        into = self._jvm.java.nio.channels.Channels.newOutputStream(channel)
        self._jvm.org.apache.hadoop.io.IOUtils.copyBytes(self._in, into, length, False)
        self.copied += length
        with open(self._local, "rb") as local:
            return os.pread(local.fileno(), length, at)

    def take_used(self, at: int, step: int) -> None:
        """Copies from a position on, until so many bytes are zeros: a broker makes its files before it fills them."""
        while at < self._file.length and np.frombuffer(self.take(at, step), np.uint8).any():
            at += step


def _copy_whole(remote: _Remote, target: str) -> int:
    """Returns the number of bytes. The queues come first: what they name is in the log then."""
    copied = _copy_check_offsets(remote, target)
    for file in [*remote.files(QUEUES), *remote.files(LOG)]:
        with closing(_Copy(remote, file, target)) as copy:
            for at in range(0, file.length, QUIET):
                copy.take(at, QUIET)
            copied += copy.copied
    return copied


def _copy_check_offsets(remote: _Remote, target: str) -> int:
    """Returns the number of bytes; none if the broker has written nothing to the file yet."""
    copied = 0
    for file in (file for file in remote.files(os.path.dirname(FILE)) if file.name == FILE and file.length):
        with closing(_Copy(remote, file, target)) as copy:
            copy.take(0, file.length)
            copied += copy.copied
    return copied


def _copy_new(remote: _Remote, target: str, landed: LandedLog) -> int:
    since = max(landed.offset - BACK, 0)
    copied = _copy_check_offsets(remote, target)
    for folder, files in groupby(remote.files(QUEUES), key=lambda file: file.folder):
        topic, _, queue = folder.removeprefix(f"{QUEUES}/").rpartition("/")
        unit = landed.units.get((topic, queue_number(topic, int(queue)))) if queue.isdecimal() else None
        copied += _copy_queue(remote, list(files), target, since, unit)
    for file in remote.files(LOG):
        with closing(_Copy(remote, file, target)) as copy:
            if file.first + file.length > since:
                copy.take(0, _HEAD)
                copy.take_used(max(since - file.first, 0), QUIET)
            copied += copy.copied
    return copied


def _copy_queue(remote: _Remote, files: Sequence[RemoteFile], target: str, since: int, unit: int | None) -> int:
    """Copies the units that name places from `since` on, and one more that is looked at."""
    copied, older = 0, False
    for file in reversed(files):
        with closing(_Copy(remote, file, target)) as copy:
            begin = file.length if older else _first_new(copy, file, since)
            copy.take_used(begin, _SOME_UNITS)
            older = older or begin > 0
            if unit is not None and 0 <= unit * UNIT.itemsize - file.first < file.length:
                copy.take(unit * UNIT.itemsize - file.first, UNIT.itemsize)
            copied += copy.copied
    return copied


def _first_new(copy: _Copy, file: RemoteFile, since: int) -> int:
    """The position of the first unit that names a place from `since` on, or is not written yet."""
    low, high = 0, file.length // UNIT.itemsize
    while low < high:
        middle = (low + high) // 2
        unit = np.frombuffer(copy.take(middle * UNIT.itemsize, UNIT.itemsize), UNIT)[0]
        if int(unit["physical"]) >= since or not int(unit["size"]):
            high = middle
        else:
            low = middle + 1
    return low * UNIT.itemsize
