"""The fate of each row of a plan: the rows of `endings`, of which the newest of a plan and key counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Literal, NamedTuple, Protocol

from halfop.columns.keys import Key
from halfop.ending.plan import Place, Row
from halfop.frame.owner import owner

State = Literal[
    "INTENDED", "SENT", "VERIFIED", "ENDED_MEANWHILE", "ALREADY_COMMITTED", "GONE", "MISMATCH", "FAILED", "UNKNOWN"
]
# The broker may have met the request, or not.
IN_DOUBT: tuple[State, ...] = ("INTENDED", "UNKNOWN")
# A later call has something to do for these; all other states stand.
UNFINISHED: tuple[State, ...] = (*IN_DOUBT, "SENT")
# These ask for somebody's attention.
NOT_ENDED: tuple[State, ...] = ("GONE", "MISMATCH", "FAILED", "UNKNOWN", "INTENDED")


class Ending(NamedTuple):
    """A row of `endings`; `sent` is the half message that the request named, if it is known."""

    plan_id: str
    key: Key
    kind: str
    origin: str
    evidence: str | None
    state: State
    code: int | None
    remark: str | None
    by: str
    at: datetime
    uniq_key: str | None
    sent: Place | None


class Endings(Protocol):
    """The table, as those who send see it: `record` returns once the rows are there for good."""

    def record(self, rows: Sequence[Ending]) -> None: ...


class Clerk:
    """Makes the rows of one plan, each of a later instant than the one before, and later than `after`."""

    def __init__(self, plan_id: str, after: datetime | None, clock: Callable[[], datetime] | None = None) -> None:
        self._plan_id, self._last = plan_id, after
        self._clock = clock or (lambda: datetime.now(timezone.utc))
        self._by = f"{owner()}:{os.getpid()}"

    def ending(
        self, row: Row, state: State, remark: str | None = None, code: int | None = None, sent: Place | None = None
    ) -> Ending:
        self._last = max(self._clock(), (self._last or datetime.min.replace(tzinfo=timezone.utc)) + _TICK)
        told = (state, code, remark, self._by, self._last, row.uniq_key, sent)
        return Ending(self._plan_id, row.key, row.kind, row.origin, row.evidence, *told)


_TICK = timedelta(microseconds=1)


def newest(rows: Iterable[Ending]) -> dict[Key, Ending]:
    """Returns the row of each half key that counts."""
    found: dict[Key, Ending] = {}
    for row in sorted(rows, key=lambda each: each.at):
        found[row.key] = row
    return found
