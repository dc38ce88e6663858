"""The audit of real brokers: half, op, real and discard topics compared, as they have landed.

A pure function of pinned table versions: its id is a hash of them, so the same audit is written once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.rules.words import QUEUE, RuleColumns, in_micros
from halfop.settings import Settings
from halfop.summary import Summary
from halfop.table import text_table
from halfop.views import findings as f
from halfop.views import transactions as t
from halfop.views.ground import LOST_AT_FIRST, Ground, ground
from halfop.warehouse.lock import hold
from halfop.warehouse.tables import Warehouse

TABLE = "audit"
TWINS = "TWINS"
MEANINGS = {each.name: each.meaning for each in f.FINDINGS} | {
    TWINS: "UNIQ_KEY used again by messages that are no copies"
}
FATES = {
    "COMMITTED_AND_DELIVERED": "a final message, and an op",
    "DELIVERED": "a final message, no op (yet)",
    "COMMITTED": "an op that says commit, no final message",
    "ROLLED_BACK": "an op that says rollback",
    "ENDED": "an op, outcome not known",
    "DISCARDED": "given up by the broker",
    "OPEN": "none of these",
    "HALF_NOT_LANDED": "an op, final message or discard whose half message has not landed",
}
_READ = ("half_messages", "op_messages", "final_messages", "broker_discards")
_RULES_VERSION = 1  # part of an audit's id: other rules are another audit
_FOUND = ["finding", "broker_name", "queue_id", "queue_offset", "half_offsets", "uniq_key", "producer_group"]
_FOUND += ["real_topic", "born_timestamp", "detail"]


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


def audit(warehouse: Warehouse, settings: Settings) -> Summary:
    """Compares, writes the findings to table `audit`, and tells the counts."""
    summary = Summary("audit")
    now = datetime.now(timezone.utc)
    made = Audit(warehouse, settings, _pinned(warehouse), RuleColumns(settings.rules, now))
    with summary.phase("read"):
        known = ground(warehouse, made.pins)
    judged = _judged(made, known).persist()
    found = judged.select(F.inline("found")).unionByName(_twins(made)).persist()
    try:
        with summary.phase("compare"):
            _count(made, judged, found, known, summary)
        with summary.phase("write"), hold(warehouse, TABLE, settings.lock.wait):
            _write(made, found, now, summary)
    finally:
        found.unpersist()
        judged.unpersist()
    return summary


def _pinned(warehouse: Warehouse) -> dict[str, int]:
    """In the order opposite to landing's commits, so that all that a row refers to is there."""
    order = ("rejected", "landing_progress", "op_messages", "broker_discards", "final_messages", "half_messages")
    pins = {name: warehouse.version(name) for name in order}
    return {**pins, LOST_AT_FIRST: pins["rejected"], "rejected": warehouse.version("rejected")}


# ---- the comparison ----


def _judged(audit: Audit, known: Ground) -> DataFrame:
    """A row a transaction: what has become of it, its copies, and what is wrong with it. Narrow, for it is kept."""
    rows = _with_ground(audit, known)
    copies = F.filter("members", lambda m: m["marked"] & ~m["resumes"])
    size = F.aggregate(copies, F.lit(0).cast("bigint"), lambda n, m: n + F.coalesce(m["record_size"], F.lit(0)))
    return rows.select(
        "broker_name",
        _fate().alias("fate"),
        F.size(F.filter("members", lambda m: m["landed"])).alias("half_messages"),
        F.size("ops").alias("op_messages"),
        F.size("finals").alias("final_messages"),
        F.size("gone").alias("broker_discards"),
        F.size(copies).alias("copies"),
        F.coalesce(size, F.lit(0)).alias("bytes"),
        F.size(F.filter(copies, lambda m: m["asked"])).alias("checks"),
        F.greatest(F.size(f.late_checks()), F.lit(0)).alias("late_checks"),
        _found().alias("found"),
    )


def _with_ground(audit: Audit, known: Ground) -> DataFrame:
    finals = audit.read("final_messages")
    rows = t.transactions(
        t.halves(audit.read("half_messages"), audit.rules),
        t.ops(audit.read("op_messages")),
        t.finals(finals),
        t.discards(audit.read("broker_discards")),
    )
    rows = rows.withColumns(
        {
            "queue_id": F.coalesce(f.first()["queue_id"], F.lit(0)),
            "real_topic": f.first()["real_topic"],
            "real_queue_id": f.first()["real_queue_id"],
            "finals": F.flatten(F.transform("members", _finals_of)),
            "ops": F.flatten(F.transform("members", _ops_of)),
            "op_lag": F.lit(in_micros(audit.settings.landing.op_lag)),
        }
    )
    rows = rows.join(_real_queues(finals), ["broker_name", "real_topic", "real_queue_id"], "left")
    return rows.join(known.frame, QUEUE, "left")


def _real_queues(finals: DataFrame) -> DataFrame:
    """From when to when each real queue has been read."""
    queues = finals.groupBy("broker_name", F.col("topic").alias("real_topic"), F.col("queue_id").alias("real_queue_id"))
    return queues.agg(F.min("store_timestamp").alias("topic_since"), F.max("store_timestamp").alias("topic_until"))


def _finals_of(m: Column) -> Column:
    own = ["topic", "queue_id", "queue_offset", "store", "place"]
    more = [m["queue_offset"].alias("half"), (F.size(m["ops"]) > 0).alias("op")]
    return F.transform(m["finals"], lambda each: F.struct(*[each[c].alias(c) for c in own], *more))


