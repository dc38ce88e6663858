"""A disk that a test may cut the power of: what was written and not synced is there in part, or not at all.

The gateway's log works on real files. The calls of the system by which it writes go through here; each may fail, and at
each the power may be cut.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from halfop.frame import trouble
from halfop.gateway.log import files, queues

_SECTOR = 512


class PowerCut(BaseException):
    """The process has ended at this call; no handler of errors may see it."""


class Disk:
    """The files below a folder. `cut_in`: at which call from now on the power is cut; `fail_in`: which one fails."""

    def __init__(self, folder: Path, random: Random) -> None:
        self._folder, self._random = str(folder), random
        self.cut_in: int | None = None
        self.fail_in: int | None = None
        self._paths: dict[int, str] = {}
        self._synced: dict[str, bytes] = {}
        self._dirty: dict[str, list[tuple[int, int]]] = {}
        self._unlinked: set[str] = set()  # made, and their folder not synced since

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within it the log's calls of the system come here."""
        there = _Calls(self)
        with patch.object(files, "os", there), patch.object(queues, "os", there), patch.object(trouble, "os", there):
            yield

    def lose_power(self) -> None:
        """Leaves what was synced, and some sectors of what was written since."""
        for path, written in self._dirty.items():
            if os.path.exists(path):
                self._tear(path, written)
        for path in self._unlinked:
            if os.path.exists(path) and self._random.random() < 0.5:
                os.unlink(path)
        self.restart()

    def restart(self) -> None:
        """All that was written is there, as after the death of a process."""
        self._paths.clear()
        self._synced.clear()
        self._dirty.clear()
        self._unlinked.clear()
        self.cut_in = self.fail_in = None

    def _tear(self, path: str, written: list[tuple[int, int]]) -> None:
        now = Path(path).read_bytes()
        then = bytearray(self._synced.get(path, b"").ljust(len(now), b"\0")[: len(now)])
        kept = self._random.choice((0.0, 0.5, 0.9, 1.0))
        for at, length in written:
            for sector in range(at - at % _SECTOR, at + length, _SECTOR):
                if self._random.random() < kept:
                    then[sector : sector + _SECTOR] = now[sector : sector + _SECTOR]
        with open(path, "r+b") as file:
            file.write(then)

    # ---- what the calls do ----

    def touched(self) -> None:
        """Counts a call. Raises PowerCut, or OSError for a call that fails."""
        if self.cut_in is not None:
            self.cut_in -= 1
            if self.cut_in < 0:
                raise PowerCut
        if self.fail_in is not None:
            self.fail_in -= 1
            if self.fail_in < 0:
                self.fail_in = None
                raise OSError(self._random.choice((errno.EIO, errno.ENOSPC)), "the disk of a simulation")

    def opened(self, handle: int, path: str, is_new: bool) -> None:
        self._paths[handle] = path
        if is_new:
            self._unlinked.add(path)
            self._dirty.setdefault(path, [])
        if path not in self._synced and path not in self._dirty and os.path.isfile(path):
            self._synced[path] = Path(path).read_bytes()

    def written(self, handle: int, at: int, length: int) -> None:
        if (path := self._paths.get(handle)) is not None:
            self._dirty.setdefault(path, []).append((at, length))

    def synced(self, handle: int) -> None:
        path = self._paths.get(handle)
        if path is None:
            return
        if os.path.isdir(path):
            self._unlinked = {each for each in self._unlinked if os.path.dirname(each) != path}
        elif os.path.exists(path):
            self._synced[path] = Path(path).read_bytes()
            self._dirty.pop(path, None)

    def is_short(self) -> bool:
        """Returns whether a write takes less than all: the system may do that."""
        return self._random.random() < 0.02

    def closed(self, handle: int) -> None:
        self._paths.pop(handle, None)


class _Calls:
    """The module os, as the log's modules see it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str | Path, flags: int, mode: int = 0o777) -> int:
        is_new = bool(flags & os.O_CREAT) and not os.path.exists(path)
        handle = os.open(path, flags, mode)
        self._disk.opened(handle, str(path), is_new)
        return handle

    def close(self, handle: int) -> None:
        self._disk.closed(handle)
        os.close(handle)

    def pwrite(self, handle: int, content: bytes | memoryview, at: int) -> int:
        self._disk.touched()
        part = content[: len(content) // 2] if len(content) > 1 and self._disk.is_short() else content
        done = os.pwrite(handle, part, at)
        self._disk.written(handle, at, done)
        return done

    def fdatasync(self, handle: int) -> None:
        self._disk.touched()
        os.fdatasync(handle)
        self._disk.synced(handle)

    def fsync(self, handle: int) -> None:
        self._disk.touched()
        self._disk.synced(handle)

    def posix_fallocate(self, handle: int, at: int, length: int) -> None:
        self._disk.touched()
        os.posix_fallocate(handle, at, length)
