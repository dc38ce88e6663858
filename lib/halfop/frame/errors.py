"""What can go wrong, each with its exit status. A message says what was wrong, where, what was expected, what to do."""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JJavaError


class HalfopError(Exception):
    """The base: anything that ends a job with a message instead of a traceback."""

    exit_status = 1


class UsageError(HalfopError):
    """Wrong usage or configuration; nothing has been touched."""

    exit_status = 2


class InputRefused(HalfopError):
    """The input is missing, corrupt or not what it should be."""

    exit_status = 3

    def __init__(self, path: str | Path, line: int | None, problem: str, hint: str = "") -> None:
        self.path, self.line, self.problem, self.hint = str(path), line, problem, hint
        where = self.path if line is None else f"{self.path}:{line}"
        super().__init__(f"{where}: {problem}" + (f"\n{hint}" if hint else ""))


class LostRows(HalfopError):
    """A table of which the record says that a run has written rows there, and they are gone."""

    def __init__(self, path: str, run_id: int) -> None:
        super().__init__(
            f"{path} has lost what run {run_id} wrote: it was restored, cloned or removed. Restore it to the version "
            "before that (DESCRIBE HISTORY tells), or every table of the warehouse to one point in time"
        )


class WarehouseBusy(HalfopError):
    """Another process holds the warehouse's lock, or an open run its tables."""

    exit_status = 4


def first_line(error: Exception) -> str:
    """Enough of an error for a summary; of one in the JVM, what the JVM says."""
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString()).splitlines()[0][:300]
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
