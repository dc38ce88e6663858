"""Computes a run again from its pinned inputs, and compares it with what is recorded, row for row."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, MapType, StructType

from halfop.columns.keys import Key
from halfop.frame.errors import UsageError
from halfop.frame.log import logged_with
from halfop.frame.summary import Summary
from halfop.frame.units import plural
from halfop.planning.counts import covers
from halfop.planning.digest import Digest
from halfop.planning.plan import arrived
from halfop.planning.run import Run
from halfop.rules import VERSION
from halfop.runs.finish import planned
from halfop.runs.record import OPEN_APP, found_run, still_owed
from halfop.sinks.messages import TARGET, in_tables_columns, messages
from halfop.sinks.removed import trimmed_topics
from halfop.sinks.targets import SINK_TABLES, WHOLE_TABLES, Target, WholeMessages, targets, value_of
from halfop.sinks.write import rejects
from halfop.warehouse.erasures import erased_keys
from halfop.warehouse.schema import REJECTED, VALUE, table
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.upkeep import first_whole_run
from halfop.warehouse.where import equal

_SHOWN = 20
_GONE = "gone"
_REMOVED = "not compared: {} of run {}, erased (table erasures) or trimmed by age (retention.topics) since"
_SIDE = "side"
# The columns of a half key, by table: the first that a row has.
_KEY = (
    ("broker_name",),
    ("half_queue_id", "queue_id"),
    ("half_queue_offset", "tran_state_table_offset", "queue_offset"),
)
MISSING, UNEXPECTED, UNLIKE = "missing", "unexpected", "unlike"


@dataclass(frozen=True)
class Difference:
    """A row that is not recorded as it follows from the inputs. `columns`: those that differ, if both sides have it."""

    table: str
    what: str
    broker_name: str | None
    queue_id: int | None
    queue_offset: int | None
    columns: str = ""


def verify(warehouse: Warehouse, run_id: int) -> tuple[Summary, list[Difference]]:
    """Compares the run with what is recorded, and writes nothing; status 5 if something differs."""
    summary = Summary("reconcile", run_id=run_id)
    with summary.shown_in_failure():
        shown = _compared_with_records(warehouse, run_id, summary)
    summary.extra["differences"] = sum(summary.extra.get("differs", {}).values())
    summary.status = 5 if summary.extra["differences"] else 0
    return summary, shown


def _compared_with_records(warehouse: Warehouse, run_id: int, summary: Summary) -> list[Difference]:
    """Some of the rows that differ; the summary counts them all, table by table."""
    run, owed = _closed(warehouse, run_id)
    if run.rules_version != VERSION:
        summary.notes.append(f"run {run_id} was decided by rules version {run.rules_version}, verified by {VERSION}")
    if owed:
        summary.notes.append(f"not verified, because it is still owed: {', '.join(sorted(owed))}")
    shown: list[Difference] = []
    with logged_with(run_id=run_id), arrived(warehouse, run) as arrivals:
        plan, digest = planned(arrivals, summary), Digest.of(warehouse, run_id)
        with summary.phase("decisions"):
            decided = _of_run(warehouse, "decisions", run_id)
            shown += _compared(summary, {0: "decisions"}, plan.decisions, decided)
        with summary.phase("messages"):
            shown += _compared_messages(warehouse, run, digest, owed, summary)
        with summary.phase(REJECTED), rejects(warehouse, run, plan) as refused:
            if REJECTED not in owed:
                recorded = warehouse.read(REJECTED).where(F.col("run_id") == run_id)
                shown += _compared(summary, {0: REJECTED}, refused, recorded)
    return shown


def _closed(warehouse: Warehouse, run_id: int) -> tuple[Run, set[str]]:
    """The run, and the tables that it was closed without and that have not been written since."""
    found = found_run(warehouse, run_id)
    if found is None:
        last = max(warehouse.marker("runs", OPEN_APP), 0) or "none"
        raise UsageError(f"{warehouse.root} has no run {run_id}; the last one is {last}")
    run, closed = found
    if not closed:
        raise UsageError(f"run {run_id} has not been closed: the next reconcile finishes it")
    if run_id < (first := first_whole_run(warehouse)):
        raise UsageError(
            f"run {run_id} can no longer be verified: `maintain` has trimmed rows of runs before {first} "
            "(retention.waits, retention.verify)"
        )
    return run, still_owed(warehouse, run_id)


def _compared_messages(
    warehouse: Warehouse, run: Run, digest: Digest, owed: Collection[str], summary: Summary
) -> list[Difference]:
    """Compares the messages in all tables that got some of the run, or that may have some though they should not."""
    every = targets(warehouse, run, digest, again=True)
    for unfit in [target.unfit for target in every if target.unfit]:
        raise unfit
    due = dict(enumerate(target for target in every if target.name not in owed))
    tables = due | dict(enumerate(_others(warehouse, run.run_id, every), len(due)))
    if not tables:
        return []
    found = _messages(warehouse, tables, run.run_id)
    whole = WholeMessages(warehouse, run, digest, due, warehouse.stage)
    expected = _as_then(in_tables_columns(messages(whole), whole), whole) if due else found.limit(0)
    sides = _without_removed(whole, tables, [expected, found], summary)
    return _compared(summary, {number: target.name for number, target in tables.items()}, *sides)


def _without_removed(
    whole: WholeMessages, tables: Mapping[int, Target], sides: Sequence[DataFrame], summary: Summary
) -> list[DataFrame]:
    """Both sides without messages that were erased, or trimmed by their topic's age; the summary says how many."""
    run, gone, is_trimmed = whole.run, F.lit(False), False
    for number, target in tables.items():
        for topic, before in trimmed_topics(whole.warehouse, target).items():
            if run.now_micros < before:
                gone, is_trimmed = gone | ((F.col(TARGET) == number) & (F.col("topic") == topic)), True
    near = covers(whole.digest.of_any_landing.ranges(list(SINK_TABLES)), "queue_offset")
    erased = None if near is None else erased_keys(whole.warehouse, near)
    by_key = [_key_of(side.columns) for side in sides]
    if erased is None and not is_trimmed:
        return list(sides)
    if erased is None:
        marked = [side.withColumn(_GONE, gone) for side in sides]
    else:
        keys = erased.select(*[F.col(name).alias(f"erased_{name}") for name in Key._fields])
        named = [F.col(f"erased_{name}") for name in Key._fields]
        marked = [
            side.join(keys, [a == b for a, b in zip(key, named, strict=True)], "left")
            .withColumn(_GONE, gone | named[0].isNotNull())
            .drop(*keys.columns)
            for side, key in zip(sides, by_key, strict=True)
        ]
    if number := marked[0].where(_GONE).count():
        summary.notes.append(_REMOVED.format(plural(number, "message"), run.run_id))
    return [side.where(~F.col(_GONE)).drop(_GONE) for side in marked]


