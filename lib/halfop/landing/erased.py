"""Half messages that land again after somebody has erased them: they are kept out."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.frame.trouble import owner
from halfop.warehouse.disk import DataFile
from halfop.warehouse.erasures import HALVES, TABLE, erasures
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.where import Where, any_of, between

log = logging.getLogger("halfop.land")
_MANY = 100
_KEPT_OUT = "%d rows of half messages that were erased have not landed again (table erasures)"


def near_files(files: Iterable[DataFile]) -> Where | None:
    """The rows whose offsets lie between those of one of the files; None of no files."""
    spans = sorted({span for file in files for span in _spans(file)})
    if len(spans) > _MANY:
        spans = [(spans[0][0], max(high for _, high in spans))]
    return any_of([between("queue_offset", low, high) for low, high in spans]) if spans else None


def _spans(file: DataFile) -> Iterator[tuple[int, int]]:
    bounds = json.loads(file.stats or "{}")
    if "queue_offset" in bounds.get("minValues", {}):
        yield bounds["minValues"]["queue_offset"], bounds["maxValues"]["queue_offset"]
    else:
        yield 0, 2**63 - 1


def may_be_erased(warehouse: Warehouse, name: str, near: Where | None) -> DataFrame | None:
    """Returns what is erased of half messages that are to land there, and may lie so; None if nothing is."""
    if name != HALVES or warehouse.version(TABLE) == NO_TABLE:
        return None
    return erasures(warehouse, near)


def without_erased(warehouse: Warehouse, rows: DataFrame, gone: DataFrame) -> DataFrame:
    """Returns half messages without those; `erasures` gets how many of each were kept out, as rows of the landing."""
    plans = gone.groupBy(*HALF_KEY).agg(F.max_by("plan_id", "at").alias("plan_id"))
    met = rows.select(*HALF_KEY, "landed_at").join(F.broadcast(plans), HALF_KEY)
    counted = met.groupBy("plan_id", *HALF_KEY, "landed_at").agg(F.count("*").alias("rows"))
    by = F.lit(f"{owner()}:{os.getpid()}")
    found = counted.withColumns({"table_name": F.lit(HALVES), "by": by, "at": F.current_timestamp()}).toArrow()
    if not len(found):
        return rows
    warehouse.commit(TABLE, found.to_pylist())
    log.warning(_KEPT_OUT, sum(found["rows"].to_pylist()))
    return rows.join(F.broadcast(plans), HALF_KEY, "left_anti")
