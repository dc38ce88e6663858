"""`resume --broker`: messages that their broker itself gave up are put back there; its own check asks about them again.

In the lake they are open again once the copy has landed that the broker makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, KEY_COLUMNS, Key
from halfop.ending.owner import Masters
from halfop.ending.plan import RESUME, Row, new_head, places_of
from halfop.ending.selection import decided_until, landed, owners, refuse_forbidden, refuse_unreachable
from halfop.ending.sender import BrokerPart, Sender
from halfop.ending.standing import lacks, standing
from halfop.ending.table import NOT_ENDED, TABLE, Clerk, Ending, EndingsTable, known, newest
from halfop.frame.errors import InputRefused, UsageError
from halfop.frame.summary import Summary
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold
from halfop.warehouse.spark_errors import by_condition

_DISCARDS = "trans_check_max_time"
_SHOWN = 20


@dataclass(frozen=True)
class Resume:
    """Messages that brokers gave up: by their keys, or by a condition over trans_check_max_time."""

    where_is: Masters
    brokers: Sequence[str]
    keys: Collection[Key] = ()
    where: str | None = None
    limit: int = 1000
    wait: timedelta = timedelta(0)
    dry_run: bool = False


def resume_at_brokers(warehouse: KernelWarehouse, request: Resume) -> tuple[Summary, list[Ending]]:
    """Returns the summary, and what became of each message."""
    summary, version = Summary("resume"), decided_until(warehouse)
    rows, left_out = _rows(warehouse, request)
    summary.extra |= {"left_out": left_out} if left_out else {}
    names = owners(warehouse, {row.key.broker_name for row in rows})
    if len(rows) > request.limit:
        raise UsageError(f"{len(rows)} messages are to be resumed, end.limit is {request.limit}: name fewer")
    refuse_forbidden([*names], request.brokers)
    refuse_unreachable([*names], request.where_is)
    if request.dry_run:
        summary.extra["would_resume"] = len(rows)
        summary.notes.append("dry run: no broker was asked")
        return summary, []
    with hold(warehouse, "ending", request.wait):
        warehouse.make(TABLE)
        found = list(_resumed(warehouse, request, rows, names, version))
    states: Counter[str] = Counter(each.state for each in found)
    summary.extra |= {"endings": dict(states), "resumed": states["SENT"] + states["VERIFIED"]}
    summary.status = 5 if any(states[state] for state in NOT_ENDED) else 0
    return summary, found


def _resumed(
    warehouse: KernelWarehouse, request: Resume, rows: Sequence[Row], names: Mapping[str, Collection[str]], version: int
) -> Iterator[Ending]:
    head, table = new_head(warehouse.version("decisions"), "resume"), _Kept(warehouse)
    earlier = known(warehouse, head.plan_id, [row.key for row in rows])
    for name, lives in names.items():
        mine = [row for row in rows if row.key.broker_name in lives]
        part = BrokerPart(name, request.where_is, landed(warehouse, name, {row.key.queue_id for row in mine}, version))
        Sender(part, Clerk(head.plan_id, earlier.after), table, {}, earlier.sent_to(lives)).end(mine)
    yield from newest(table.kept).values()


class _Kept(EndingsTable):
    """The table, and what this call has written to it."""

    def __init__(self, warehouse: KernelWarehouse) -> None:
        super().__init__(warehouse)
        self.kept: list[Ending] = []

    def record(self, rows: Sequence[Ending]) -> None:
        super().record(rows)
        self.kept += rows


# ---- which messages ----


def _rows(warehouse: KernelWarehouse, request: Resume) -> tuple[list[Row], dict[str, int]]:
    """The messages that their brokers gave up, and that are so still, and how many of them lack what a request needs.

    Raises InputRefused for a key of another one.
    """
    rows = standing(warehouse).rows.withColumn("lacks", lacks())
    given_up = rows.where("decision = 'DISCARD' AND reason = 'BROKER_DISCARDED'")
    with by_condition(request.where):
        found = given_up.join(_asked(warehouse, request), HALF_KEY, "left_semi").toArrow().to_pylist()
    if unknown := sorted(set(request.keys) - {_key(cells) for cells in found}):
        problem = f"no message that its broker gave up: {', '.join(map(str, unknown[:_SHOWN]))}"
        hint = "nothing was resumed; `resume` without --broker opens again what a run of halfop discarded"
        raise InputRefused(warehouse.path("decisions"), None, problem, hint)
    left_out = Counter(cells["lacks"] for cells in found if cells["lacks"])
    return [_row(cells) for cells in found if not cells["lacks"]], dict(left_out)


def _asked(warehouse: KernelWarehouse, request: Resume) -> DataFrame:
    if request.where is None:
        return F.broadcast(warehouse.frame(sorted(set(request.keys)), KEY_COLUMNS))
    return warehouse.read(_DISCARDS).where(request.where).select(HALF_KEY)


def _key(cells: Mapping[str, Any]) -> Key:
    return Key(*(cells[name] for name in Key._fields))


def _row(cells: Mapping[str, Any]) -> Row:
    taken = ("uniq_key", "producer_group", "real_topic", "decision", "born_timestamp")
    return Row(_key(cells), RESUME, "KEY", None, places=places_of(cells), **{name: cells[name] for name in taken})
