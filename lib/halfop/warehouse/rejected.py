"""The table `rejected`: rows in its form, and the columns of rows that an older version wrote without them."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.warehouse.schema import table
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import Where

TABLE = "rejected"
_ADDED = ("item", "half_offset", "range_from", "range_to", "range_topic", "range_until")


def in_form(rows: DataFrame) -> DataFrame:
    """Returns the rows with all columns of the table; a column that they lack is null."""
    missing = {f.name: F.lit(None).cast(f.dataType) for f in table(TABLE).struct if f.name not in rows.columns}
    return rows.withColumns(missing).select(table(TABLE).names)


def read_rejected(warehouse: Warehouse, version: int | None = None, where: Where | None = None) -> DataFrame:
    """Returns the table, at a version; rows of version 0.1 have the columns that were added after it, too.

    `where` may name only columns that version 0.1 had.
    """
    written = reduce(or_, [F.col(name).isNotNull() for name in _ADDED])
    added = {name: F.when(written, F.col(name)).otherwise(old) for name, old in _in_words_of_0_1().items()}
    return in_form(warehouse.read(TABLE, version, where).withColumns(added))


def _in_words_of_0_1() -> dict[str, Column]:
    """Returns what version 0.1 wrote into `detail` alone, as the columns that later versions have for it.

    An op had `item 0 names half offset 7, outcome COMMIT`, or `item 0, text 7, outcome none, …` if the op itself has a
    fault; a range had a JSON object; a half message and a resume had their offset in `queue_offset` already.
    """
    kind, is_range = F.col("kind"), F.col("kind") == "RANGE"

    def extracted(pattern: str) -> Column:
        return F.when(kind == "OP", F.nullif(F.regexp_extract("detail", pattern, 1), F.lit("")))

    def of_range(field: str) -> Column:
        return F.when(is_range, F.get_json_object("detail", f"$.{field}"))

    text = F.when(F.col("reason").isin("NO_OUTCOME", "KEY_REUSED"), extracted(r"\Aitem \w+, text ([+-]?[0-9]+), "))
    named = F.coalesce(extracted(r"\Aitem \d+ names half offset (\d+), "), text).try_cast("bigint")
    return {
        "item": extracted(r"\Aitem (\d+)[ ,]").try_cast("int"),
        "half_offset": F.when(kind.isin("HALF", "RESUME"), F.col("queue_offset")).otherwise(named),
        "range_from": of_range("since").try_cast("bigint"),
        "range_to": of_range("upto").try_cast("bigint"),
        "range_topic": of_range("topic"),
        "range_until": F.timestamp_micros(of_range("until").try_cast("bigint")),
    }
