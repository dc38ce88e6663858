"""Half messages that land out of their order: then rows that earlier runs have read may belong to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import QUEUE
from halfop.planning.arrivals import Arrivals
from halfop.planning.counts import between_values, covers, ranges_of
from halfop.planning.run import BROKERS_OWN, clocks, known_before, sources
from halfop.rules import ops as o
from halfop.warehouse.progress import GATEWAY
from halfop.warehouse.tables import NO_TABLE, Selected
from halfop.warehouse.where import Where

_NAMING = ("final_messages", "broker_discards")
_TABLES = ("half_messages", *_NAMING)
_IN_ORDER = (*BROKERS_OWN, GATEWAY)  # sources that land half messages first


def arrived_late(arrivals: Arrivals) -> bool:
    """Returns whether rows that earlier runs have read may name half messages that arrived; true also if nobody knows.

    They may if half messages arrived below what had landed before, or if their source lands in any order.
    """
    before = arrivals.run.inputs_before
    if arrivals.run.first or not (arrivals.counts.halves.ranges and any(before[name] != NO_TABLE for name in _TABLES)):
        return False
    progress = known_before(arrivals.warehouse, arrivals.run)
    if progress is None:
        return True
    landed = {(clock.broker_name, clock.queue_id): clock.next_offset for clock in clocks(progress)}
    lows = {(each.broker_name, each.queue_id): each.low for each in arrivals.counts.halves.ranges}
    # of a queue whose half messages are the first, ops and final messages may have landed before them
    offsets = [(landed.get(queue), low) for queue, low in lows.items()]
    below = any(next_offset is None or low < next_offset for next_offset, low in offsets)
    return below or _named_in_no_order(arrivals, sources(progress))


def _named_in_no_order(arrivals: Arrivals, source_of: Mapping[str, str | None]) -> bool:
    """Returns whether final messages or discard records may have landed before their half messages.

    Files and a user's own pipeline may land them so, and no run keeps them waiting as it does ops.
    """
    if all(arrivals.run.inputs_before[name] == NO_TABLE for name in _NAMING):
        return False
    return any(source_of.get(each.broker_name) not in _IN_ORDER for each in arrivals.counts.halves.ranges)


class LookedBack(Counter[str]):
    """Counts the files of each table that a run had to look back into."""

    def read(self, name: str, found: Selected) -> DataFrame | None:
        """The rows, whose files are counted; None if no file can hold one."""
        self[name] += found.files or 0
        return found.rows if found.files else None


def ops_before(arrivals: Arrivals, looked_back: LookedBack) -> DataFrame | None:
    """Sound ops of earlier landings, under the key of the arrived half message that each names; None if none does.

    An earlier run may have rejected them because their half message had not landed, or was faulty.
    """
    halves = arrivals.halves.select(*QUEUE, F.col("queue_offset").alias("half_offset"))
    found = _older(arrivals, "op_messages", covers(arrivals.counts.halves.ranges, "half_offset"), looked_back)
    if found is None:
        return None
    naming = arrivals.kept.computed(o.landed(found).join(halves.distinct(), halves.columns, "left_semi"))
    places = ranges_of(naming.withColumnRenamed("op_queue_offset", "queue_offset"), "queue_offset")
    near = _older(arrivals, "op_messages", covers(places, "queue_offset"), looked_back)
    if near is None:
        return None
    same = o.landed(near).join(naming.select(o.OP_KEY).distinct(), o.OP_KEY, "left_semi")
    return o.as_named(o.once_per_row(naming, same))


def older(arrivals: Arrivals, name: str, values: DataFrame, looked_back: LookedBack) -> DataFrame | None:
    """Rows of earlier landings whose column of that name lies among these values; None if there are none."""
    if arrivals.run.inputs_before[name] == NO_TABLE:
        return None
    return _older(arrivals, name, between_values(values, *values.columns), looked_back)


def _older(arrivals: Arrivals, name: str, near: Where | None, looked_back: LookedBack) -> DataFrame | None:
    before, upto = arrivals.run.inputs_before[name], arrivals.run.inputs[name]
    if near is None or before == NO_TABLE:
        return None
    return looked_back.read(name, arrivals.warehouse.landed_until(name, before, upto, near))
