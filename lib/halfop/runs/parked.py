"""Names of sinks that a user parks (--park-sink), checked against those that there are."""

from __future__ import annotations

from collections.abc import Collection

from halfop.frame.errors import UsageError
from halfop.frame.nearest import nearest
from halfop.sinks.targets import SINK_NAMES, WHOLE_TABLES
from halfop.warehouse.tables import Warehouse

_TOPIC = "topics/"


def known_form(name: str) -> str:
    """Returns the name of a table that a run writes; topics are only known when the warehouse is."""
    if name.startswith(_TOPIC) or name in SINK_NAMES:
        return name
    raise ValueError(f"{name!r} is none of {', '.join(SINK_NAMES)}{_near(name, SINK_NAMES)}")


def refuse_unknown_topics(warehouse: Warehouse, parked: Collection[str]) -> None:
    """Raises UsageError if a parked topic has no table, and no message for it has landed."""
    given = {name for name in parked if name.startswith(_TOPIC)}
    known = {f"{_TOPIC}{row['topic']}" for row in warehouse.rows("topics_index")} if given else set()
    if given <= known:
        return
    known |= _landed(warehouse)
    for name in sorted(given - known):
        near = _near(name, [*known, *WHOLE_TABLES])
        raise UsageError(f"--park-sink {name}: no message for this topic has landed{near}")


def _near(name: str, known: Collection[str]) -> str:
    close = nearest(name, known)
    return "" if close is None else f"; the nearest known sink is {close}"


def _landed(warehouse: Warehouse) -> set[str]:
    rows = warehouse.read("half_messages").where("real_topic IS NOT NULL").select("real_topic").distinct()
    return {f"{_TOPIC}{row['real_topic']}" for row in rows.collect()}
