"""Rows of `rejected` that follow from a run: half messages, and what no decision shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.planning.plan import Plan
from halfop.planning.run import Run
from halfop.warehouse.rejected import in_form
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import equal

_NAMED = [("uniq_key ", "uniq_key"), (", group ", "producer_group"), (", real topic ", "real_topic")]


@contextmanager
def rejects(warehouse: Warehouse, run: Run, plan: Plan | None) -> Iterator[DataFrame]:
    """Half messages that the run rejected; with a plan also its ops, halves and resumes that no decision shows."""
    about = {"run_id": F.lit(run.run_id).cast("bigint"), "rejected_at": F.lit(run.now)}
    halves = _halves(warehouse, run)
    if plan is None:
        yield in_form(halves.withColumns(about))
        return
    with plan.rejects() as others:
        yield in_form(halves.unionByName(others, allowMissingColumns=True).withColumns(about))


def _halves(warehouse: Warehouse, run: Run) -> DataFrame:
    parts = [F.concat(F.lit(label), F.coalesce(F.substring(c, 1, 300), F.lit("none"))) for label, c in _NAMED]
    half_offset, detail = F.col("queue_offset").alias("half_offset"), F.concat(*parts).alias("detail")
    rows = warehouse.read("decisions", where=equal("run_id", run.run_id)).where(F.col("decision") == "REJECT")
    return rows.select(F.lit("HALF").alias("kind"), "reason", *HALF_KEY, half_offset, detail)
