"""The library that stands between a process and its disk (shim.c): compiled once a machine, and set from here."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CALLS = ("open", "read", "write", "sync", "rename", "link", "mkdir", "unlink", "truncate")
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
_SOURCE = Path(__file__).with_name("shim.c")
_ROOM = 16_384  # of the control block
_VARIABLE = "LYING_DISK"


class NoCompiler(Exception):
    """There is no gcc."""


def environment(control: Path) -> dict[str, str]:
    """The variables with which a process and its children stand before a disk of ours. Raises NoCompiler."""
    control.write_bytes(bytes(_ROOM))
    return {"LD_PRELOAD": str(_library()), _VARIABLE: str(control)}


def _library() -> Path:
    gcc = shutil.which("gcc")
    if gcc is None:
        raise NoCompiler("needs gcc")
    name = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    made = Path(tempfile.gettempdir()) / f"halfop-lying-disk-{os.getuid()}-{name}.so"
    if not made.exists():
        draft = made.with_suffix(f".{os.getpid()}")
        subprocess.run([gcc, "-O2", "-Wall", "-Werror", "-fPIC", "-shared", "-o", draft, _SOURCE], check=True)
        draft.rename(made)
    return made


# ---- in a process that stands before it ----


@dataclass
class Failing:
    """One call that is to fail. When the block has ended: how many calls of each kind there were, and if it failed."""

    counts: dict[str, int] = field(default_factory=dict)
    fired: bool = False


class Shim:
    """This process's disk. A process must have been started with `environment`."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])

    def watch(self, folder: Path, log: Path | None = None) -> None:
        """Changes below the folder go to the log, and calls that are about it may fail."""
        begun = self._library.lying_disk_begin(os.fsencode(folder), os.fsencode(log or ""))
        assert begun == 0, "LYING_DISK does not name a control block"

    def mark(self, text: str) -> None:
        """Writes a line to the log: all that was answered before it was promised."""
        self._library.lying_disk_mark(text.encode())

    @contextmanager
    def failing(self, call: str = CALLS[0], number: int = 0, error: str | None = None) -> Iterator[Failing]:
        """Lets the call with that number of its kind fail once; without an error, calls are only counted."""
        found, counts = Failing(), (ctypes.c_int64 * len(CALLS))()
        code = ERRORS[error] if error else 0
        self._library.lying_disk_fail(CALLS.index(call), ctypes.c_int64(number), code)
        try:
            yield found
        finally:
            found.fired = bool(self._library.lying_disk_end(counts))
            found.counts = dict(zip(CALLS, counts, strict=True))
