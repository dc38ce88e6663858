"""Submitted in place of a job: runs it, and kills its whole process group with SIGKILL at a commit. Nothing in the
project knows of it: the calls that commit are wrapped from here.

dying.py before|after|stop N JOB [job options]; N counts commits from 1. `stop` is SIGSTOP before the commit. `never 0`
counts them and says how many there were. With UNLOCKED set the local disk is taken for a store that needs no lock.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from delta.tables import DeltaMergeBuilder, DeltaTableBuilder
from halfop.warehouse import lock
from halfop.warehouse.delta_log import DeltaLog
from halfop.warehouse.upkeep import TableUpkeep
from pyspark.sql import DataFrameWriter

COMMITS = "commits of this job: "
DEATH = "killed "
_COMMITTING: list[tuple[type, str]] = [
    (DataFrameWriter, DataFrameWriter.save.__name__),
    (DeltaMergeBuilder, DeltaMergeBuilder.execute.__name__),
    (DeltaTableBuilder, DeltaTableBuilder.execute.__name__),
    (DeltaLog, DeltaLog.create.__name__),
    (DeltaLog, DeltaLog.commit_files.__name__),
    (TableUpkeep, TableUpkeep.delete.__name__),
    (TableUpkeep, TableUpkeep.compact.__name__),
    (TableUpkeep, TableUpkeep.vacuum.__name__),
    (TableUpkeep, TableUpkeep.set.__name__),
]


class Death:
    """The commits that are still to go. Several threads commit."""

    def __init__(self, when: str, number: int) -> None:
        self._when, self._number, self.count, self._lock = when, number, 0, Lock()

    def wrap(self, owner: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def commit(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self.count += 1
                mine = self.count == self._number
            if mine and self._when in ("before", "stop"):
                self._kill(table_of(*args))
            done = real(*args, **kwargs)
            if mine and self._when == "after":
                self._kill(table_of(*args))
            return done

        setattr(owner, name, commit)

    def _kill(self, table: str) -> None:
        print(f"{DEATH}{self._when} {table}", flush=True)
        os.killpg(os.getpgrp(), signal.SIGSTOP if self._when == "stop" else signal.SIGKILL)


def table_of(owner: object, *given: object) -> str:
    paths = [Path(each) for each in given if isinstance(each, str)]
    if not paths:
        return type(owner).__name__
    return paths[0].parent.name if paths[0].parent.name == "_staging" else paths[0].name


def main() -> None:
    when, number, job, *options = sys.argv[1:]
    death = Death(when, int(number))
    for owner, name in _COMMITTING:
        death.wrap(owner, name)
    if "UNLOCKED" in os.environ:
        setattr(lock, "local_folder", lambda root: None)  # noqa: B010 - as other names are wrapped here
    sys.argv = [job, *options]
    try:
        runpy.run_path(str(Path(__file__).parents[2] / "jobs" / f"{job}.py"), run_name="__main__")
    finally:
        print(f"{COMMITS}{death.count}", flush=True)


if __name__ == "__main__":
    main()
