"""Frames that a run keeps at hand while it lasts, and releases when it ends."""

from __future__ import annotations

from contextlib import ExitStack

from pyspark.sql import DataFrame

from halfop.warehouse.in_memory import computed


class Kept(ExitStack):
    """Keeps frames until its block ends, whatever the block ends with."""

    def persisted(self, rows: DataFrame) -> DataFrame:
        """The rows, kept when they are first read, or computed now if they are in memory."""
        found = computed(rows)
        if found is None:
            self.callback(rows.unpersist)
            return rows.persist()
        return found

    def computed(self, rows: DataFrame) -> DataFrame:
        """The rows, computed now and cut off from the plan that made them.

        Without that, Spark would analyse a plan that grows tenfold with every step that joins the steps before it.
        """
        found = computed(rows)
        if found is None:
            found = rows.localCheckpoint()
            self.callback(_release, found)
        return found


def _release(found: DataFrame) -> None:
    """Frees the blocks of a local checkpoint: DataFrame.unpersist knows nothing of them."""
    found._jdf.queryExecution().analyzed().rdd().unpersist(False)
