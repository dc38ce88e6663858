"""The transactions that can be ended as they stand now, and what has changed since a plan was made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, KEY_COLUMNS, QUEUE, Key, key_of, superseded_by
from halfop.ending.plan import EndingPlan, Row, places_of, rows_of
from halfop.ending.table import State
from halfop.planning.counts import between_values, covers, ranges_of
from halfop.planning.plan import PLAN_APP
from halfop.runs.record import waiting
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
    if discarded and (found := _discarded(warehouse, version, Standing(version, opened))) is not None:
        parts.append(found)
    return Standing(version, reduce(DataFrame.unionByName, parts))


def _opened(warehouse: Warehouse, version: int, planned: int) -> DataFrame:
    if version == NO_TABLE:
        return warehouse.empty("decisions").select(COLUMNS)
    rows = warehouse.read("decisions", version, all_of(equal("open", True), equal("run_id", planned)))
    return rows.where(F.col("decision") != "EARLY_OP").select(COLUMNS)


def _discarded(warehouse: Warehouse, version: int, opened: Standing) -> DataFrame | None:
    """Discarded transactions whose last decision is that; None if no run has discarded any."""
    if version == NO_TABLE or warehouse.version(_DISCARDS) == NO_TABLE:
        return None
    asked = warehouse.read(_DISCARDS).select(HALF_KEY).distinct()
    near = covers(ranges_of(asked, "queue_offset"), "queue_offset")
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


def lacks() -> Column:
    """Returns what a transaction lacks so that nobody can end it; null if it lacks nothing."""
    return (
        F.when(F.col("decision") == RESUMED, RESUMED)
        .when(F.col("reason") == "LOST_BY_BROKER", "LOST_BY_BROKER")
        .when(F.col("producer_group").isNull(), "NO_PRODUCER_GROUP")
        .when(F.col("uniq_key").isNull(), "NO_UNIQ_KEY")
        .when(F.col("commit_log_offset").isNull(), "NO_COMMIT_LOG_OFFSET")
    )


_AT_ONCE = 10_000
_HINT = "plan again"


class Changed(NamedTuple):
    """A row that must not be ended; `ends_as`: how its transaction has ended by now, null if it has not."""

    row: Row
    remark: str
    ends_as: str | None

    def state(self, sent_before: bool) -> State:
        """Returns what to record: an end that we wanted, and perhaps have sent, is there now, or another one."""
        if self.ends_as is None:
            return "UNKNOWN" if sent_before else "FAILED"
        return "VERIFIED" if sent_before and self.ends_as == self.row.kind else "ENDED_MEANWHILE"


def checked(warehouse: Warehouse, plan: EndingPlan) -> tuple[list[Row], list[Changed]]:
    """Returns what may be ended of a plan, with the copies that the last run which has decided knows; and the rest."""
    now = standing(warehouse)
    given = warehouse.spark.createDataFrame(plan.rows.select(list(Key._fields)))
    live = {key_of(row): row for row in _live(now, given).toArrow().to_pylist()}
    rows = [row for batch in rows_of(plan.rows, _AT_ONCE) for row in batch]
    gone = [row for row in rows if row.key not in live]
    ends = _last(warehouse, now, gone) if gone else {}
    found = [_compared(row, live.get(row.key), ends.get(row.key)) for row in rows]
    return [each for each in found if isinstance(each, Row)], [each for each in found if isinstance(each, Changed)]


def _live(now: Standing, given: DataFrame) -> DataFrame:
    """The standing rows of the given half keys, under these keys."""
    asked = now.keys().join(given, HALF_KEY).select(F.struct(*HALF_KEY).alias("asked"), "stands_at")
    rows = now.rows.withColumn("stands_at", F.struct(*HALF_KEY)).drop(*HALF_KEY).join(asked, "stands_at")
    return rows.select("asked.*", *[c for c in rows.columns if c != "asked"])


def _last(warehouse: Warehouse, now: Standing, gone: list[Row]) -> dict[Key, Mapping[str, Any]]:
    """The last decisions about half messages that are neither open nor discarded, each by the copy that stands for it.

    A copy that the broker put back after the plan may stand for them now, or for one that stood for them before.
    """
    found: dict[Key, Mapping[str, Any]] = {}
    asked = {row.key for row in gone}
    while asked:
        decided = _decided(warehouse, now, asked)
        found |= decided
        asked = {by for row in decided.values() if (by := superseded_by(row)) is not None} - found.keys()
    return {row.key: found[end] for row in gone if (end := _end_of(row.key, found)) in found}


def _end_of(key: Key, found: Mapping[Key, Mapping[str, Any]]) -> Key:
    """The copy to which the pointers from this one lead."""
    passed = set[Key]()
    while key in found and key not in passed and (by := superseded_by(found[key])) is not None:
        passed.add(key)
        key = by
    return key


def _decided(warehouse: Warehouse, now: Standing, keys: Collection[Key]) -> dict[Key, Mapping[str, Any]]:
    asked = warehouse.frame(sorted(keys), KEY_COLUMNS)
    near = covers(ranges_of(asked, "queue_offset"), "queue_offset")
    rows = warehouse.read("decisions", now.version, near).join(asked, HALF_KEY, "left_semi")
    return {key_of(row): row for row in last_decisions(rows).toArrow().to_pylist()}


def _compared(row: Row, live: Mapping[str, Any] | None, last: Mapping[str, Any] | None) -> Row | Changed:
    if live is None:
        return _ended(row, last)
    stands_at = Key(**live["stands_at"])
    if stands_at[:2] != row.key[:2]:
        return Changed(row, f"it has escaped, and stands at {stands_at} now: {_HINT}", None)
    places = places_of({**live, "queue_offset": stands_at.queue_offset})
    if live["uniq_key"] != row.uniq_key or live["producer_group"] != row.producer_group:
        return Changed(row, "the plan's uniq_key or producer_group is not that of the half message", None)
    if row.places[-1] not in places:
        return Changed(row, "the plan's commit_log_offset is not that of the half message", None)
    if (live["decision"] == "DISCARD") != (row.decision == "DISCARD"):
        after = " after the next reconcile" if live["decision"] == RESUMED else ""
        return Changed(row, f"it was {row.decision} when planned, and is {live['decision']} now: {_HINT}{after}", None)
    return row._replace(places=places)


def _ended(row: Row, last: Mapping[str, Any] | None) -> Changed:
    if last is None:
        return Changed(row, "no run has decided about this half message", None)
    text = f"run {last['run_id']}: {last['decision']} {last['reason'] or ''}".rstrip()
    if last["decision"] in ("COMMIT", "ROLLBACK"):
        return Changed(row, text, last["decision"])
    return Changed(row, f"{text}: {_HINT}", None)
