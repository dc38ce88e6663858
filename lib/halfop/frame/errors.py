"""The errors that end a job with a message instead of a traceback, each with its exit status.

A message says what was wrong, where, what was expected and what to do. A class also says whether its error is
transient: whether the same call may succeed later though nobody has changed anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from halfop.frame.summary import Summary, WithRows

# Python's own classes for a mistake in the code: the same call fails again.
_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    TypeError,
    ValueError,
)


class HalfopError(Exception):
    """The base of all; terminal: somebody must change something first.

    `exit_status` is what a job ends with. `transient`: the same call may succeed later.
    """

    exit_status: int = 1
    transient: bool = False

    def __reduce__(self) -> tuple[Callable[..., HalfopError], tuple[object, ...]]:
        """Lets an error cross from a worker with all its fields, whatever arguments its class takes."""
        return _made_again, (type(self), self.args, vars(self))


def _made_again(kind: type[HalfopError], args: tuple[object, ...], fields: Mapping[str, object]) -> HalfopError:
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error


class TransientError(HalfopError):
    """The base of errors that may pass by themselves."""

    transient = True


class UsageError(HalfopError):
    """The command line or the configuration is wrong; nothing has been touched."""

    exit_status = 2


class InputRefused(HalfopError):
    """The input is missing, corrupt or not what it should be.

    Its fields are `path`, `line` (None if the problem is no line's), `problem`, and `hint`: what to do, or "".
    """

    exit_status = 3

    def __init__(self, path: str | Path, line: int | None, problem: str, hint: str = "") -> None:
        self.path, self.line, self.problem, self.hint = str(path), line, problem, hint
        where = self.path if line is None else f"{self.path}:{line}"
        super().__init__(f"{where}: {problem}" + (f"\n{hint}" if hint else ""))


class LostRows(HalfopError):
    """A table has lost the rows that, by its own log, a run has written there: its `path`, and the `run_id`."""

    def __init__(self, path: str, run_id: int) -> None:
        self.path, self.run_id = path, run_id
        super().__init__(
            f"{path} has lost what run {run_id} wrote: it was restored, cloned or removed. Restore it to the version "
            "before that (DESCRIBE HISTORY shows it), or every table of the warehouse to one point in time; "
            "on a local disk, `examine --repair` writes what other tables show"
        )


class WarehouseBusy(TransientError):
    """Another process holds the warehouse's lock, or an open run its tables."""

    exit_status = 4


class PartsFailed(HalfopError):
    """Parts of the work failed, the others are done: sinks of a run, brokers of a landing, names in a catalog.

    `failed` says by name why; `summary` is what the whole call has done, `rows` what it lists.
    """

    def __init__(self, summary: Summary, rows: Sequence[Any] = ()) -> None:
        extra = summary.extra
        kinds = (extra.get("failed_sinks"), extra.get("failed_brokers"), extra.get("failed_catalog"))
        self.summary, self.rows = summary, rows
        self.failed = {name: why for kind in kinds if kind for name, why in kind.items()}
        self.transient, self.exit_status = extra.get("transient", False), summary.status
        super().__init__("\n".join(f"{name}: {why}" for name, why in self.failed.items()))


def summary_of(call: Callable[[], Summary]) -> Summary:
    """Returns the summary of a call, also of one that failed in parts."""
    try:
        return call()
    except PartsFailed as error:
        return error.summary


def listed_of(call: Callable[[], WithRows[Any]]) -> WithRows[Any]:
    """Returns what a call lists, also one that failed in parts."""
    try:
        return call()
    except PartsFailed as error:
        return WithRows(error.summary, error.rows)


def is_transient(error: BaseException) -> bool:
    """Returns whether the same call may succeed later though nobody has changed anything.

    An error that is neither ours nor a mistake in the code comes from outside (Spark, a disk, a network) and may pass.
    """
    return error.transient if isinstance(error, HalfopError) else not (is_mistake(error) or is_of_data(error))


def is_of_data(error: BaseException) -> bool:
    """Returns whether PyArrow refuses what it was to read. Its class for that is one of Python's for mistakes, too."""
    return (type(error).__module__, type(error).__name__) == ("pyarrow.lib", "ArrowInvalid")


def is_mistake(error: BaseException) -> bool:
    """Returns whether Python raised a class that means a mistake in the code, here or in a worker of Spark's."""
    if isinstance(error, HalfopError) or is_of_data(error):
        return False
    return isinstance(error, _MISTAKES) or _in_worker(str(error)) in {kind.__name__ for kind in _every(_MISTAKES)}


def _in_worker(text: str) -> str | None:
    """The class at the end of a worker's traceback, which Spark's error has in its text; None if there is none."""
    _, traceback, rest = text.rpartition("Traceback (most recent call last):\n")
    match = re.search(r"^([A-Za-z]\w*)(:|$)", rest, re.MULTILINE) if traceback else None
    return match[1] if match else None


def _every(kinds: Iterable[type[BaseException]]) -> Iterator[type[BaseException]]:
    """The classes and all their subclasses."""
    for kind in kinds:
        yield kind
        yield from _every(kind.__subclasses__())
