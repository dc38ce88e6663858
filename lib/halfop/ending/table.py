"""The table `endings`: rows appended as `Endings` asks for it, and what earlier calls have recorded there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from halfop.columns.keys import Key
from halfop.ending.endings import UNFINISHED, Ending, newest
from halfop.ending.plan import Place
from halfop.planning.ranges import OffsetRange, covers
from halfop.warehouse.tables import Warehouse

TABLE = "endings"


@dataclass(frozen=True)
class EndingsTable:
    """The table of a warehouse; one process at a time holds its lock."""

    warehouse: Warehouse

    def record(self, rows: Sequence[Ending]) -> None:
        self.warehouse.append_rows(TABLE, [_cells(row) for row in rows])


@dataclass(frozen=True)
class Known:
    """What earlier calls have recorded of some half messages: by this plan, and when other plans last sent anything.

    `after` is the instant of the newest row.
    """

    mine: Mapping[Key, Ending]
    others: Mapping[Key, datetime]
    after: datetime | None


def known(warehouse: Warehouse, plan_id: str, keys: Collection[Key]) -> Known:
    """Returns what is recorded of these half messages."""
    near = covers(_ranges(keys), "queue_offset")
    found = [] if near is None else [_ending(row) for row in _rows(warehouse.read(TABLE, where=near).toArrow())]
    mine = [row for row in found if row.plan_id == plan_id]
    by_plan = {each: [row for row in found if row.plan_id == each] for each in {row.plan_id for row in found}}
    others = [row for each in by_plan.keys() - {plan_id} for row in newest(by_plan[each]).values()]
    waiting = {row.key: row.at for row in sorted(others, key=lambda row: row.at) if row.state in UNFINISHED}
    return Known(newest(mine), waiting, max((row.at for row in found), default=None))


def _ranges(keys: Iterable[Key]) -> list[OffsetRange]:
    offsets: dict[tuple[str, int], list[int]] = {}
    for key in keys:
        offsets.setdefault(key[:2], []).append(key.queue_offset)
    return [OffsetRange(*queue, min(found), max(found)) for queue, found in offsets.items()]


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return list(table.to_pylist())


_OWN = ("kind", "origin", "evidence", "state", "code", "remark", "by", "at", "uniq_key")


def _cells(row: Ending) -> dict[str, object]:
    sent, of_log = row.sent or (None, None)
    own = {name: getattr(row, name) for name in _OWN}
    return {"plan_id": row.plan_id, **row.key._asdict(), **own, "sent_offset": sent, "sent_commit_log_offset": of_log}


def _ending(cells: Mapping[str, Any]) -> Ending:
    sent = cells["sent_offset"]
    place = None if sent is None else Place(sent, cells["sent_commit_log_offset"])
    key = Key(*(cells[name] for name in Key._fields))
    return Ending(cells["plan_id"], key, sent=place, **{name: cells[name] for name in _OWN})