def _ops_of(m: Column) -> Column:
    return F.transform(m["ops"], lambda each: each.withField("half", m["queue_offset"]))


def _fate() -> Column:
    outcomes = F.transform("ops", lambda o: o["outcome"])
    delivered, ended = F.size("finals") > 0, F.size("ops") > 0
    return (
        F.when(~f.landed(), "HALF_NOT_LANDED")
        .when(delivered & ended, "COMMITTED_AND_DELIVERED")
        .when(delivered, "DELIVERED")
        .when(F.array_contains(outcomes, "COMMIT"), "COMMITTED")
        .when(F.array_contains(outcomes, "ROLLBACK"), "ROLLED_BACK")
        .when(ended, "ENDED")
        .when(f.given_up(), "DISCARDED")
        .otherwise("OPEN")
    )


def _found() -> Column:
    """The findings of a transaction, an array of rows."""
    topic = F.coalesce("real_topic", F.get("finals", F.lit(0))["topic"])
    about: dict[str, Column] = {
        "broker_name": F.col("broker_name"),
        "queue_id": f.first()["queue_id"],
        "queue_offset": f.first()["queue_offset"],
        "half_offsets": F.filter(F.transform("members", lambda m: m["queue_offset"]), lambda o: o.isNotNull()),
        "uniq_key": f.first()["uniq_key"],
        "producer_group": F.col("producer_group"),
        "real_topic": topic,
        "born_timestamp": F.col("born_timestamp"),
    }

    def row(finding: f.Finding) -> Column:
        detail = finding.rule()
        cells = {"finding": F.lit(finding.name), **about, "detail": detail}
        return F.when(detail.isNotNull(), F.struct(*[cells[c].alias(c) for c in _FOUND]))

    return F.when(~_plain(), F.array_compact(F.array(*[row(each) for each in f.FINDINGS])))


def _plain() -> Column:
    """Most transactions: one half message and what belongs to it, so that no rule needs to look closer."""
    few = (F.size("members") == 1) & (F.size("gone") == 0) & (F.size("ops") <= 1) & (F.size("finals") <= 1)
    committed = F.coalesce(F.get("ops", F.lit(0))["outcome"] == "COMMIT", F.lit(False))
    return f.landed() & few & (committed == (F.size("finals") == 1))


def _twins(audit: Audit) -> DataFrame:
    """Half messages that are no copies and share a UNIQ_KEY, whatever broker has them."""
    rows = t.halves(audit.read("half_messages"), audit.rules).where(~F.col("marked") & F.col("uniq_key").isNotNull())
    one = F.struct("broker_name", "queue_id", "queue_offset", "producer_group", "real_topic", "born_timestamp")
    twins = rows.groupBy("uniq_key").agg(F.sort_array(F.collect_list(one)).alias("twins")).where(F.size("twins") > 1)
    place = F.transform("twins", lambda m: F.concat_ws("/", m["broker_name"], m["queue_id"], m["queue_offset"]))
    twin = F.get("twins", F.lit(0))
    made = {
        "finding": F.lit(TWINS),
        "half_offsets": F.transform("twins", lambda m: m["queue_offset"]),
        "detail": F.concat(F.lit("half messages "), F.array_join(place, ", ")),
        "uniq_key": F.col("uniq_key"),
    }
    return twins.select(*[(made[c] if c in made else twin[c]).alias(c) for c in _FOUND])


# ---- what it tells and writes ----


def _count(audit: Audit, judged: DataFrame, found: DataFrame, known: Ground, summary: Summary) -> None:
    sums = [*_READ, "copies", "bytes", "checks", "late_checks"]
    by_fate = judged.groupBy("broker_name", "fate").agg(F.count("*").alias("n"), *[F.sum(c).alias(c) for c in sums])
    fates = by_fate.collect()  # a few rows a broker
    kinds = found.groupBy("broker_name", "finding").agg(F.count("*").alias("n")).collect()
    total = {c: sum(row[c] for row in fates) for c in sums}
    summary.rows_read = {name: total[name] for name in _READ}
    summary.extra = {
        "audit_id": audit.audit_id,
        "inputs": dict(audit.pins),
        "lost_ranges": len(known.gaps),
        "findings": {name: sum(row["n"] for row in kinds if row["finding"] == name) for name in MEANINGS},
        "transactions": {name: sum(row["n"] for row in fates if row["fate"] == name) for name in FATES},
        "put_back": {
            "copies": total["copies"],
            "bytes": total["bytes"],
            "checks": total["checks"],
            "without_check": total["copies"] - total["checks"],
            "checks_after_end": total["late_checks"],
        },
        "brokers": {
            broker: {
                "transactions": {row["fate"]: row["n"] for row in fates if row["broker_name"] == broker},
                "findings": {row["finding"]: row["n"] for row in kinds if row["broker_name"] == broker},
            }
            for broker in sorted({row["broker_name"] for row in fates})
        },
    }


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


def text(summary: Summary) -> str:
    """The counts as tables."""
    extra = summary.extra
    fates = [(name, n, FATES[name]) for name, n in extra["transactions"].items() if n]
    put_back = [(name.replace("_", " "), n) for name, n in extra["put_back"].items()]
    found = [(name, n, MEANINGS[name]) for name, n in extra["findings"].items()]
    tables = (
        text_table(["transactions", "number", "what there is"], fates),
        text_table(["put back", "number"], put_back),
        text_table(["finding", "number", "what it is"], found),
    )
    return "\n".join(table for table in tables if table) + "\n"
