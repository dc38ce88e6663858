"""The rows that `maintain` has trimmed, as recorded in properties of the tables."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from halfop.warehouse.tables import Warehouse

# On landing tables: rows that landed before this instant had ended long ago, and are trimmed.
BEFORE = "halfop.trimmedBefore"
# On `decisions`: runs before this one have lost rows that only carried open messages along.
RUNS = "halfop.trimmedRuns"


def trimmed_before(warehouse: Warehouse, version: int) -> int | None:
    """The instant up to which half messages are trimmed in a version, in epoch microseconds; None if none are."""
    text = warehouse.log.properties(warehouse.path("half_messages"), version).get(BEFORE)
    if text is None:
        return None
    whole, _, fraction = text.partition(".")
    since = datetime.fromisoformat(f"{whole}+00:00") - datetime.fromtimestamp(0, timezone.utc)
    return since // timedelta(seconds=1) * 1_000_000 + int(fraction.ljust(6, "0"))


def first_whole_run(warehouse: Warehouse) -> int:
    """The first run whose decisions are all there."""
    return int(warehouse.log.properties(warehouse.path("decisions"), None).get(RUNS, 1))
