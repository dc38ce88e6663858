"""Half messages that land out of their order: then rows that earlier runs have read may belong to them."""

from __future__ import annotations

from collections import Counter

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.planning.arrivals import Arrivals
from halfop.planning.clocks import clocks
from halfop.planning.ranges import between_values
from halfop.warehouse.tables import NO_TABLE


def arrived_late(arrivals: Arrivals) -> bool:
    """Returns whether half messages arrived below what had landed before; true also if nobody knows."""
    before = arrivals.run.inputs_before
    if arrivals.run.first or before["half_messages"] == NO_TABLE:
        return False
    try:
        progress = clocks(arrivals.warehouse.rows("landing_progress", before["landing_progress"]))
    except (Py4JJavaError, PySparkException):  # the run before was so long ago that its version has been removed
        return True
    landed = {(clock.broker_name, clock.queue_id): clock.next_offset for clock in progress}
    lows = {(each.broker_name, each.queue_id): each.low for each in arrivals.counts.halves.ranges}
    offsets = [(landed.get(queue, low + 1), low) for queue, low in lows.items()]
    return any(next_offset is not None and low < next_offset for next_offset, low in offsets)


class LookedBack(Counter[str]):
    """Counts the files of each table that a run had to look back into."""

    def read(self, name: str, rows: DataFrame) -> DataFrame | None:
        """The rows, whose files are counted; None if no file can hold one."""
        files = len(rows.inputFiles())
        self[name] += files
        return rows if files else None


def older(arrivals: Arrivals, name: str, values: DataFrame, looked_back: LookedBack) -> DataFrame | None:
    """Rows of earlier landings whose column of that name lies among these values; None if there are none."""
    before, upto = arrivals.run.inputs_before[name], arrivals.run.inputs[name]
    near = None if before == NO_TABLE else between_values(values, *values.columns)
    if near is None:
        return None
    rows = arrivals.warehouse.read(name, upto).where(near & (F.col("_metadata.row_commit_version") <= before))
    return looked_back.read(name, rows)
