"""Which offsets a set of rows covers, queue by queue: what lets Delta skip the files that cannot hold them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

# A filter of this many ranges still plans in an instant; beyond it one range over all groups must do.
_MOST = 500


class Ranges:
    """The lowest and highest `column` of each group of rows. `groups`: column of the table to be read → value here."""

    def __init__(self, rows: DataFrame, column: str, groups: Mapping[str, str]) -> None:
        self._types = {name: rows.schema[source].dataType for name, source in groups.items()}
        # as text: a collected timestamp would be in the machine's own time zone
        texts = [F.col(source).cast("string").alias(f"in_{name}") for name, source in groups.items()]
        ends = [F.min(column).alias("low"), F.max(column).alias("high")]
        known = rows.where(F.col(column).isNotNull())
        found = known.groupBy(*texts).agg(*ends).limit(_MOST + 1).collect()
        if len(found) > _MOST:
            self._types = {}
            found = known.agg(*ends).collect()
        self._found: list[Row] = found

    def __bool__(self) -> bool:
        return bool(self._found)

    def covers(self, column: str) -> Column:
        """Whether a row of the table to be read may be one of them."""
        return reduce(lambda a, b: a | b, [self._in(found, column) for found in self._found], F.lit(False))

    def _in(self, found: Row, column: str) -> Column:
        group = [F.col(name) == F.lit(found[f"in_{name}"]).cast(kind) for name, kind in self._types.items()]
        return reduce(lambda a, b: a & b, group, F.col(column).between(found["low"], found["high"]))
