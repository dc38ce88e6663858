"""The clock of each queue, by which its messages age: how far its landing has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from halfop.planning.run import Run
from halfop.rocketmq.names import HALF_TOPIC, HALF_TOPICS, OP_TOPIC, OP_TOPICS
from halfop.warehouse.progress import TABLE, progress_rows
from halfop.warehouse.tables import NO_TABLE, Warehouse

_TOPICS = (*HALF_TOPICS, *OP_TOPICS, None)


class Clock(NamedTuple):
    """The instant up to which the ops of a queue have landed, and the half offsets that have."""

    broker_name: str
    queue_id: int
    known_until: datetime | None
    next_offset: int | None
    first_offset: int | None


def clocks(progress: Iterable[Mapping[str, Any]]) -> list[Clock]:
    """Returns the clocks by landing_progress; a queue without a row for its op topic goes by the rows that it has.

    Queues of final messages and of discard records have none; a user's own pipeline may leave the topic out.
    """
    ordered = sorted((row for row in progress if row["topic"] in _TOPICS), key=_queue)
    return [_clock(*queue, list(rows)) for queue, rows in groupby(ordered, key=_queue)]


def late_clocks(known: Iterable[Clock], now: datetime, check_interval: timedelta) -> list[Clock]:
    """Clocks that are more than the check interval before `now`: the op logs of their queues have not landed."""
    due = now - check_interval
    return [clock for clock in known if clock.known_until is None or clock.known_until < due]


def _queue(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["broker_name"], row["queue_id"]


def _clock(broker_name: str, queue_id: int, rows: list[Mapping[str, Any]]) -> Clock:
    of_op = [row for row in rows if row["topic"] == OP_TOPIC]
    of_half = [row for row in rows if row["topic"] == HALF_TOPIC]
    return Clock(
        broker_name,
        queue_id,
        known_until=max(_given(of_op or rows, "known_until"), default=None),
        next_offset=max(_given(of_half, "next_offset"), default=None),
        first_offset=min(_given(of_half, "first_offset"), default=None),
    )


def _given(rows: list[Mapping[str, Any]], column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def known_before(warehouse: Warehouse, run: Run) -> list[dict[str, Any]] | None:
    """Returns how far each queue had landed when the run before pinned its inputs.

    None if that was so long ago that log clean-up has removed the version: then anything may have landed before.
    """
    version = run.inputs_before[TABLE]
    if version != NO_TABLE and not warehouse.keeps(TABLE, version):
        return None
    return progress_rows(warehouse, version)
