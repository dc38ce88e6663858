"""The transactions that stand: open ones, and discarded ones that nothing has opened or ended since."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, QUEUE
from halfop.planning.counts import between_values, covers, ranges_of
from halfop.planning.plan import PLAN_APP
from halfop.runs.record import waiting
from halfop.sinks.targets import app_of
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.where import all_of, equal

_DISCARDS = "trans_check_max_time"
RESUMED = "RESUMED"  # stands for the decision of a discarded message that waits for the next run
COLUMNS = [
    *("broker_name", "queue_id", "queue_offset", "uniq_key", "producer_group", "real_topic", "decision", "reason"),
    *("check_times", "run_id", "born_timestamp", "commit_log_offset", "copies", "copies_elsewhere"),
]


@dataclass(frozen=True)
class Standing:
    """Rows of `decisions` at a version, one a transaction, under the half key of its live copy."""

    version: int
    rows: DataFrame

    def keys(self) -> DataFrame:
        """Returns every half key of these transactions, also of superseded copies, with the key `stands_at`."""
        offsets = F.coalesce(F.transform("copies", lambda copy: copy["queue_offset"]), F.array(F.col("queue_offset")))
        here = F.transform(offsets, lambda offset: _half_key(offset, F.col("queue_id"), F.col("broker_name")))
        elsewhere = F.transform("copies_elsewhere", lambda copy: _half_key(*(copy[c] for c in HALF_KEY)))
        every = F.coalesce(F.concat(elsewhere, here), here)
        rows = self.rows.select(F.struct(*HALF_KEY).alias("stands_at"), F.explode(every).alias("copy"))
        return rows.select("copy.*", "stands_at")


def _half_key(*cells: Column) -> Column:
    return F.struct(*[cell.alias(c) for cell, c in zip(cells, HALF_KEY, strict=True)])


def standing(warehouse: Warehouse, discarded: bool = True) -> Standing:
    """Returns the open transactions of the last run that has decided, and all discarded ones that are still so.

    Discarded ones that wait for the next run because somebody has resumed them have the decision RESUMED.
    """
    planned = warehouse.marker("decisions", PLAN_APP)
    version = warehouse.version("decisions")
    opened = _opened(warehouse, version, planned)
    parts = [opened]
    if discarded and warehouse.version(_DISCARDS) != NO_TABLE:
        asked = warehouse.read(_DISCARDS).select(HALF_KEY).distinct()
        if (found := _discarded(warehouse, Standing(version, opened), asked)) is not None:
            parts.append(found)
    return Standing(version, reduce(DataFrame.unionByName, parts))


def standing_discards(warehouse: Warehouse, asked: DataFrame) -> DataFrame | None:
    """Returns which of these half keys are still discarded, as `standing` does; None if no run has decided yet."""
    version = warehouse.version("decisions")
    opened = _opened(warehouse, version, warehouse.marker("decisions", PLAN_APP))
    return _discarded(warehouse, Standing(version, opened), asked)


def written_discards(warehouse: Warehouse) -> int:
    """Returns the last run whose discards are in their table; those of later ones can be neither resumed nor ended."""
    return warehouse.marker(_DISCARDS, app_of(_DISCARDS))


def _opened(warehouse: Warehouse, version: int, planned: int) -> DataFrame:
    if version == NO_TABLE:
        return warehouse.empty("decisions").select(COLUMNS)
    rows = warehouse.read("decisions", version, all_of(equal("open", True), equal("run_id", planned)))
    return rows.where(F.col("decision") != "EARLY_OP").select(COLUMNS)


def _discarded(warehouse: Warehouse, opened: Standing, asked: DataFrame) -> DataFrame | None:
    """Those of the half keys that are discarded and have not gone on under a later copy; None if there are none."""
    version = opened.version
    near = None if version == NO_TABLE else covers(ranges_of(asked, "queue_offset"), "queue_offset")
    if near is None:
        return None
    rows = last_decisions(warehouse.read("decisions", version, near).join(asked, HALF_KEY, "left_semi"))
    discards = rows.where(F.col("decision") == "DISCARD").select(COLUMNS)
    gone_on = opened.keys()
    if (ended := _taken_over(warehouse, version, discards)) is not None:
        gone_on = gone_on.unionByName(ended)
    return _marked(discards.join(gone_on.select(HALF_KEY), HALF_KEY, "left_anti"), waiting(warehouse)).select(COLUMNS)


def _marked(discards: DataFrame, resumes: DataFrame) -> DataFrame:
    """Discards with the decision RESUMED if the next run opens them again."""
    resumed = resumes.select(*HALF_KEY, F.lit(RESUMED).alias("resumed")).distinct()
    found = discards.join(F.broadcast(resumed), HALF_KEY, "left")
    return found.withColumn("decision", F.coalesce("resumed", "decision"))


def last_decisions(rows: DataFrame) -> DataFrame:
    """Returns the last decision about each half message of these rows of `decisions`."""
    of_messages = rows.where(F.col("decision") != "EARLY_OP")
    last = of_messages.groupBy(HALF_KEY).agg(F.max_by(F.struct("*"), "run_id").alias("last"))
    return last.select("last.*")


def _taken_over(warehouse: Warehouse, version: int, discards: DataFrame) -> DataFrame | None:
    """Half keys of transactions that ended under a later copy: a broker may resume what it gave up."""
    near = between_values(discards, "born_timestamp")
    if near is None:
        return None
    rows = warehouse.read("decisions", version, all_of(equal("open", False), near))
    ended = rows.where(F.col("copies").isNotNull() & F.col("decision").isin("COMMIT", "ROLLBACK"))
    here = reduce(lambda a, b: a & b, [F.col("stands_at")[c] == F.col(c) for c in QUEUE])
    keys = Standing(version, ended.select(COLUMNS)).keys()
    return keys.where(~here | (F.col("queue_offset") < F.col("stands_at.queue_offset")))
