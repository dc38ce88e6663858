"""Whole messages of a run as rows of all their tables: committed, discarded, asked about."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.planning.digest import Digest
from halfop.planning.run import Run
from halfop.sinks.bodies import with_bodies
from halfop.sinks.projections import PAYLOAD, merged, projections
from halfop.sinks.staging import TARGET
from halfop.sinks.targets import Target
from halfop.warehouse.tables import Warehouse

_MOST_FILES = 4_000


def messages(warehouse: Warehouse, run: Run, digest: Digest, due: Mapping[int, Target]) -> DataFrame:
    """The rows of these tables, each with its table's number."""
    decisions = sorted({target.decision for target in due.values()})
    payload = sorted({column for decision in decisions for column in PAYLOAD[decision]})
    rows = with_bodies(warehouse, run, digest, decisions, ["decision", *payload])
    each = projections(run)
    columns = merged({decision: each[decision] for decision in decisions})
    rows_due = sum(digest.totals[decision] for decision in decisions)
    tasks = max(1, min(warehouse.tasks(rows_due), _MOST_FILES // len(due)))
    return _numbered(warehouse, run, rows, due).coalesce(tasks).select(*columns, TARGET)


def _numbered(warehouse: Warehouse, run: Run, rows: DataFrame, due: Mapping[int, Target]) -> DataFrame:
    """Rows with the number of the table that they go to; rows of tables that have them already are left out."""
    given = [(target.decision, target.topic, n) for n, target in due.items()]
    numbers = warehouse.frame(given, f"decision STRING, to_topic STRING, {TARGET} INT")
    a_table_each = (F.col("decision") == "COMMIT") & F.lit(run.settings.topics.layout == "per_topic")
    rows = rows.withColumn("to_topic", F.when(a_table_each, F.col("real_topic")).otherwise(""))
    return rows.join(F.broadcast(numbers), ["decision", "to_topic"])
