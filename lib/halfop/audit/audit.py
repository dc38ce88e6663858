"""The audit of real brokers: half, op, real and discard topics compared, as they have landed.

A pure function of pinned table versions: its id is a hash of them, so the same audit is written once.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from halfop.audit import transactions as t
from halfop.audit.coverage import LOST_AT_FIRST, StandingRows, checks, coverage
from halfop.audit.erased import ErasedHalves
from halfop.audit.fates import FATES, examine, of_others, overview
from halfop.audit.findings import FINDINGS, NAMES, TABLE
from halfop.audit.groups import Brokers, alive_until, forgotten, found_of_groups, found_of_hosts, twins
from halfop.columns.keys import HALF_KEY, in_micros
from halfop.frame.output import Table
from halfop.frame.summary import Summary
from halfop.planning.run import with_all_queues
from halfop.rules.settings_columns import RuleColumns
from halfop.settings.model import Settings
from halfop.warehouse.erasures import TABLE as ERASURES
from halfop.warehouse.lock import hold
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.tables import NO_TABLE, Marker, Warehouse
from halfop.wording import refuse_empty

_OF_COPIES = ("discards", "copies", "bytes", "checks", "late_checks")
_RULES_VERSION = 5  # part of an audit's id: other rules are another audit


class Topics(NamedTuple):
    """The rows of a broker's half, op, real and discard topics."""

    halves: DataFrame
    ops: DataFrame
    finals: DataFrame
    discards: DataFrame


@dataclass(frozen=True)
class Audit:
    """An audit's inputs: versions of tables, what stands of brokers' logs, and the settings that it goes by."""

    warehouse: Warehouse
    settings: Settings
    pins: Mapping[str, int]
    standing: StandingRows
    rules: RuleColumns
    erased: ErasedHalves | None

    @property
    def audit_id(self) -> str:
        settings = [self.settings.rules.model_dump_json(), in_micros(self.settings.landing.op_lag)]
        given = [_RULES_VERSION, sorted(self.pins.items()), settings]
        return hashlib.sha256(json.dumps(given).encode()).hexdigest()[:16]

    def read(self, name: str) -> DataFrame:
        rows = self.warehouse.read(name, self.pins[name])
        return rows if self.erased is None else self.erased.without(name, rows)

    @property
    def topics(self) -> Topics:
        return Topics(
            t.halves(self.halves, self.rules),
            t.ops(self.standing.ops(self.read("op_messages"))),
            t.finals(self.finals),
            t.discards(self.standing.by_place(self.read("broker_discards"))),
        )

    @property
    def halves(self) -> DataFrame:
        return self.standing.halves(self.read("half_messages"))

    @property
    def finals(self) -> DataFrame:
        return self.standing.by_place(self.read("final_messages"))


def audit(warehouse: Warehouse, settings: Settings) -> Summary:
    """Compares the topics, writes the findings to table `audit`, and returns the counts."""
    summary = Summary("audit")
    refuse_empty(warehouse)
    now = datetime.now(timezone.utc)
    pins = _pinned(warehouse)
    progress = progress_rows(warehouse, pins["landing_progress"])
    standing = StandingRows.of(progress)
    own = standing.own_names(progress)
    erased = ErasedHalves.of(warehouse)
    made = Audit(warehouse, settings, pins, standing, RuleColumns(settings.rules, now), erased)
    summary.notes += [] if erased is None else [erased.note]
    with summary.phase("read"):
        read = coverage(warehouse, pins, standing, own)
    rows = made.topics
    counted = overview(*rows).persist()
    op_lag = settings.landing.op_lag
    examined = examine(_other_transactions(rows, counted), read.queues, made.finals, op_lag).persist()
    brokers = Brokers(alive_until(*rows[:3]), checks(warehouse, own), read.queues)
    of_groups = found_of_groups(rows.halves, counted, examined, brokers, made.rules)
    others = [twins(rows.halves, counted), of_groups, found_of_hosts(made.halves)]
    others.append(forgotten(rows.halves, counted, brokers, made.rules))
    found = reduce(DataFrame.unionByName, [examined.select(F.inline("found")), *others])
    found = standing.landed_under(found).persist()
    try:
        with summary.phase("compare"):
            _count(made, [counted, examined, found], len(read.gaps), summary)
        with summary.phase("write"), hold(warehouse, TABLE, settings.lock.wait):
            _write(made, found, now, summary)
    finally:
        for kept in (found, examined, counted):
            kept.unpersist()
    return summary


def _pinned(warehouse: Warehouse) -> dict[str, int]:
    """The tables' versions, in the order opposite to landing's commits: all that a row refers to is there."""
    order = ("rejected", "landing_progress", "op_messages", "broker_discards", "final_messages", "half_messages")
    pins = with_all_queues(warehouse, lambda: {name: warehouse.version(name) for name in order})
    pins |= {ERASURES: version} if (version := warehouse.version(ERASURES)) != NO_TABLE else {}
    return {**pins, LOST_AT_FIRST: pins["rejected"], "rejected": warehouse.version("rejected")}


