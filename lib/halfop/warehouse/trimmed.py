"""What `maintain` has trimmed, as properties of the tables tell."""

from __future__ import annotations

from halfop.warehouse.tables import Warehouse

# Of landing tables: what landed before this instant had ended long ago.
BEFORE = "halfop.trimmedBefore"
# Of `decisions`: runs before this one have lost rows that only carried open messages along.
RUNS = "halfop.trimmedRuns"


def trimmed_before(warehouse: Warehouse, version: int) -> str | None:
    """Up to when half messages have been trimmed, as text; those of that version."""
    return warehouse.log.properties(warehouse.path("half_messages"), version).get(BEFORE)


def first_whole_run(warehouse: Warehouse) -> int:
    """The first run whose decisions are all there."""
    return int(warehouse.log.properties(warehouse.path("decisions"), None).get(RUNS, 1))
