"""A plan: transactions that somebody wants to end, each with its outcome and all that an answer to its broker needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from halfop.columns.keys import Key, key_of
from halfop.frame.plan_file import INSTANT, PlanFile, new_plan_id
from halfop.frame.trouble import owner

Kind = Literal["COMMIT", "ROLLBACK", "RESUME"]
COMMIT: Kind = "COMMIT"
ROLLBACK: Kind = "ROLLBACK"
RESUME: Kind = "RESUME"  # no plan has it: `resume --broker` sends it at once
Origin = Literal["KEY", "WHERE", "RESOLVE", "SWEEP"]

_PLACE = pa.struct([("queue_offset", pa.int64()), ("commit_log_offset", pa.int64())])
ROWS = pa.schema(
    [
        ("kind", pa.string()),
        ("broker_name", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("uniq_key", pa.string()),
        ("producer_group", pa.string()),
        ("real_topic", pa.string()),
        ("origin", pa.string()),
        ("evidence", pa.string()),
        ("decision", pa.string()),
        ("reason", pa.string()),
        ("check_times", pa.int32()),
        ("run_id", pa.int64()),
        ("born_timestamp", INSTANT),
        ("commit_log_offset", pa.int64()),
        ("copies", pa.list_(_PLACE)),
    ]
)
_FORM = 2


@dataclass(frozen=True)
class PlanHead:
    """The origin of a plan; `decisions` is the version of that table from which its rows are.

    `warehouse`: the instant of its first run, by which it is known; None in plans of older versions.
    """

    plan_id: str
    decisions: int
    made_at: str
    made_by: str
    asked_for: str
    warehouse: str | None = None
    form: int = _FORM

    @property
    def instant(self) -> datetime:
        return datetime.fromisoformat(self.made_at)


@dataclass(frozen=True)
class EndingPlan:
    """A head, and rows with the columns of `ROWS`, one a transaction, under the half key of its live copy."""

    head: PlanHead
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.rows)


class PlannedPlace(NamedTuple):
    """The place of a half message, or of a copy, in its queue and in its broker's log; there -1 if it is not known."""

    queue_offset: int
    commit_log_offset: int


class Row(NamedTuple):
    """A row of a plan, as Python has it; the live copy comes last in `places`."""

    key: Key
    kind: Kind
    origin: Origin
    evidence: str | None
    uniq_key: str
    producer_group: str
    real_topic: str | None
    decision: str | None
    born_timestamp: datetime | None
    places: tuple[PlannedPlace, ...]


def new_head(decisions: int, asked_for: str, warehouse: str | None = None) -> PlanHead:
    """Returns the head of a plan that is made now, by this user."""
    now = datetime.now(timezone.utc)
    return PlanHead(new_plan_id(now), decisions, now.isoformat(), owner(), asked_for, warehouse)


def rows_of(table: pa.Table, size: int) -> Iterator[list[Row]]:
    """Returns the rows of a plan in batches of at most `size`."""
    for start in range(0, len(table), size):
        yield [_row(each) for each in table.slice(start, size).to_pylist()]


def _row(cells: Mapping[str, Any]) -> Row:
    key = key_of(cells)
    taken = {name: cells[name] for name in Row._fields if name in cells}
    return Row(key=key, places=places_of(cells), **taken)


def places_of(cells: Mapping[str, Any]) -> tuple[PlannedPlace, ...]:
    """Returns all half messages of the transaction that a row stands for, its own, the live copy, last."""
    own = place_of(cells)
    others = (place_of(each) for each in cells["copies"] or ())
    return (*sorted(each for each in others if each.queue_offset != own.queue_offset), own)


def place_of(cells: Mapping[str, Any]) -> PlannedPlace:
    """Returns the place that a row, or a copy in it, shows."""
    log_offset = cells["commit_log_offset"]
    return PlannedPlace(cells["queue_offset"], -1 if log_offset is None else log_offset)


_FILE = PlanFile(PlanHead, ROWS, _FORM, "`end` or `resolve`")


def write(plan: EndingPlan, path: str) -> None:
    """Writes a plan to a new file."""
    _FILE.write(plan.head, plan.rows, path)


def read(path: str) -> EndingPlan:
    """Returns a plan as it was written, or with fewer rows; InputRefused if it is something else."""
    return EndingPlan(*_FILE.read(path))
