"""Lineage: which tables and files each call of a job has read and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import NamedTuple

from halfop.frame.summary import Summary

_DONE = (0, 5)


class TableColumn(NamedTuple):
    """A column of a table, as an event describes it."""

    name: str
    type: str
    comment: str


@dataclass
class WrittenTable:
    """A table that a call has written, and how much; Spark's own writes are not counted."""

    columns: Sequence[TableColumn] = ()
    rows: int = 0
    bytes: int = 0
    files: int = 0


@dataclass
class Touched:
    """The tables and files that a process has read, each with the last version, and those that it has written."""

    read: dict[str, int | None] = field(default_factory=dict)
    written: dict[str, WrittenTable] = field(default_factory=dict)

    def taken(self) -> Touched:
        """Returns all that was noted, and forgets it."""
        found = Touched(self.read, self.written)
        self.read, self.written = {}, {}
        return found


class Parent(NamedTuple):
    """The call of another program that started this one; `run` is a UUID."""

    namespace: str
    job: str
    run: str


class EndedCall(NamedTuple):
    """A call of a job that has ended; `failure` is None if all is done."""

    job: str
    parent: Parent | None
    began: datetime
    touched: Touched
    run_id: int | None
    failure: str | None


class Lineage:
    """Tells of calls, if there is somebody to tell."""

    def __init__(self, tell: Callable[[EndedCall], None] | None = None, parent: Parent | None = None) -> None:
        self.touched = Touched()
        self._tell, self._parent = tell, parent

    def told(self, job: str, work: Callable[[], Summary]) -> Summary:
        """Returns the result of work. It is told as a call of that job, if it has written a table or failed."""
        if self._tell is None:
            self.touched.taken()
            return work()
        began, run_id, failure = datetime.now(timezone.utc), None, None
        try:
            summary = work()
            run_id, failure = summary.run_id, None if summary.status in _DONE else summary.to_json()
        except BaseException as error:
            failure = str(error) or type(error).__name__
            raise
        finally:
            touched = self.touched.taken()
            if touched.written or failure is not None:
                self._tell(EndedCall(job, self._parent, began, touched, run_id, failure))
        return summary
