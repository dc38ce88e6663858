"""Whole half messages for decided rows, without moving a body: the decided side, packed, travels to the bodies."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.rules.blocks import look_up, packed
from halfop.rules.halves import IDENTITY
from halfop.rules.words import HALF_KEY, present
from halfop.runs.digest import Digest
from halfop.runs.inputs import Inputs
from halfop.runs.ranges import covers

_KIN = ["producer_group", "uniq_key", "born_timestamp"]
_SAME = [*HALF_KEY, *IDENTITY, "real_topic", "real_queue_id", "producer_group"]


def with_bodies(inputs: Inputs, digest: Digest, decisions: list[str], payload: list[str]) -> DataFrame:
    """The half messages that the run decided so, each once, with the columns `payload` of their decisions."""
    mine = (F.col("run_id") == inputs.run.run_id) & F.col("decision").isin(decisions)
    decided = inputs.warehouse.read("decisions").where(mine)
    halves = inputs.warehouse.read("half_messages", inputs.run.inputs["half_messages"])
    halves = halves.where(covers(digest.spans(decisions), "queue_offset"))
    rows = sum(digest.totals[decision] for decision in decisions)
    other = F.col("copy_offset").isNotNull()
    once = look_up(halves, packed(decided.where(~F.col("repeated") & ~other), rows, payload), payload, "inner")
    found = [once]
    found += [_picked(halves, decided.where(F.col("repeated") & ~other), payload)] if digest.repeated(decisions) else []
    found += [_copies(halves, decided.where(other), payload)] if digest.by_copy(decisions) else []
    return reduce(DataFrame.unionByName, found)


def _copies(halves: DataFrame, decided: DataFrame, payload: list[str]) -> DataFrame:
    """The copies that were named, where other copies stand for their transactions."""
    named = decided.withColumn("copy", F.explode("copies")).where("copy.queue_offset = copy_offset")
    ours = [c for c in [*HALF_KEY, *_KIN] if c != "queue_offset"]
    wanted = [F.col(c).alias(f"decided_{c}") for c in ours]
    wanted += [F.col("copy")[c].alias(f"decided_{c}") for c in ("queue_offset", "commit_log_offset")]
    same = [_comparable(c).eqNullSafe(F.col(f"decided_{c}")) for c in [*ours, "queue_offset", "commit_log_offset"]]
    return halves.join(named.select(*wanted, *payload), same).dropDuplicates(HALF_KEY).select(*halves.columns, *payload)


def _picked(halves: DataFrame, decided: DataFrame, payload: list[str]) -> DataFrame:
    """Where a message landed more than once: the very row that was decided, and of equal rows one."""
    picked = decided.select(*[F.col(c).alias(f"decided_{c}") for c in _SAME], *payload)
    same = [_comparable(c).eqNullSafe(F.col(f"decided_{c}")) for c in _SAME]
    found = halves.join(picked, same).dropDuplicates(HALF_KEY)
    return found.select(*halves.columns, *payload)


def _comparable(column: str) -> Column:
    texts = ("uniq_key", "real_topic", "producer_group")
    return present(F.col(column)) if column in texts else F.col(column)
