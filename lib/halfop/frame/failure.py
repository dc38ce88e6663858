"""An error as a call of a job reports it: its exit status, its message, and whether it may pass by itself.

It stands apart from errors.py, which the launcher imports before each job: this imports three times as much.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from halfop.frame.errors import HalfopError, is_mistake, is_transient
from halfop.frame.summary import Summary
from halfop.frame.trouble import may_pass, plainly


@dataclass(frozen=True)
class Failure:
    status: int
    message: str
    transient: bool
    known: Mapping[str, object] = field(default_factory=dict)

    def fields(self) -> dict[str, object]:
        """The fields of a summary's line, without the job's name: also what was known before it failed."""
        return {**self.known, "error": self.message, "transient": self.transient, "status": self.status}


def failure_of(error: BaseException, verbose: bool) -> Failure:
    known = _known(error)
    if isinstance(error, HalfopError):
        return Failure(error.exit_status, str(error), error.transient, known)
    if isinstance(error, KeyboardInterrupt):
        return Failure(130, "interrupted", True, known)
    if (trouble := plainly(error)) is not None and not is_mistake(error):
        return Failure(1, trouble, may_pass(trouble), known)
    hint = "" if verbose else "\nrun again with -v for the traceback"
    return Failure(1, f"{type(error).__name__}: {_first_lines(str(error))}{hint}", is_transient(error), known)


def _known(error: BaseException) -> dict[str, object]:
    """The fields of the summary that `Summary.shown_in_failure` has left with the error."""
    summary = getattr(error, "summary", None)
    fields = summary.fields() if isinstance(summary, Summary) else {}
    return {name: value for name, value in fields.items() if name != "job"}


def _first_lines(message: str) -> str:
    """A JVM's error carries its stack trace in its text: up to that."""
    return re.split(r"\n\s*at |\n+JVM stacktrace:", message)[0].strip()
