"""`land files --accept-rewind`: files are compared with what has landed under the keys of their rows."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.columns.lives import Lives, all_lives, lives_of
from halfop.columns.values import present
from halfop.landing import progress
from halfop.landing.files.rows import SOURCE
from halfop.landing.files.taking import Way
from halfop.landing.rewind import KEY_REUSED, Begun, Cut, begin
from halfop.landing.tables import TABLES
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import equal

_TOPICS = {"half": HALF_TOPICS, "op": OP_TOPICS}
_IDENTITY = {"half": ["commit_log_offset", "store_timestamp", "uniq_key"], "op": ["store_timestamp"]}
Firsts = Mapping[tuple[str, int, str], int]  # the first offset that differs, by broker, queue and kind


def accept(warehouse: Warehouse, taken: Way, at: int) -> dict[str, bool]:
    """Begins a new life of each broker whose rows differ, or of which a run has found a reused key.

    Returns the new names, and whether anything differs: if not, the new life begins where the landed rows end.
    """
    differing = {key: first for kind in _TOPICS for key, first in _first_that_differ(warehouse, taken, kind).items()}
    rejected = warehouse.read("rejected", where=equal("reason", KEY_REUSED)).select("broker_name").distinct()
    names = {name for name, _, _ in differing} | {row["broker_name"] for row in rejected.collect()}
    found = {}
    for before in [each for name in sorted(names) if (each := _current(warehouse, name))]:
        cuts = _cuts(warehouse, before.current, differing)
        begin(warehouse, before, cuts, Begun(at, SOURCE, {}))
        found[lives_of(progress_rows(warehouse), before.broker_name).current] = any(cut.is_below for cut in cuts)
    return found


def _current(warehouse: Warehouse, name: str) -> Lives | None:
    """The lives of the broker whose current life has that name."""
    rows = progress_rows(warehouse)
    if any(name in lives.names[:-1] for lives in all_lives(rows)):
        return None
    return next((lives for lives in all_lives(rows) if lives.current == name), Lives(name))


def _first_that_differ(warehouse: Warehouse, taken: Way, kind: str) -> Firsts:
    rows = taken.rows(kind)
    if rows is None:
        return {}
    key = HALF_KEY if kind == "half" else [*HALF_KEY, "item"]
    keys = rows.select(key).distinct()
    landed = warehouse.read(TABLES[kind]).join(keys, key, "left_semi")
    standing = landed.groupBy(key).agg(F.min_by(_identity(landed, kind), "landed_at").alias("standing"))
    given = rows.select(*key, _identity(rows, kind).alias("given"))
    differ = given.join(standing, key).where(~F.col("given").eqNullSafe(F.col("standing")))
    first = differ.groupBy("broker_name", "queue_id").agg(F.min("queue_offset").alias("first"))
    return {(row["broker_name"], row["queue_id"], kind): row["first"] for row in first.collect()}


def _identity(rows: DataFrame, kind: str) -> Column:
    return F.struct(*[(present(F.col(c)) if c == "uniq_key" else F.col(c)).alias(c) for c in _IDENTITY[kind]])


def _cuts(warehouse: Warehouse, name: str, differing: Firsts) -> list[Cut]:
    cuts = []
    for (topic, queue_id), row in progress.of_broker(warehouse, name).items():
        for kind, topics in _TOPICS.items():
            if topic in topics:
                end = max(row.next_offset or 0, row.highest_offset or 0)
                cuts.append(Cut(topic, queue_id, differing.get((name, queue_id, kind), end), end, None))
    return cuts
