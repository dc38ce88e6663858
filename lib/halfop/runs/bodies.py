"""Whole half messages for decided rows, without moving a body: the decided side travels to the bodies.

64 neighbouring offsets of a queue are packed into one row, a map from place to payload, some ten bytes a message;
that is small enough to be broadcast for tens of millions of messages, so the bodies are streamed past it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.rules.halves import IDENTITY
from halfop.rules.words import HALF_KEY, QUEUE, block, place_in_block
from halfop.runs.digest import Digest
from halfop.runs.inputs import Inputs
from halfop.runs.ranges import covers

_BROADCAST_ROWS = 50_000_000
_SAME = [*HALF_KEY, *IDENTITY, "real_topic", "real_queue_id", "producer_group"]


def with_bodies(inputs: Inputs, digest: Digest, decisions: list[str], payload: list[str]) -> DataFrame:
    """The half messages that the run decided so, each once, with the columns `payload` of their decisions."""
    mine = (F.col("run_id") == inputs.run.run_id) & F.col("decision").isin(decisions)
    decided = inputs.warehouse.read("decisions").where(mine)
    halves = inputs.warehouse.read("half_messages", inputs.run.inputs["half_messages"])
    halves = halves.where(covers(digest.spans(decisions), "queue_offset"))
    rows = sum(digest.totals[decision] for decision in decisions)
    once = _streamed(halves, decided.where(~F.col("repeated")), payload, rows)
    picked = digest.repeated(decisions)
    return once.unionByName(_picked(halves, decided.where("repeated"), payload)) if picked else once


def _streamed(halves: DataFrame, decided: DataFrame, payload: list[str], rows: int) -> DataFrame:
    entry = F.struct(place_in_block().alias("place"), F.struct(*payload).alias("value"))
    packed = decided.groupBy(*QUEUE, block().alias("block")).agg(
        F.map_from_entries(F.collect_list(entry)).alias("packed")
    )
    packed = F.broadcast(packed) if rows <= _BROADCAST_ROWS else packed
    found = halves.withColumn("block", block()).join(packed, [*QUEUE, "block"])
    found = found.withColumn("found", F.try_element_at("packed", place_in_block())).where(F.col("found").isNotNull())
    return found.select(*[halves[c] for c in halves.columns], *[F.col("found")[c].alias(c) for c in payload])


def _picked(halves: DataFrame, decided: DataFrame, payload: list[str]) -> DataFrame:
    """Where a message landed more than once: the very row that was decided, and of equal rows one."""
    picked = decided.select(*[F.col(c).alias(f"decided_{c}") for c in _SAME], *payload)
    same = [_comparable(c).eqNullSafe(F.col(f"decided_{c}")) for c in _SAME]
    found = halves.join(picked, same).dropDuplicates(HALF_KEY)
    return found.select(*halves.columns, *payload)


def _comparable(column: str) -> Column:
    texts = ("uniq_key", "real_topic", "producer_group")
    return F.nullif(F.col(column), F.lit("")) if column in texts else F.col(column)
