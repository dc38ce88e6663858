"""What can be ended: what a transaction lacks for that, and what of a plan has changed since it was made."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, KEY_COLUMNS, Key, key_of, superseded_by
from halfop.ending.plan import EndingPlan, Row, places_of, rows_of
from halfop.ending.table import State
from halfop.planning.counts import covers, ranges_of
from halfop.runs.standing import RESUMED, Standing, last_decisions, standing
from halfop.warehouse.tables import Warehouse

_AT_ONCE = 10_000
_HINT = "plan again"


def lacks() -> Column:
    """Returns what a transaction lacks so that nobody can end it; null if it lacks nothing."""
    return (
        F.when(F.col("decision") == RESUMED, RESUMED)
        .when(F.col("reason") == "LOST_BY_BROKER", "LOST_BY_BROKER")
        .when(F.col("producer_group").isNull(), "NO_PRODUCER_GROUP")
        .when(F.col("uniq_key").isNull(), "NO_UNIQ_KEY")
        .when(F.col("commit_log_offset").isNull(), "NO_COMMIT_LOG_OFFSET")
    )


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
