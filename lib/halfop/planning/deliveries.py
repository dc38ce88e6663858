"""Questions about the open set that were delivered since the run before (rules.count: delivered)."""

from __future__ import annotations

from pyspark.sql import DataFrame

from halfop.planning.run import Run
from halfop.rules.questions import counted, sent
from halfop.warehouse.kept import Kept
from halfop.warehouse.tables import Warehouse

TABLE = "check_deliveries"


def with_deliveries(warehouse: Warehouse, run: Run, open_rows: DataFrame, kept: Kept) -> DataFrame:
    """Returns the open set with the deliveries counted that arrived.

    A delivery that is read twice counts once: an open row forgets a question when it counts.
    """
    before, upto = run.inputs_before[TABLE], run.inputs[TABLE]
    if before == upto:
        return open_rows
    found = kept.computed(sent(open_rows, warehouse.landed_between(TABLE, before, upto)))
    return open_rows if found.isEmpty() else counted(open_rows, found, run.now)
