"""The questions that were asked about messages, and what became of them."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import Row
from pyspark.sql import functions as F

from halfop.columns.values import millis
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import Where, one_of


def requests(warehouse: Warehouse, where: Where) -> list[Row]:
    """Returns rows of check_requests under the keys of their half messages."""
    rows = warehouse.read("check_requests", where=where)
    key = [F.col("half_queue_id").alias("queue_id"), F.col("tran_state_table_offset").alias("queue_offset")]
    return rows.select("broker_name", *key, "request_id", "run_id", "check_times", "producer_group").collect()


def deliveries(warehouse: Warehouse, asked: Collection[str]) -> list[Row]:
    """Returns what became of these questions, named by their request ids."""
    if not asked:
        return []
    rows = warehouse.read("check_deliveries", where=one_of("request_id", sorted(asked)))
    return rows.select("request_id", "outcome", "client", "remark", "answered_after", millis("at")).collect()
