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
from typing import NamedTuple

CALLS = ("open", "read", "write", "sync", "rename", "link", "mkdir", "unlink", "truncate")
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
_SOURCE = Path(__file__).with_name("shim.c")
_ROOM = 32_768  # of the control block
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


class Call(NamedTuple):
    """A call. `files`: a path below the folder, in which shim.c has made equal what differs from file to file."""

    name: str
    files: str


class Fault(NamedTuple):
    """A call that fails: the `number`th one of that name for such files."""

    call: str
    files: str
    number: int
    error: str


NO_FAULT = Fault(CALLS[0], "", 0, "none")


def listed(control: Path) -> list[Call]:
    """Returns the calls while a fault was awaited, in their order."""
    parts = [line.partition(" ") for line in _list_of(control).read_text().splitlines()]
    return [Call(CALLS[int(number)], files) for number, _, files in parts]


def _list_of(control: Path) -> Path:
    return control.with_suffix(".calls")


# ---- in a process that stands before it ----


@dataclass
class Failing:
    """When the block has ended: its calls, and if the one failed that was to."""

    calls: list[Call] = field(default_factory=list)
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
    def failing(self, fault: Fault = NO_FAULT) -> Iterator[Failing]:
        """Lets a call fail once, and lists all calls."""
        found, control = Failing(), Path(os.environ[_VARIABLE])
        _list_of(control).write_bytes(b"")
        name, files, number, error = fault
        to, code = os.fsencode(_list_of(control)), ERRORS.get(error, 0)
        self._library.lying_disk_fail(to, CALLS.index(name), os.fsencode(files), ctypes.c_int64(number), code)
        try:
            yield found
        finally:
            found.fired = bool(self._library.lying_disk_end())
            found.calls = listed(control)
