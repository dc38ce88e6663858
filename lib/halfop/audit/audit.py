"""The audit of real brokers: half, op, real and discard topics compared, as they have landed.

A pure function of pinned table versions: its id is a hash of them, so the same audit is written once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from halfop.audit import plain
from halfop.audit import transactions as t
from halfop.audit import verdicts as v
from halfop.audit.coverage import LOST_AT_FIRST, Ground, ground
from halfop.columns.keys import HALF_KEY
from halfop.columns.values import in_micros
from halfop.frame.output import Table
from halfop.frame.summary import Summary, add_counts
from halfop.rules.words import RuleColumns
from halfop.settings.model import Settings
from halfop.warehouse.lock import hold
from halfop.warehouse.tables import Warehouse

TABLE = "audit"
_RULES_VERSION = 1  # part of an audit's id: other rules are another audit


class Topics(NamedTuple):
    """The rows of a broker's half, op, real and discard topics."""

    halves: DataFrame
    ops: DataFrame
    finals: DataFrame
    discards: DataFrame


@dataclass(frozen=True)
class Audit:
    """What one audit reads."""

    warehouse: Warehouse
    settings: Settings
    pins: Mapping[str, int]
    rules: RuleColumns

    @property
    def audit_id(self) -> str:
        settings = [self.settings.rules.model_dump_json(), in_micros(self.settings.landing.op_lag)]
        given = [_RULES_VERSION, sorted(self.pins.items()), settings]
        return hashlib.sha256(json.dumps(given).encode()).hexdigest()[:16]

    def read(self, name: str) -> DataFrame:
        return self.warehouse.read(name, self.pins[name])

    @property
    def topics(self) -> Topics:
        return Topics(
            t.halves(self.read("half_messages"), self.rules),
            t.ops(self.read("op_messages")),
            t.finals(self.read("final_messages")),
            t.discards(self.read("broker_discards")),
        )


def audit(warehouse: Warehouse, settings: Settings) -> Summary:
    """Compares, writes the findings to table `audit`, and tells the counts."""
    summary = Summary("audit")
    now = datetime.now(timezone.utc)
    made = Audit(warehouse, settings, _pinned(warehouse), RuleColumns(settings.rules, now))
    with summary.phase("read"):
        known = ground(warehouse, made.pins)
    rows = made.topics
    sieved = plain.sieved(*rows).persist()
    finals, op_lag = made.read("final_messages"), settings.landing.op_lag
    judged = v.judged(_closer(rows, sieved), known.frame, finals, op_lag).persist()
    found = judged.select(F.inline("found")).unionByName(v.twins(rows.halves, sieved)).persist()
    try:
        with summary.phase("compare"):
            _count(made, [sieved, judged, found], known, summary)
        with summary.phase("write"), hold(warehouse, TABLE, settings.lock.wait):
            _write(made, found, now, summary)
    finally:
        for kept in (found, judged, sieved):
            kept.unpersist()
    return summary


def _pinned(warehouse: Warehouse) -> dict[str, int]:
    """In the order opposite to landing's commits, so that all that a row refers to is there."""
    order = ("rejected", "landing_progress", "op_messages", "broker_discards", "final_messages", "half_messages")
    pins = {name: warehouse.version(name) for name in order}
    return {**pins, LOST_AT_FIRST: pins["rejected"], "rejected": warehouse.version("rejected")}


# ---- the comparison ----


def _closer(rows: Topics, sieved: DataFrame) -> DataFrame:
    """The transactions that need a closer look."""
    places = sieved.withColumnsRenamed({"broker_name": "final_broker", "place": "half_place"})
    return t.transactions(
        plain.closer(rows.halves, sieved, "half", HALF_KEY),
        plain.closer(rows.ops, sieved, "op_items", HALF_KEY),
        plain.closer(rows.finals, places, "final_rows", ["final_broker", "half_place"]),
        rows.discards,
    )


# ---- what it tells and writes ----


def _count(audit: Audit, frames: list[DataFrame], known: Ground, summary: Summary) -> None:
    sieved, judged, found = frames
    plain = _sums(sieved.where(F.col("fate").isNotNull()), [])
    closer = _sums(judged, ["discards", "copies", "bytes", "checks", "late_checks"])
    fates = [*plain, *closer]
    kinds = found.groupBy("broker_name", "finding").agg(F.count("*").alias("n")).collect()
    total = {c: sum(row[c] for row in closer) for c in ("discards", "copies", "bytes", "checks", "late_checks")}
    read = sieved.agg(*[F.sum(c).alias(c) for c in ("half", "op_items", "final_rows")]).collect()[0]
    summary.rows_read = {
        "half_messages": read["half"] or 0,
        "op_messages": read["op_items"] or 0,
        "final_messages": read["final_rows"] or 0,
        "broker_discards": total["discards"],
    }
    summary.extra = {
        "audit_id": audit.audit_id,
        "inputs": dict(audit.pins),
        "lost_ranges": len(known.gaps),
        "findings": {name: sum(row["n"] for row in kinds if row["finding"] == name) for name in v.MEANINGS},
        "transactions": {name: sum(row["n"] for row in fates if row["fate"] == name) for name in v.FATES},
        "put_back": {
            "copies": total["copies"],
            "bytes": total["bytes"],
            "checks": total["checks"],
            "without_check": total["copies"] - total["checks"],
            "checks_after_end": total["late_checks"],
        },
        "brokers": {
            broker: {
                "transactions": _by(fates, broker, "fate"),
                "findings": _by(kinds, broker, "finding"),
            }
            for broker in sorted({row["broker_name"] for row in fates})
        },
    }


def _sums(rows: DataFrame, columns: list[str]) -> list[Row]:
    """A few rows a broker."""
    sums = [F.sum(c).alias(c) for c in columns]
    return rows.groupBy("broker_name", "fate").agg(F.count("*").alias("n"), *sums).collect()


def _by(rows: list[Row], broker: str, what: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        if row["broker_name"] == broker:
            add_counts(counts, {row[what]: row["n"]})
    return counts


def _write(audit: Audit, found: DataFrame, now: datetime, summary: Summary) -> None:
    app, number = f"halfop.audit/{audit.audit_id}", sum(summary.extra["findings"].values())
    audit.warehouse.make(TABLE)
    if audit.warehouse.marker(TABLE, app) >= 0:
        summary.notes.append(f"nothing has landed since audit {audit.audit_id}, whose findings are in table {TABLE}")
        return
    inputs = F.create_map(*[F.lit(each) for pin in audit.pins.items() for each in pin]).cast("map<string,bigint>")
    rows = found.withColumns({"audit_id": F.lit(audit.audit_id), "audited_at": F.lit(now), "inputs": inputs})
    audit.warehouse.append_once(TABLE, rows, app, 0)
    summary.rows_written = {TABLE: number}


def tables(summary: Summary) -> list[Table]:
    """Returns the counts as tables."""
    extra = summary.extra
    fates = [(name, n, v.FATES[name]) for name, n in extra["transactions"].items() if n]
    put_back = [(name.replace("_", " "), n) for name, n in extra["put_back"].items()]
    found = [(name, n, v.MEANINGS[name]) for name, n in extra["findings"].items()]
    return [
        Table(["transactions", "number", "what there is"], fates),
        Table(["put back", "number"], put_back),
        Table(["finding", "number", "what it is"], found),
    ]
