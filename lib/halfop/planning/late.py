"""Half messages that land out of their order: then rows that earlier runs have read may belong to them."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import DataFrame

from halfop.planning.arrivals import Arrivals
from halfop.planning.clocks import clocks
from halfop.planning.ranges import between_values
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.spark_errors import READ_ERRORS
from halfop.warehouse.tables import NO_TABLE, Selected


def arrived_late(arrivals: Arrivals) -> bool:
    """Returns whether half messages arrived below what had landed before; true also if nobody knows."""
    before = arrivals.run.inputs_before
    if arrivals.run.first or before["half_messages"] == NO_TABLE:
        return False
    try:
        progress = clocks(progress_rows(arrivals.warehouse, before["landing_progress"]))
    except READ_ERRORS:  # the run before was so long ago that its version has been removed
        return True
    landed = {(clock.broker_name, clock.queue_id): clock.next_offset for clock in progress}
    lows = {(each.broker_name, each.queue_id): each.low for each in arrivals.counts.halves.ranges}
    # of a queue whose half messages are the first, ops and final messages may have landed before them
    offsets = [(landed.get(queue), low) for queue, low in lows.items()]
    return any(next_offset is None or low < next_offset for next_offset, low in offsets)


class LookedBack(Counter[str]):
    """Counts the files of each table that a run had to look back into."""

    def read(self, name: str, found: Selected) -> DataFrame | None:
        """The rows, whose files are counted; None if no file can hold one."""
        self[name] += found.files or 0
        return found.rows if found.files else None


def older(arrivals: Arrivals, name: str, values: DataFrame, looked_back: LookedBack) -> DataFrame | None:
    """Rows of earlier landings whose column of that name lies among these values; None if there are none."""
    before, upto = arrivals.run.inputs_before[name], arrivals.run.inputs[name]
    near = None if before == NO_TABLE else between_values(values, *values.columns)
    if near is None:
        return None
    return looked_back.read(name, arrivals.warehouse.landed_until(name, before, upto, near))
