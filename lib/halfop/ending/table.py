"""The table `endings`: the fate of each row of a plan, of which the newest of a plan and key counts."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, NamedTuple, Protocol

import pyarrow as pa

from halfop.columns.keys import Key, key_of
from halfop.ending.plan import PlannedPlace, Row
from halfop.frame.errors import WarehouseBusy
from halfop.frame.trouble import owner
from halfop.landing.progress import micros
from halfop.planning.counts import OffsetRange, covers
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.tables import AlreadyWrittenError, Marker
from halfop.warehouse.where import Compared, Where, all_of, equal

TABLE = "endings"
_APP = "halfop.end"
_LATELY = timedelta(hours=1)


class EndingsTable:
    """The table of a warehouse, as one process writes it that began with `known`.

    Its commits are numbered by a transaction marker: if another process commits in between, this one stops before it
    sends anything more. So two calls never send the same answers side by side, also if no lock keeps them apart.
    """

    def __init__(self, warehouse: KernelWarehouse) -> None:
        self._warehouse, self._number = warehouse, warehouse.marker(TABLE, _APP)

    def record(self, rows: Sequence[Ending]) -> None:
        """Appends the rows; WarehouseBusy if somebody else has written since this process began."""
        if not rows:
            return
        self._number += 1
        found = pa.Table.from_pylist([_cells(row) for row in rows], schema=arrow_schema(self._warehouse.schema(TABLE)))
        try:
            self._warehouse.commit_first(TABLE, found, Marker(_APP, self._number))
        except AlreadyWrittenError as error:
            text = "another process ends or resumes transactions of this warehouse: start again when it is done"
            raise WarehouseBusy(f"{self._warehouse.path(TABLE)}: {text}") from error


@dataclass(frozen=True)
class Known:
    """The records of a plan's earlier calls about its half messages.

    `after` is the instant of the newest row; `lately`: when any plan last sent something, in the last hour, by the
    name under which a broker lands.
    """

    mine: Mapping[Key, Ending]
    lately: Mapping[str, datetime]
    after: datetime | None

    def sent_to(self, lives: Collection[str]) -> datetime | None:
        """Returns when anything was last sent to a broker that has landed under these names."""
        return max((at for name, at in self.lately.items() if name in lives), default=None)


def known(warehouse: KernelWarehouse, plan_id: str, keys: Collection[Key]) -> Known:
    """Returns what is recorded of these half messages."""
    near = covers(_ranges(keys), "queue_offset")
    found = [] if near is None else _read(warehouse, all_of(equal("plan_id", plan_id), near))
    now = datetime.now(timezone.utc)
    since = Compared("at", ">=", micros(now - _LATELY))
    recent = {(row.plan_id, row.key): row for row in sorted(_read(warehouse, since), key=lambda row: row.at)}
    lately: dict[str, datetime] = {}
    for row in recent.values():
        if row.state in UNFINISHED:  # what is in doubt may have been sent up to now
            at, name = now if row.state in IN_DOUBT else row.at, row.key.broker_name
            lately[name] = max(at, lately.get(name, at))
    return Known(newest(found), lately, max((row.at for row in found), default=None))


def _read(warehouse: KernelWarehouse, where: Where) -> list[Ending]:
    return [_ending(row) for row in warehouse.read(TABLE, where=where).toArrow().to_pylist()]


def _ranges(keys: Iterable[Key]) -> list[OffsetRange]:
    offsets: dict[tuple[str, int], list[int]] = {}
    for key in keys:
        offsets.setdefault(key[:2], []).append(key.queue_offset)
    return [OffsetRange(*queue, min(found), max(found)) for queue, found in offsets.items()]


_OWN = ("kind", "origin", "evidence", "state", "code", "remark", "by", "at", "uniq_key")


def _cells(row: Ending) -> dict[str, object]:
    sent, of_log = row.sent or (None, None)
    own = {name: getattr(row, name) for name in _OWN}
    return {"plan_id": row.plan_id, **row.key._asdict(), **own, "sent_offset": sent, "sent_commit_log_offset": of_log}


def _ending(cells: Mapping[str, Any]) -> Ending:
    sent = cells["sent_offset"]
    place = None if sent is None else PlannedPlace(sent, cells["sent_commit_log_offset"])
    key = key_of(cells)
    return Ending(cells["plan_id"], key, sent=place, **{name: cells[name] for name in _OWN})


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
    sent: PlannedPlace | None


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
        self,
        row: Row,
        state: State,
        remark: str | None = None,
        code: int | None = None,
        sent: PlannedPlace | None = None,
    ) -> Ending:
        self._last = max(self._clock(), (self._last or datetime.min.replace(tzinfo=timezone.utc)) + _TICK)
        outcome = (state, code, remark, self._by, self._last, row.uniq_key, sent)
        return Ending(self._plan_id, row.key, row.kind, row.origin, row.evidence, *outcome)


_TICK = timedelta(microseconds=1)


def newest(rows: Iterable[Ending]) -> dict[Key, Ending]:
    """Returns the row of each half key that counts."""
    found: dict[Key, Ending] = {}
    for row in sorted(rows, key=lambda each: each.at):
        found[row.key] = row
    return found