def _as_then(rows: DataFrame, whole: WholeMessages) -> DataFrame:
    """The rows without what the rules did not write yet in the run's version."""
    version, later = int(whole.run.rules_version), dict[str, list[int]]()
    for number, target in whole.due.items():
        for column in target.spec.columns:
            if int(column.since) > version:
                later.setdefault(column.name, []).append(number)
    without = {name: F.when(~F.col(TARGET).isin(*of), F.col(name)) for name, of in later.items()}
    return rows.withColumns(without) if without else rows


def _others(warehouse: Warehouse, run_id: int, targets: Sequence[Target]) -> list[Target]:
    """Tables that get nothing of the run, and whose files may have rows of it nevertheless."""
    topics = {f"topics/{row['directory']}": str(row["topic"]) for row in warehouse.rows("topics_index")}
    paths = {path: topics.get(path, "") for path in (*topics, *WHOLE_TABLES)}
    for target in targets:
        paths.pop(target.path, None)
    return [
        Target("", path, table("real_topic" if topic else path), "", 0, topic)
        for path, topic in paths.items()
        if warehouse.version(path) != NO_TABLE and warehouse.holds(path, run_id)
    ]


def _of_run(warehouse: Warehouse, name: str, run_id: int) -> DataFrame:
    return warehouse.read(name, where=equal("run_id", run_id))


