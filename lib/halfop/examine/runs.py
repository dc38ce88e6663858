"""Rows of `runs` and of `decisions` brought back: from each other, and from what a run has left in other tables."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY
from halfop.landing.progress import instant
from halfop.planning.digest import Digest
from halfop.planning.plan import PLAN_APP, arrived, plan_of
from halfop.planning.run import INPUTS, Run
from halfop.runs.record import CLOSE_APP, OPEN_APP, found_run, wall_clock, write_opened
from halfop.settings.model import Settings
from halfop.sinks.targets import app_of
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.rows import Kept
from halfop.warehouse.schema import table
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS, first_line, raise_mistake
from halfop.warehouse.tables import NO_TABLE, Marker
from halfop.warehouse.upkeep import first_whole_run
from halfop.warehouse.where import equal

Row = Mapping[str, Any]


def by_run(warehouse: KernelWarehouse) -> dict[int, dict[str, Row]]:
    """The rows of each run, by event."""
    found: dict[int, dict[str, Row]] = {}
    for row in warehouse.rows("runs"):
        found.setdefault(row["run_id"], {})[row["event"]] = row
    return found


def newest_seen(warehouse: KernelWarehouse, tables: list[str]) -> int:
    """The newest run that has left a marker anywhere."""
    markers = [warehouse.marker("runs", OPEN_APP), warehouse.marker("runs", CLOSE_APP)]
    markers.append(warehouse.marker("decisions", PLAN_APP))
    return max(markers + [warehouse.marker(name, app_of(name)) for name in tables])


def bring_back(warehouse: KernelWarehouse, settings: Settings, tables: list[str], left: Sequence[Row]) -> list[int]:
    """Writes rows that `runs` lacks, and returns their runs. `left` are rows of files whose commit was lost.

    A run that only other tables show has seen nothing of what landed since the run before: so the next run looks at it.
    """
    warehouse.make("runs")
    known, done = by_run(warehouse), list[int]()
    for row in sorted(left, key=lambda row: (row["run_id"], row["event"] == "CLOSED", row["at"])):
        if row["event"] not in known.get(row["run_id"], {}):
            _append(warehouse, row, OPEN_APP if row["event"] == "OPENED" else CLOSE_APP)
            known.setdefault(row["run_id"], {})[row["event"]] = row
            done.append(row["run_id"])
    for run_id, events in sorted(known.items()):
        if "OPENED" not in events:
            _append(warehouse, {**events["CLOSED"], "event": "OPENED", "counts": {}, "seconds": {}}, OPEN_APP)
            done.append(run_id)
    for run_id in lost_runs(warehouse, tables):
        write_opened(warehouse, _unknown_run(warehouse, run_id, settings))
        done.append(run_id)
    return sorted({*done, *bring_back_ends(warehouse)})


def lost_runs(warehouse: KernelWarehouse, tables: list[str]) -> range:
    """The runs that only other tables show."""
    return range(max(by_run(warehouse), default=0) + 1, newest_seen(warehouse, tables) + 1)


def lost_ends(warehouse: KernelWarehouse) -> list[int]:
    """The runs whose closing row is lost: a marker, or a later run, shows that they had closed."""
    known, marked = by_run(warehouse), warehouse.marker("runs", CLOSE_APP)
    until = max(marked, max(known, default=0) - 1)
    return [run_id for run_id in sorted(known) if run_id <= until and "CLOSED" not in known[run_id]]


def bring_back_ends(warehouse: KernelWarehouse) -> list[int]:
    """Writes the closing rows that are lost; returns their runs."""
    known, lacking = by_run(warehouse), lost_ends(warehouse)
    for run_id in lacking:
        closed = {"event": "CLOSED", "counts": Digest.of(warehouse, run_id).recorded}
        _append(warehouse, dict(known[run_id]["OPENED"]) | closed, CLOSE_APP)
    return lacking


def _append(warehouse: KernelWarehouse, row: Row, app: str) -> None:
    append_lost(warehouse, "runs", [row], Marker(app, row["run_id"]))


def append_lost(
    warehouse: KernelWarehouse, name: str, rows: DataFrame | Sequence[Row], marker: Marker, number: int = 1
) -> None:
    """Appends so many rows of a run: under its marker if the table lacks that, too, and then also none."""
    lacks = warehouse.marker(name, marker.app) < marker.number
    if lacks or number:
        warehouse.commit(name, rows, marker if lacks else None)


def _unknown_run(warehouse: KernelWarehouse, run_id: int, settings: Settings) -> Run:
    """A run of which nothing is known but what it left: it pins what the run before had pinned."""
    before = by_run(warehouse).get(run_id - 1, {})
    row = before.get("CLOSED") or before.get("OPENED")
    decided = warehouse.read("decisions").where(F.col("run_id") == run_id)
    at = decided.agg(F.max(F.unix_micros("decided_at")).alias("at")).collect()[0]["at"]
    now = instant(at) or wall_clock()
    pins = dict.fromkeys(INPUTS, NO_TABLE) | (dict(row["inputs"]) if row else {})
    given = Settings.from_json(row["settings"]) if row else settings
    asks, delivered = (row["asks"] or {}, row["counts_delivered"] or {}) if row else ({}, {})
    now = max(now, row["now"]) if row else now
    return Run(run_id, now, pins, pins, given, asks=asks, delivered=delivered)


KEY = ["run_id", *HALF_KEY]
_OF_TOPIC = {"queue_id": "half_queue_id", "queue_offset": "half_queue_offset", "uniq_key": "transaction_id"}
_OF_TOPIC |= {"real_topic": "topic", "real_queue_id": "queue_id", "commit_log_offset": "prepared_transaction_offset"}
_OF_TOPIC |= {"decided_at": "committed_at"}
_OF_DISCARD = {"decided_at": "discarded_at"}
_OF_REQUEST = {"queue_id": "half_queue_id", "queue_offset": "tran_state_table_offset", "decided_at": "requested_at"}
_OF_REQUEST |= {"last_checked_at": "requested_at"}


def evidence(warehouse: KernelWarehouse, topics: Sequence[str]) -> DataFrame:
    """Decisions in the form of their table, as topics, discards and questions show them."""
    group = F.try_element_at("properties", F.lit("PGROUP"))
    committed = {"decision": F.lit("COMMIT"), "reason": F.lit("PRODUCER"), "producer_group": group}
    parts = [_decisions(warehouse.read(name), _OF_TOPIC, committed) for name in (*topics, "real_topics")]
    discarded = {"decision": F.lit("DISCARD")}
    asked = {"decision": F.lit("CHECK"), "reason": F.lit("TIMEOUT"), "open": F.lit(True)}
    parts.append(_decisions(warehouse.read("trans_check_max_time"), _OF_DISCARD, discarded))
    parts.append(_decisions(warehouse.read("check_requests"), _OF_REQUEST, asked))
    return reduce(DataFrame.unionByName, parts)


def _decisions(rows: DataFrame, named: dict[str, str], said: dict[str, Column]) -> DataFrame:
    known: dict[str, Column] = {"open": F.lit(False), "repeated": F.lit(False), "check_times": F.lit(0)}
    known |= {name: F.col(name) for name in rows.columns if name != "landed_at"}
    known |= {name: F.col(of) for name, of in named.items()} | said
    struct = table("decisions").struct
    return rows.select(*[known.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in struct])


def lacking(warehouse: KernelWarehouse, topics: Sequence[str]) -> DataFrame:
    """The proven decisions that `decisions` lacks."""
    shown = evidence(warehouse, topics)
    if warehouse.version("decisions") == NO_TABLE:
        return shown
    known = warehouse.read("decisions").where("decision <> 'EARLY_OP'").select(KEY)
    return shown.join(known, KEY, "left_anti").dropDuplicates(KEY)


# ---- rows of decisions: what a run decided follows from its pins, and what it delivered proves the rest ----


log = logging.getLogger("halfop.examine")


@dataclass(frozen=True)
class Deficit:
    """A run and the rows of `decisions` that it lacks; None if their number is not known."""

    run_id: int
    rows: int | None

    def __str__(self) -> str:
        return f"run {self.run_id} lacks {'some' if self.rows is None else self.rows} of its decisions"


def deficits(warehouse: KernelWarehouse, topics: Sequence[str]) -> list[Deficit]:
    """The runs that have fewer decisions than they recorded, or than other tables prove."""
    if warehouse.version("decisions") == NO_TABLE:
        counted, whole = {}, 1
    else:
        rows = warehouse.read("decisions").groupBy("run_id").count().collect()
        counted, whole = {row["run_id"]: int(row["count"]) for row in rows}, first_whole_run(warehouse)
    proven = {row["run_id"] for row in lacking(warehouse, topics).select("run_id").distinct().collect()}
    found = []
    for run_id, events in sorted(by_run(warehouse).items()):
        recorded = _recorded(events)
        few = recorded is not None and counted.get(run_id, 0) < recorded
        if run_id >= whole and (few or run_id in proven):
            found.append(Deficit(run_id, recorded - counted.get(run_id, 0) if few and recorded is not None else None))
    return found


def _recorded(events: dict[str, Row]) -> int | None:
    """The number of decisions that a closed run recorded."""
    closed = events.get("CLOSED")
    return None if closed is None else sum(closed["counts"].values())


def bring_back_decisions(warehouse: KernelWarehouse, topics: Sequence[str], also: Sequence[int] = ()) -> list[Deficit]:
    """Writes the rows that runs lack, in the order of the runs; `also` are runs whose plans are to be looked at.

    Returns what was brought back. A second call adds nothing.
    """
    warehouse.make("decisions")
    done = []
    for run_id in sorted({*also, *(each.run_id for each in deficits(warehouse, topics))}):
        found = found_run(warehouse, run_id)
        if found is not None and (number := _restore(warehouse, found[0], topics)):
            done.append(Deficit(run_id, number))
    return done


def _restore(warehouse: KernelWarehouse, run: Run, topics: Sequence[str]) -> int:
    proven = lacking(warehouse, topics).where(F.col("run_id") == run.run_id)
    there = warehouse.read("decisions", where=equal("run_id", run.run_id))
    early = F.when(F.col("decision") == "EARLY_OP", F.col("op_queue_offset")).alias("early")
    key = [*map(F.col, HALF_KEY), early]
    # over decisions of earlier runs as they have been brought back
    now = replace(run, inputs=dict(run.inputs) | {"decisions": warehouse.version("decisions")})
    with Kept(warehouse.stage) as kept:
        proven = kept.persisted(proven)
        rows = proven
        try:
            with arrived(warehouse, now) as arrivals:
                planned = plan_of(arrivals).decisions.withColumn("early", early)
                known = there.select(key).unionByName(proven.select(key)).distinct()
                same = [planned[c].eqNullSafe(known[c]) for c in (*HALF_KEY, "early")]
                rows = kept.persisted(planned.join(known, same, "left_anti").drop("early").unionByName(proven))
                return _append_decisions(warehouse, run, rows)
        except OPERATIONAL_ERRORS as error:
            raise_mistake(error)
            log.warning("what run %d decided cannot be computed again: %s", run.run_id, first_line(error))
            return _append_decisions(warehouse, run, proven)


def _append_decisions(warehouse: KernelWarehouse, run: Run, rows: DataFrame) -> int:
    number = rows.count()
    append_lost(warehouse, "decisions", rows, Marker(PLAN_APP, run.run_id), number)
    return number


# ---- messages that nobody looks at any more ----


def land_forgotten(warehouse: KernelWarehouse, last: Run, at: int) -> int:
    """Lands half messages again that no run will look at: none has ended them, and none has left them open.

    The next run then decides about them, with all ops that have landed. Returns their number.
    """
    name, before = "half_messages", last.inputs["half_messages"]
    if last.slice.number < last.slice.of or warehouse.version(name) == NO_TABLE:
        return 0
    decided = warehouse.read("decisions").where("decision <> 'EARLY_OP'")
    known = decided.where(~F.col("open") | (F.col("run_id") == last.run_id)).select(HALF_KEY)
    new = warehouse.landed_between(name, before, warehouse.version(name)).select(HALF_KEY)
    rows = warehouse.read(name).join(known.unionByName(new).distinct(), HALF_KEY, "left_anti")
    with Kept(warehouse.stage) as kept:
        rows = kept.persisted(rows.withColumn("landed_at", F.lit(instant(at))))
        number = rows.count()
        if number:
            warehouse.commit(name, rows)
        return number
