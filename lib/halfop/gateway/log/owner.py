"""The owner of a store: the lock that one process holds, and the name and id that the store was made with."""

from __future__ import annotations

import fcntl
import json
import os
import struct
import uuid
from pathlib import Path

from halfop.frame.errors import InputRefused, WarehouseBusy
from halfop.gateway.log.disk import replace_file
from halfop.gateway.log.messages import Identity
from halfop.rocketmq.names import GATEWAY_FILE

_FLOCK = struct.Struct("hhqqi4x")


class StoreLock:
    """The exclusive lock of a store, which a real broker takes too; it ends with the process."""

    def __init__(self, folder: Path) -> None:
        self._handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # of the open file, not of the process: closing another descriptor of it keeps the lock
            whole = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            fcntl.fcntl(self._handle, fcntl.F_OFD_SETLK, whole)
        except OSError as error:
            os.close(self._handle)
            raise WarehouseBusy(f"{folder}: another gateway or broker has this store open; stop it first") from error

    def release(self) -> None:
        os.close(self._handle)


def identity(folder: Path, name: str) -> Identity:
    """The store's identity, which is made with an empty store. Raises InputRefused if it is of another name."""
    path = folder / GATEWAY_FILE
    if not path.exists():
        if any(folder.glob("commitlog/*")):
            raise InputRefused(folder, None, "a store that no gateway has made", "give --store an empty folder")
        replace_file(path, json.dumps({"name": name, "created": uuid.uuid4().hex}).encode())
    try:
        read = json.loads(path.read_bytes())
        found = Identity(str(read["name"]), str(read["created"]))
    except (ValueError, LookupError, TypeError) as error:
        raise InputRefused(path, None, "no gateway's identity can be read from it", "restore the file") from error
    if found.name != name:
        problem = f"the store of gateway {found.name}, not of {name}"
        raise InputRefused(
            folder, None, problem, "its messages have landed under that name: keep it, or take a new folder"
        )
    return found
