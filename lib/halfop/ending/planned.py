"""Plans made from half keys with outcomes, for `end` as for `resolve`."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.ending.plan import ROWS, Origin
from halfop.ending.standing import COLUMNS, Standing, lacks

TOO_YOUNG = "TOO_YOUNG"


class Planned(NamedTuple):
    """The rows of a plan, and how many transactions are left out of it, by reason."""

    rows: pa.Table
    left_out: dict[str, int]


def planned(standing: Standing, wanted: DataFrame, origin: Origin, born_until: datetime) -> Planned:
    """Returns the rows of a plan for the transactions that `wanted` names.

    `wanted` has the half key of any copy, `kind` (COMMIT or ROLLBACK) and `evidence` (text or null), one row a
    transaction. Younger ones than `born_until`, and those that lack what an answer needs, are left out and counted.
    Half keys that are not among the standing transactions are in neither.
    """
    live = standing.keys().join(wanted.select(*HALF_KEY, "kind", "evidence"), HALF_KEY)
    asked = live.select("stands_at.*", "kind", "evidence")
    rows = standing.rows.join(asked, HALF_KEY).select(*COLUMNS, "kind", "evidence", left_out(born_until))
    found = rows.orderBy("broker_name", "queue_id", "queue_offset").toArrow()
    return split(found, origin)


def left_out(born_until: datetime) -> Column:
    """Returns `why_not`: why a transaction gets into no plan, whatever its outcome; null if it may."""
    young = F.when(~F.coalesce(F.col("born_timestamp") <= F.lit(born_until), F.lit(True)), TOO_YOUNG)
    return F.coalesce(lacks(), young).alias("why_not")


def split(found: pa.Table, origin: Origin) -> Planned:
    """Returns the plan's rows of transactions with `kind`, `evidence` and `why_not`, and counts the others."""
    counts = found["why_not"].drop_null().value_counts().to_pylist()
    taken = found.filter(found["why_not"].is_null()).drop_columns("why_not")
    columns = {name: taken[name] for name in taken.column_names}
    columns["origin"] = pa.array([origin] * len(taken), pa.string())
    columns["copies"] = pa.array([_places(copies) for copies in taken["copies"].to_pylist()], ROWS.field("copies").type)
    arrays = [columns[field.name].cast(field.type) for field in ROWS]
    return Planned(pa.Table.from_arrays(arrays, schema=ROWS), {each["values"]: each["counts"] for each in counts})


def _places(copies: list[dict[str, object]] | None) -> list[dict[str, object]] | None:
    kept = ("queue_offset", "commit_log_offset")
    return None if copies is None else [{name: copy[name] for name in kept} for copy in copies]
