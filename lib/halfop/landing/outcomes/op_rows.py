"""Rows of op_messages from a real broker: one row an item, with the outcome that the broker's final messages show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.columns.lives import Lives
from halfop.landing.outcomes.by_join import with_outcomes
from halfop.warehouse.in_memory import Kept, at_hand
from halfop.warehouse.schema import table
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import Where, all_of, between, is_null, one_of

_KEY = ["broker_name", "queue_id", "queue_offset", "item", "source", "of_life"]
_FEW = 200_000


@dataclass(frozen=True)
class Reach:
    """The part of a broker's log that has been read, as far as outcomes depend on it.

    `known` is a condition on an item and its half message's `half_log_offset`; `seen` adds column `seen` to half rows.
    """

    lives: Lives
    source: str
    known: Column
    seen: Callable[[DataFrame], DataFrame]


def looked_up(warehouse: Warehouse, unsettled: DataFrame, reach: Reach) -> DataFrame:
    """Items without an outcome as rows of op_messages, without landed_at, with what has landed of the others."""
    return _with_outcomes(warehouse, at_hand(unsettled.drop("outcome")), reach, bounded=True)


def _columns() -> list[str]:
    return [c for c in table("op_messages").given if c != "landed_at"]


def land_again(warehouse: Warehouse, reach: Reach, landed_at: int) -> int:
    """Lands items again that landed without an outcome which is known by now; returns their number."""
    of_broker = one_of("broker_name", reach.lives.names)
    mine = F.col("source") == reach.source
    unknown, files = warehouse.select("op_messages", where=all_of(of_broker, is_null("outcome")))
    if not files:
        return 0
    unknown = unknown.where(mine & F.col("half_offset").isNotNull())
    places = unknown.agg(F.min("queue_offset").alias("low"), F.max("queue_offset").alias("high")).collect()[0]
    if places["low"] is None:
        return 0
    near = all_of(of_broker, between("queue_offset", places["low"], places["high"]))
    of_life = F.coalesce("life", F.lit(0))
    settled = warehouse.read("op_messages", where=near).where(mine & F.col("outcome").isNotNull())
    settled = settled.withColumn("of_life", of_life).select(_KEY)
    unknown = unknown.withColumn("of_life", of_life).dropDuplicates(_KEY)
    waiting = unknown.join(settled, _KEY, "left_anti").drop("outcome", "of_life")
    known = _with_outcomes(warehouse, waiting, reach, bounded=True).where(F.col("outcome").isNotNull())
    with Kept() as kept:
        known = kept.persisted(known)
        number = known.count()
        if number:
            warehouse.append("op_messages", known.withColumn("landed_at", F.timestamp_micros(F.lit(landed_at))))
        return number


def _with_outcomes(warehouse: Warehouse, split: DataFrame, reach: Reach, bounded: bool) -> DataFrame:
    """The items with outcomes; `bounded`: earlier rows are read only as far as the items reach."""
    mine = one_of("broker_name", reach.lives.names)
    if bounded:
        halves, finals = _near(warehouse, mine, split)
    else:
        halves, finals = (warehouse.read(name, where=mine) for name in ("half_messages", "final_messages"))
    return with_outcomes(split, reach.seen(halves), finals, reach.known, halves.count()).select(_columns())


def _near(warehouse: Warehouse, mine: Where, split: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The half messages that the items may name, and the final messages that may be theirs."""
    places = [F.min("half_offset").alias("low"), F.max("half_offset").alias("high"), F.count("*").alias("rows")]
    named = split.agg(*places).collect()[0]
    if named["low"] is None:
        return warehouse.empty("half_messages"), warehouse.empty("final_messages")
    near = between("queue_offset", named["low"], named["high"])
    halves, few = warehouse.read("half_messages", where=all_of(mine, near)), named["rows"] <= _FEW
    if few:  # they may be far apart, with millions of others between
        keys = split.select(*QUEUE, F.col("half_offset").alias("queue_offset")).distinct()
        halves = at_hand(halves.join(F.broadcast(keys), HALF_KEY, "left_semi"))
    spots = halves.agg(F.min("commit_log_offset").alias("low"), F.max("commit_log_offset").alias("high")).collect()[0]
    if spots["low"] is None:
        return halves, warehouse.empty("final_messages")
    theirs = between("prepared_transaction_offset", spots["low"], spots["high"])
    finals = warehouse.read("final_messages", where=all_of(mine, theirs))
    if few:
        named_by = halves.select(F.col("commit_log_offset").alias("prepared_transaction_offset"))
        finals = finals.join(F.broadcast(named_by), "prepared_transaction_offset", "left_semi")
    return halves, finals
