"""landing_progress as its readers see it: one row a queue, each value as far as any landing has moved it.

A landing only appends rows, so no landing can set another one's back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from halfop.warehouse.tables import Warehouse

TABLE = "landing_progress"
# No topic: the row of a broker's whole log, whose offsets are physical ones.
COMMIT_LOG = "commitlog"
_KEY = ("broker_name", "topic", "queue_id")
GATEWAY = "GATEWAY"
# If a queue has several sources, the last of these counts: the broker of a store, or a running one, asks producers by
# itself; a gateway does not.
_SOURCES = ("FILES", "STORE", "BROKER", GATEWAY)
_FURTHEST: Mapping[str, Callable[[Iterable[Any]], Any]] = {
    "next_offset": max,
    "known_until": max,
    "landed_at": max,
    "first_offset": min,
    "planned_offset": max,
    "planned_at": max,
    "highest_offset": max,
    "life_of": min,
    "life": min,
    "cut_offset": min,
    "cut_log_offset": min,
    "begun_at": min,
    "forgets_after": max,
}


def progress_rows(warehouse: Warehouse, version: int | None = None) -> list[dict[str, Any]]:
    """One row a broker, topic and queue, at a version or now."""
    queues: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in warehouse.rows(TABLE, version):
        queues.setdefault(tuple(row[name] for name in _KEY), []).append(row)
    return [dict(zip(_KEY, key, strict=True)) | _furthest(rows) for key, rows in queues.items()]


def _furthest(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    given = {name: [row[name] for row in rows if row[name] is not None] for name in _FURTHEST}
    found = {name: furthest(given[name]) if given[name] else None for name, furthest in _FURTHEST.items()}
    return found | _check(rows) | {"source": counting(row["source"] for row in rows)}


def _check(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How far the broker's own check had come when it was seen last: it may begin again at an earlier offset."""
    seen = [row for row in rows if row["check_since"] is not None]
    newest = max(seen, key=lambda row: row["check_since"], default={})
    return {name: newest.get(name) for name in ("check_offset", "check_since")}


def counting(sources: Iterable[str | None]) -> str | None:
    """Returns which of a queue's sources counts; None if none is known."""
    return max((source for source in sources if source), key=_rank, default=None)


def _rank(source: str) -> int:
    return _SOURCES.index(source) if source in _SOURCES else -1
