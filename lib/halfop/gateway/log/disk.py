"""Files that must outlive a crash: replaced as a whole, with their folders' entries."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Makes the folder's entries durable: files that were made, renamed or removed in it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file so that a crash leaves the old one or the new one."""
    draft = path.with_name(path.name + ".tmp")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    sync_folder(path.parent)


def write_all(handle: int, content: bytes | memoryview, position: int) -> None:
    """Writes all of it at that position of an open file."""
    left = memoryview(content)
    while left:
        written = os.pwrite(handle, left, position)
        left, position = left[written:], position + written
