"""Files of this machine's disk made durable, for every writer of a warehouse and of a gateway's log.

A file is durable when its bytes are, and when its folder's entry of it is. Other file systems promise of their own that
a file which has been closed is there, so nobody calls this for them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from halfop.frame.trouble import named


def make_durable(files: Iterable[str | Path]) -> None:
    """Makes files durable, and after them the entries of their folders: each folder once. Raises OSError."""
    written = [os.fspath(file) for file in files]
    for file in written:
        sync(file)
    for folder in sorted({os.path.dirname(os.path.abspath(file)) for file in written}):
        sync(folder)


def sync(path: str | Path) -> None:
    """Makes a file's bytes durable, or the entries of a folder: files made, renamed or removed in it."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with named(path):
            os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL or not os.path.isdir(path):  # some file systems sync no folders
            raise
    finally:
        os.close(handle)