# ---- the comparison ----


def _other_transactions(rows: Topics, counted: DataFrame) -> DataFrame:
    """The transactions that are not simple."""
    places = counted.withColumnsRenamed({"broker_name": "final_broker", "place": "half_place"})
    return t.transactions(
        of_others(rows.halves, counted, "half", HALF_KEY),
        of_others(rows.ops, counted, "op_items", HALF_KEY),
        of_others(rows.finals, places, "final_rows", ["final_broker", "half_place"]),
        rows.discards,
    )


# ---- counts and findings ----


def _count(audit: Audit, frames: list[DataFrame], lost_ranges: int, summary: Summary) -> None:
    counted, examined, found = frames
    others = _sums(examined, *_OF_COPIES)
    total = {c: sum(row[c] for row in others) for c in _OF_COPIES}
    fates = _numbers([*_sums(counted.where(F.col("fate").isNotNull())), *others], "fate")
    kinds = _numbers(found.groupBy("broker_name", "finding").agg(F.count("*").alias("n")).collect(), "finding")
    summary.rows_read = _rows_read(counted) | {"broker_discards": total["discards"]}
    summary.extra = {
        "audit_id": audit.audit_id,
        "inputs": dict(audit.pins),
        "lost_ranges": lost_ranges,
        "lost_by_broker": audit.standing.lost(audit.read("half_messages"), audit.read("op_messages")),
        "findings": _of_all(kinds, NAMES),
        "transactions": _of_all(fates, FATES),
        "put_back": {
            **{c: total[c] for c in ("copies", "bytes", "checks")},
            "without_check": total["copies"] - total["checks"],
            "checks_after_end": total["late_checks"],
        },
        "brokers": {
            broker: {"transactions": _at(fates, broker), "findings": _at(kinds, broker)}
            for broker in sorted({broker for broker, _ in fates})
        },
    }


def _rows_read(counted: DataFrame) -> dict[str, int]:
    names = {"half": "half_messages", "op_items": "op_messages", "final_rows": "final_messages"}
    sums = counted.agg(*[F.sum(c).alias(c) for c in names]).collect()[0]
    return {name: sums[column] or 0 for column, name in names.items()}


def _sums(rows: DataFrame, *columns: str) -> list[Row]:
    """Sums by broker and fate: a few rows a broker."""
    sums = [F.sum(c).alias(c) for c in columns]
    return rows.groupBy("broker_name", "fate").agg(F.count("*").alias("n"), *sums).collect()


def _numbers(rows: Iterable[Row], what: str) -> Counter[tuple[str, str]]:
    """Numbers by broker, and by fate or finding."""
    numbers: Counter[tuple[str, str]] = Counter()
    for row in rows:
        numbers[row["broker_name"], row[what]] += row["n"]
    return numbers


def _of_all(numbers: Counter[tuple[str, str]], names: Iterable[str]) -> dict[str, int]:
    return {name: sum(n for (_, each), n in numbers.items() if each == name) for name in names}


def _at(numbers: Counter[tuple[str, str]], broker: str) -> dict[str, int]:
    return {name: n for (each, name), n in numbers.items() if each == broker}


def _write(audit: Audit, found: DataFrame, now: datetime, summary: Summary) -> None:
    app, number = f"halfop.audit/{audit.audit_id}", sum(summary.extra["findings"].values())
    audit.warehouse.make(TABLE)
    if audit.warehouse.marker(TABLE, app) >= 0:
        summary.notes.append(f"nothing has landed since audit {audit.audit_id}, whose findings are in table {TABLE}")
        return
    inputs = F.create_map(*[F.lit(each) for pin in audit.pins.items() for each in pin]).cast("map<string,bigint>")
    rows = found.withColumns({"audit_id": F.lit(audit.audit_id), "audited_at": F.lit(now), "inputs": inputs})
    audit.warehouse.commit(TABLE, rows, Marker(app, 0))
    summary.rows_written = {TABLE: number}


def tables(summary: Summary) -> list[Table]:
    """Returns the counts as tables."""
    extra = summary.extra
    fates = [(name, n, FATES[name]) for name, n in extra["transactions"].items() if n]
    put_back = [(name.replace("_", " "), n) for name, n in extra["put_back"].items()]
    lost = [(name.replace("_", " "), n) for name, n in extra["lost_by_broker"].items()]
    found = [(each.name, extra["findings"][each.name], each.meaning, each.reported) for each in FINDINGS]
    return [
        Table(["transactions", "number", "what has landed"], fates),
        Table(["put back", "number"], put_back),
        *([Table(["lost by the broker", "number"], lost)] if any(extra["lost_by_broker"].values()) else []),
        Table(["finding", "number", "what it is", "RocketMQ's issue"], found),
    ]
