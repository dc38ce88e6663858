"""Messages that may have escaped from one broker to another, as earlier runs have left them."""

from __future__ import annotations

from halfop.columns.values import in_micros
from halfop.planning.run import Run
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import all_of, at_least, equal, is_set


def escapes_ended(warehouse: Warehouse, run: Run) -> bool:
    """Returns whether messages have ended that may have escaped from a broker whose half message has not landed."""
    if run.first:
        return False
    since = run.now_micros - in_micros(run.settings.rules.file_reserved_time)
    ended = all_of(equal("open", False), is_set("escaped_key"), at_least("born_timestamp", since))
    return not warehouse.read("decisions", run.inputs["decisions"], ended).isEmpty()