def _messages(warehouse: Warehouse, targets: Mapping[int, Target], run_id: int) -> DataFrame:
    """Rows of the run in the tables, each with its table's number."""
    frames = [
        _of_run(warehouse, target.path, run_id)
        .withColumn(TARGET, F.lit(number))
        .withColumnRenamed(VALUE, value_of(number))
        for number, target in targets.items()
    ]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)


def _compared(summary: Summary, names: Mapping[int, str], expected: DataFrame, recorded: DataFrame) -> list[Difference]:
    """Counts what was compared and what differs by table, and returns some of the rows that do."""
    sides = [_side(expected, 1), _side(recorded, -1)]
    both = sides[0].unionByName(sides[1], allowMissingColumns=True)
    columns = [name for name in both.columns if name != _SIDE]
    rows = both.groupBy(columns).agg(F.sum(_SIDE).alias(_SIDE), F.count("*").alias("rows")).persist()
    try:
        counted = rows.groupBy(TARGET).agg(F.sum("rows").alias("rows"), F.sum(F.abs(_SIDE)).alias("differ")).collect()
        for row in counted:
            name = names[row[TARGET]]
            summary.rows_read[name] = summary.rows_read.get(name, 0) + (row["rows"] + row["differ"]) // 2
            if row["differ"]:
                summary.extra.setdefault("differs", {})[name] = row["differ"]
        differing = rows.where(F.col(_SIDE) != 0).orderBy(TARGET, *_key_of(columns)).limit(2 * _SHOWN).collect()
    finally:
        rows.unpersist()
    return _differences(names, differing)


def _side(rows: DataFrame, side: int) -> DataFrame:
    """Returns one side as rows that can be grouped: bodies by their digest, maps as sorted entries, values as JSON."""
    given = [_comparable(rows, name) for name in rows.columns]
    target = [] if TARGET in rows.columns else [F.lit(0).alias(TARGET)]
    return rows.select(*given, *target, F.lit(side).cast("bigint").alias(_SIDE))


def _comparable(rows: DataFrame, name: str) -> Column:
    kind = rows.schema[name].dataType
    if isinstance(kind, BinaryType):
        return F.sha2(name, 256).alias(name)
    if isinstance(kind, StructType) and name.startswith(VALUE):
        return F.to_json(name, {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}).alias(name)
    return F.sort_array(F.map_entries(name)).alias(name) if isinstance(kind, MapType) else F.col(name)


def _key_of(columns: Sequence[str]) -> list[Column]:
    return [F.coalesce(*(F.col(name) for name in names if name in columns)) for names in _KEY]


def _key(row: Row) -> tuple[Any, Any, Any]:
    given = [[row[name] for name in names if name in row.__fields__ and row[name] is not None] for names in _KEY]
    broker, queue, offset = (values[0] if values else None for values in given)
    return broker, queue, offset


def _differences(names: Mapping[int, str], rows: Sequence[Row]) -> list[Difference]:
    """Rows of one key on both sides are one difference, in the columns that are unlike."""
    by_key: dict[tuple[str, tuple[Any, Any, Any]], list[Row]] = {}
    for row in rows:
        by_key.setdefault((names[row[TARGET]], _key(row)), []).append(row)
    found: list[Difference] = []
    for (name, key), of_key in by_key.items():
        if len(of_key) == 2 and of_key[0][_SIDE] + of_key[1][_SIDE] == 0:
            found.append(Difference(name, UNLIKE, *key, _unlike(*of_key)))
        else:
            found += [Difference(name, MISSING if row[_SIDE] > 0 else UNEXPECTED, *key) for row in of_key]
    return found[:_SHOWN]


def _unlike(one: Row, other: Row) -> str:
    unlike = [name for name in one.__fields__ if name != _SIDE and one[name] != other[name]]
    return ", ".join(re.sub(rf"^{VALUE}_\d+$", VALUE, name) for name in unlike)
