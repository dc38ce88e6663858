"""A plan to erase in one warehouse: half keys alone, so that its file holds no part of a message."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone

import pyarrow as pa

from halfop.columns.keys import Key
from halfop.frame.plan_file import PlanFile, new_plan_id
from halfop.frame.trouble import owner

ROWS = pa.schema([("broker_name", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64())])
_FORM = 2


@dataclass(frozen=True)
class ErasureHead:
    """The origin of a plan, the number of rows in each table when it was made, and of messages that stay open.

    `warehouse`: the instant of its first run, by which it is known.
    """

    plan_id: str
    made_at: str
    made_by: str
    asked_for: str
    left_open: int
    tables: dict[str, int] = field(default_factory=dict)
    warehouse: str = ""
    form: int = _FORM

    @property
    def instant(self) -> datetime:
        return datetime.fromisoformat(self.made_at)


@dataclass(frozen=True)
class ErasurePlan:
    """A head, and the half keys, one a row."""

    head: ErasureHead
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def keys(self) -> set[Key]:
        return {Key(*cells) for cells in zip(*(self.rows[name].to_pylist() for name in Key._fields), strict=True)}


def new_plan(keys: set[Key], asked_for: str, left_open: int, tables: dict[str, int], warehouse: str) -> ErasurePlan:
    """Returns a plan that is made now, by this user."""
    now = datetime.now(timezone.utc)
    head = ErasureHead(new_plan_id(now), now.isoformat(), owner(), asked_for, left_open, tables, warehouse)
    return ErasurePlan(head, pa.Table.from_pylist([key._asdict() for key in sorted(keys)], schema=ROWS))


_FILE = PlanFile(ErasureHead, ROWS, _FORM, "`erase`")


def write(plan: ErasurePlan, path: str) -> None:
    """Writes a plan to a new file."""
    _FILE.write(plan.head, plan.rows, path)


def read(path: str) -> ErasurePlan:
    """Returns a plan as it was written, or with fewer rows; InputRefused if it is something else."""
    return ErasurePlan(*_FILE.read(path))
