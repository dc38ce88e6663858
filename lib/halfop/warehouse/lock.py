"""The lock of a warehouse on a local disk: Delta's commit is not atomic there, so only one may write at a time.

The lock is the JVM's, because the JVM commits: a lock of Python's is free before its JVM has stopped committing.
A process that waits for it holds the group's second lock, `next`, so that a loop which gives the lock back and takes it
again at once comes after the one that waits.
If the commit is atomic (HDFS, object stores, S3 by lib/java's log store) there is nothing to hold, and nothing that a
client of Spark Connect could.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from threading import Lock
from typing import Any

from halfop.frame.errors import InputRefused, UsageError, WarehouseBusy
from halfop.warehouse.disk import local_folder
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse

_RETRY_SECONDS = 0.2
ASIDE = "_damaged"  # what repairs have taken out of the tables
# A file that is there while a repair is under way: tables may lack rows then that no log misses.
UNFINISHED = f"{ASIDE}/unfinished"
_THREADS: dict[str, Lock] = {}  # by the file of a lock


@contextmanager
def hold(warehouse: Warehouse, group: str, wait: timedelta = timedelta(0), repairing: bool = False) -> Iterator[None]:
    """Holds the lock of a table group (`landing` or `run`); raises WarehouseBusy if it is still taken after `wait`.

    Raises InputRefused while a repair of the warehouse has not been finished, unless the caller is one.
    """
    folder = local_folder(warehouse.root)
    if folder is None:
        yield
        return
    with ExitStack() as held:
        if isinstance(warehouse, KernelWarehouse):
            _make(folder)
            path, deadline = os.path.join(folder, f".{group}.lock"), time.monotonic() + wait.total_seconds()
            with _locked(warehouse, f"{path}.next", path, group, deadline):
                held.enter_context(_locked(warehouse, path, path, group, deadline))
        if not repairing:
            _refuse_half_repaired(warehouse)
        yield


@contextmanager
def hold_rejected(warehouse: Warehouse) -> Iterator[None]:
    """Holds the lock of `rejected`, to which landing and runs both write, each under a lock of its own."""
    with hold(warehouse, "rejected", timedelta(minutes=10), repairing=True):  # within the lock of a job's own
        yield


def _make(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except (FileNotFoundError, NotADirectoryError, FileExistsError) as error:
        raise UsageError(
            f"{folder}: a warehouse cannot be made there ({error.filename}: {error.strerror}); name another folder by "
            "--warehouse"
        ) from error


def _refuse_half_repaired(warehouse: Warehouse) -> None:
    mark = warehouse.path(UNFINISHED)
    if warehouse.has(UNFINISHED):
        problem = "a repair of the warehouse was stopped before it had finished"
        raise InputRefused(mark, None, problem, "call `examine --repair` again: it goes on where it was stopped")


@contextmanager
def _locked(warehouse: Warehouse, path: str, shown: str, group: str, deadline: float) -> Iterator[None]:
    busy = WarehouseBusy(
        f"another process holds the {group} lock {shown}; wait for it, or give --wait (as in --wait 10m)"
    )
    jvm: Any = warehouse.spark._jvm
    with _only_thread(path, deadline, busy):
        channel = jvm.java.io.RandomAccessFile(path, "rw").getChannel()
        try:
            while channel.tryLock() is None:
                if time.monotonic() >= deadline:
                    raise busy
                time.sleep(_RETRY_SECONDS)
            yield
        finally:
            channel.close()


@contextmanager
def _only_thread(path: str, deadline: float, busy: WarehouseBusy) -> Iterator[None]:
    """Lets one thread of this process have the file open: the system frees its lock with any handle that is closed."""
    lock = _THREADS.setdefault(os.path.realpath(path), Lock())
    if not lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
        raise busy
    try:
        yield
    finally:
        lock.release()
