"""Messages that a run wrote and that tables need not have any more: they were erased, or trimmed by age."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.frame.errors import LostRows
from halfop.planning.counts import covers, ranges_of
from halfop.planning.digest import Digest
from halfop.sinks.messages import named_key, with_bodies
from halfop.sinks.targets import Target, WholeMessages
from halfop.warehouse.erasures import erased_keys
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.upkeep import TRIMMED_BEFORE, first_whole_run, trimmed_before
from halfop.warehouse.where import equal

_ALL_TOPICS = "real_topics"


def removed(warehouse: Warehouse, target: Target, run_id: int) -> int:
    """Returns the number of messages that a run decided for a table and that it need not have, or not any more.

    Rows without a whole half key count: nothing finds their body. A user's own pipeline may have written them.
    """
    return _removed(warehouse, target, run_id).count()


def without_body(whole: WholeMessages, target: Target) -> int:
    """Returns the same without those whose half messages the run finds all the same: an erasure was stopped."""
    rows = _removed(whole.warehouse, target, whole.run.run_id).select(named_key())
    return rows.join(with_bodies(whole, once=True), HALF_KEY, "left_anti").count()


def _removed(warehouse: Warehouse, target: Target, run_id: int) -> DataFrame:
    rows = warehouse.read("decisions", where=equal("run_id", run_id)).where(F.col("decision") == target.decision)
    rows = rows.where(F.col("real_topic") == target.topic) if target.topic else rows
    trimmed = [
        (F.col("real_topic") == topic) & (F.unix_micros("decided_at") < before)
        for topic, before in trimmed_topics(warehouse, target).items()
    ]
    is_removed = reduce(or_, [*trimmed, *(F.col(name).isNull() for name in HALF_KEY)])
    near = covers(ranges_of(rows.dropna(subset=HALF_KEY), "queue_offset"), "queue_offset")
    erased = None if near is None else erased_keys(warehouse, near)
    if erased is not None:
        rows = rows.join(erased.withColumn("erased", F.lit(True)), HALF_KEY, "left")
        is_removed |= F.col("erased").isNotNull()
    return rows.where(is_removed)


def trimmed_topics(warehouse: Warehouse, target: Target) -> dict[str, int]:
    """Returns the topics in a table that are trimmed by age, and before which instant, in epoch microseconds."""
    if target.topic:
        found = {target.topic: trimmed_before(warehouse, None, target.path)}
    elif target.path == _ALL_TOPICS:
        start = f"{TRIMMED_BEFORE}."
        named = [name.removeprefix(start) for name in warehouse.properties(target.path) if name.startswith(start)]
        found = {topic: trimmed_before(warehouse, None, target.path, topic) for topic in named}
    else:
        found = {}
    return {topic: before for topic, before in found.items() if before is not None}


def refuse_lost(warehouse: Warehouse, target: Target, run_id: int) -> None:
    """Raises LostRows if the table has lost a run's rows that the run, by its decisions, wrote there.

    What `decisions` has lost, too, `examine` lets a later run decide again: then the run's marker is all that is left.
    """
    try:
        warehouse.refuse_lost(target.path, run_id)
    except LostRows:
        due = Digest.of(warehouse, run_id).rows_for(target.decision, target.topic)
        if removed(warehouse, target, run_id) < due if due else run_id < first_whole_run(warehouse):
            raise
