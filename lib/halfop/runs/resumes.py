"""Resumes that wait for a run."""

from __future__ import annotations

from pyspark.sql import DataFrame

from halfop.runs.record import last_run
from halfop.warehouse.tables import NO_TABLE, Warehouse

TABLE = "resumes"


def waiting(warehouse: Warehouse) -> DataFrame:
    """Returns the resumes that no run has read; a run that is open, or has slices to come, may still read them."""
    found = last_run(warehouse)
    before = NO_TABLE
    if found:
        run, closed = found
        all_taken = closed and run.slice.number == run.slice.of
        before = (run.inputs if all_taken else run.inputs_before)[TABLE]
    return warehouse.landed_between(TABLE, before, warehouse.version(TABLE))
