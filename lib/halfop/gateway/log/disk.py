"""Files that must outlive a crash: replaced as a whole, with their folders' entries."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

from halfop.frame.trouble import named, sync

_PAUSE = 0.05  # seconds


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
