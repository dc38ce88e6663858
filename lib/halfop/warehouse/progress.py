"""landing_progress as its readers see it: one row a queue, each value as far as any landing has moved it.

A landing only appends rows, so no landing can set another one's back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from halfop.warehouse.tables import Warehouse

TABLE = "landing_progress"
_KEY = ("broker_name", "topic", "queue_id")
_FURTHEST: Mapping[str, Callable[[Iterable[Any]], Any]] = {
    "next_offset": max,
    "known_until": max,
    "landed_at": max,
    "first_offset": min,
    "planned_offset": max,
    "planned_at": max,
    "highest_offset": max,
}


def progress_rows(warehouse: Warehouse, version: int | None = None) -> list[dict[str, Any]]:
    """One row a broker, topic and queue, at a version or now."""
    queues: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in warehouse.rows(TABLE, version):
        queues.setdefault(tuple(row[name] for name in _KEY), []).append(row)
    return [dict(zip(_KEY, key, strict=True)) | _furthest(rows) for key, rows in queues.items()]


def _furthest(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    given = {name: [row[name] for row in rows if row[name] is not None] for name in _FURTHEST}
    return {name: furthest(given[name]) if given[name] else None for name, furthest in _FURTHEST.items()}
