"""What a run has rejected, as its summary and its log show it: counted in what is written, with an example a reason."""

from __future__ import annotations

import logging

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from halfop.columns.keys import QUEUE
from halfop.frame.summary import Summary, add_counts
from halfop.warehouse.schema import REJECTED
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import equal
from halfop.wording import Reject, warn_of

log = logging.getLogger("halfop.reconcile")

_KEY = [*QUEUE, "queue_offset"]


def counts_of_rejects(rows: DataFrame) -> dict[str, int]:
    """Rejects by kind and reason."""
    return {f"{row['kind']}.{row['reason']}": row["count"] for row in rows.groupBy("kind", "reason").count().collect()}


def report_rejects(warehouse: Warehouse, run_id: int, summary: Summary) -> None:
    """Adds a run's rejects to the summary, and warns of each reason."""
    rows = warehouse.read(REJECTED, where=equal("run_id", run_id))
    first = F.min(F.struct(*_KEY, "item", F.substring("detail", 1, 400).alias("detail"))).alias("first")
    counted = rows.groupBy("kind", "reason").agg(F.count("*").alias("n"), first).collect()
    found = [Reject(kind, reason, n, _place(first), first["detail"] or "") for kind, reason, n, first in counted]
    add_counts(summary.rows_written, {"rejected": sum(each.rows for each in found)})
    warn_of(log, f"run {run_id}", summary, found)


def _place(row: Row) -> str:
    parts = [str(row[name]) for name in _KEY if row[name] is not None]
    return "/".join(parts) + ("" if row["item"] is None else f" item {row['item']}")
