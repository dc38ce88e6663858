"""Real queues as far as they have been pulled: a rollback is known only if no final message can be missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.landing.lost import Range
from halfop.warehouse.tables import Warehouse


def real_queues(halves: DataFrame) -> dict[tuple[str, int], int]:
    """The queues that these half messages' final messages may be in, each with the first one's store time in ms."""
    first = F.min(F.unix_millis("store_timestamp")).alias("first")
    rows = halves.na.drop(subset=["real_topic", "real_queue_id"]).groupBy("real_topic", "real_queue_id").agg(first)
    return {(row["real_topic"], row["real_queue_id"]): row["first"] for row in rows.collect()}


def with_seen(
    warehouse: Warehouse, halves: DataFrame, pulled: Collection[tuple[str, int]], holes: Iterable[Range], now: int
) -> DataFrame:
    """The half messages with `seen`: whether their real queue has been pulled and has no hole after them.

    A hole without a time counts as one of `now` (epoch microseconds).
    """
    queues = [(*queue, True) for queue in sorted(pulled)]
    there = warehouse.frame(queues, "real_topic STRING, real_queue_id INT, there BOOLEAN")
    until = _newest_loss(holes, now)
    losses = [(*queue, instant) for queue, instant in until.items()]
    lost_until = warehouse.frame(losses, "real_topic STRING, real_queue_id INT, lost_until BIGINT")
    rows = halves.join(F.broadcast(there), ["real_topic", "real_queue_id"], "left")
    rows = rows.join(F.broadcast(lost_until), ["real_topic", "real_queue_id"], "left")
    after_losses = F.coalesce(F.unix_micros("store_timestamp") > F.col("lost_until"), F.lit(True))
    return rows.withColumn("seen", F.coalesce(F.col("there"), F.lit(False)) & after_losses)


def _newest_loss(holes: Iterable[Range], now: int) -> dict[tuple[str, int], int]:
    until: dict[tuple[str, int], int] = {}
    for hole in holes:
        queue = (hole.topic, hole.queue)
        until[queue] = max(until.get(queue, 0), hole.until or now)
    return until
