"""An error as a call of a job reports it: its exit status, its message, and whether it may pass by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

from halfop.frame.errors import HalfopError, is_transient


@dataclass(frozen=True)
class Failure:
    status: int
    message: str
    transient: bool

    def fields(self) -> dict[str, object]:
        """The fields of a summary's line, without the job's name."""
        return {"error": self.message, "transient": self.transient, "status": self.status}


def failure_of(error: BaseException, verbose: bool) -> Failure:
    if isinstance(error, HalfopError):
        return Failure(error.exit_status, str(error), error.transient)
    if isinstance(error, KeyboardInterrupt):
        return Failure(130, "interrupted", True)
    hint = "" if verbose else "\nrun again with -v for the traceback"
    return Failure(1, f"{type(error).__name__}: {_first_lines(str(error))}{hint}", is_transient(error))


def _first_lines(message: str) -> str:
    """A JVM's error carries its stack trace in its text: up to that."""
    return re.split(r"\n\s*at |\n+JVM stacktrace:", message)[0].strip()
