"""What a broker no longer has, or has no sound copy of: rows of `rejected`, and read again where that can be mended."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import functions as F

from halfop.landing.progress import COMMIT_LOG
from halfop.warehouse.lock import hold_rejected
from halfop.warehouse.tables import Warehouse

TABLE = "rejected"
LOST, FOUND = "LOST_RANGE", "FOUND_RANGE"


class Range(NamedTuple):
    """Physical offsets of the commit log, or offsets of a queue; what it held is older than `until` (microseconds)."""

    since: int
    upto: int
    topic: str = COMMIT_LOG
    queue: int = 0
    until: int | None = None


@dataclass
class Ranges:
    """What of a broker is lost, and what is still to be written about it."""

    broker_name: str
    all: list[Range] = field(default_factory=list)
    news: list[tuple[str, Range, str, str]] = field(default_factory=list)

    @property
    def of_log(self) -> list[tuple[int, int]]:
        return [(each.since, each.upto) for each in self.all if each.topic == COMMIT_LOG]

    @property
    def of_queues(self) -> list[Range]:
        return [each for each in self.all if each.topic != COMMIT_LOG]

    def add(self, lost: Range, code: str, text: str) -> None:
        if lost not in self.all:
            self.all.append(lost)
            self.news.append((LOST, lost, code, text))

    def found(self, again: Range, text: str) -> None:
        self.all.remove(again)
        self.news.append((FOUND, again, "repaired", text))


def known(warehouse: Warehouse, broker_name: str) -> Ranges:
    """What earlier landings lost and none has found since; few, for each is a fault of its own."""
    rows = warehouse.read(TABLE).where((F.col("kind") == "RANGE") & (F.col("broker_name") == broker_name))
    spans: dict[str, list[Range]] = {LOST: [], FOUND: []}
    for row in rows.select("reason", "detail").collect():
        about = json.loads(row["detail"])
        spans[row["reason"]].append(Range(*[about[name] for name in Range._fields]))
    return Ranges(broker_name, sorted(set(spans[LOST]) - set(spans[FOUND])))


def record(warehouse: Warehouse, ranges: Ranges, landed_at: int) -> None:
    if not ranges.news:
        return
    rows = [
        ("RANGE", reason, ranges.broker_name, each.queue, _detail(each, code, text), landed_at)
        for reason, each, code, text in ranges.news
    ]
    columns = "kind STRING, reason STRING, broker_name STRING, queue_id INT, detail STRING, rejected_at BIGINT"
    nulls = {name: F.lit(None).cast("bigint") for name in ("queue_offset", "run_id")}
    frame = warehouse.frame(rows, columns).withColumns(nulls)
    with hold_rejected(warehouse):
        warehouse.make(TABLE)
        warehouse.append(TABLE, frame.withColumn("rejected_at", F.timestamp_micros("rejected_at")))
    ranges.news.clear()


def _detail(each: Range, code: str, text: str) -> str:
    return json.dumps(each._asdict() | {"code": code, "text": text})
