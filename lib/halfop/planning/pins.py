"""The knowledge of the run before: landing_progress as it was at that run's pins."""

from __future__ import annotations

from typing import Any

from halfop.planning.run import Run
from halfop.warehouse.progress import TABLE, progress_rows
from halfop.warehouse.tables import NO_TABLE, Warehouse


def known_before(warehouse: Warehouse, run: Run) -> list[dict[str, Any]] | None:
    """Returns how far each queue had landed when the run before pinned its inputs.

    None if that was so long ago that log clean-up has removed the version: then anything may have landed before.
    """
    version = run.inputs_before[TABLE]
    if version != NO_TABLE and not warehouse.log.keeps(warehouse.path(TABLE), version):
        return None
    return progress_rows(warehouse, version)
