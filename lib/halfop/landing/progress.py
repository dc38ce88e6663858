"""landing_progress: how far each queue has landed, written so that it never goes back; queues; instants of landings."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import functions as F

from halfop.frame.errors import WarehouseBusy
from halfop.frame.units import EPOCH
from halfop.landing.fields import LONG_MAX
from halfop.rocketmq.frames import read_json
from halfop.rocketmq.names import CHECK_GROUP, HALF_TOPIC, ROCKSDB_QUEUES, ROCKSDB_TOPICS, topics_of
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold
from halfop.warehouse.progress import COMMIT_LOG, TABLE, counting, progress_rows
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS, first_line, raise_mistake
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.where import Compared

# Landings add a few rows each; above so many files they are written afresh as one.
_MOST_FILES = 50
_INSTANTS = ("known_until", "landed_at", "planned_at", "check_since")


class ProgressRow(NamedTuple):
    """A row of landing_progress; instants as epoch microseconds."""

    broker_name: str
    topic: str
    queue_id: int
    next_offset: int | None
    known_until: int | None
    landed_at: int | None
    first_offset: int | None
    planned_offset: int | None = None
    planned_at: int | None = None
    highest_offset: int | None = None
    check_offset: int | None = None
    check_since: int | None = None
    forgets_after: int | None = None


class Complete(NamedTuple):
    """A queue's ops up to the first offset that is missing, and the newest store time before it.

    `highest`: one above the highest op, if some have landed beyond that offset.
    """

    next_offset: int
    newest: int | None
    highest: int | None = None


@dataclass(frozen=True)
class QueueProgress:
    """The progress that a landing makes, by queue: spans of halves and of ops, and its new known-until.

    `complete`: how far the ops are without a gap, if somebody has looked.
    """

    halves: Mapping[Queue, OffsetSpan]
    ops: Mapping[Queue, OffsetSpan]
    known_until: Mapping[Queue, int | None]
    complete: Mapping[Queue, Complete] = field(default_factory=dict)

    @property
    def queues(self) -> list[Queue]:
        return sorted({*self.halves, *self.ops, *self.known_until})


def rows_before(made: QueueProgress, landed_at: int) -> list[ProgressRow]:
    """The rows that are written first: no time has passed yet for a queue that is new."""
    queues = [(queue, topic) for queue in made.queues for topic in topics_of(queue.queue_id)]
    return [ProgressRow(*_key(*queue), None, None, landed_at, None) for queue in queues]


def beginning(broker_name: str, queues: Iterable[tuple[str, int]]) -> list[ProgressRow]:
    """The rows of topics and queues of which nothing has landed."""
    return [ProgressRow(broker_name, *queue, None, None, None, None) for queue in queues]


def rows_after(made: QueueProgress, landed_at: int) -> list[ProgressRow]:
    """The rows that are written last: how far the queues have landed now."""
    queues = [(queue, topic) for queue in made.queues for topic in topics_of(queue.queue_id)]
    return [_row(made, *queue, landed_at) for queue in queues]


def _key(queue: Queue, topic: str) -> tuple[str, str, int]:
    return queue.broker_name, topic, queue.queue_id


def _row(made: QueueProgress, queue: Queue, topic: str, landed_at: int) -> ProgressRow:
    of_ops = topic == topics_of(queue.queue_id)[1]
    span = (made.ops if of_ops else made.halves).get(queue)
    known = made.known_until.get(queue)
    found = Complete(min(span.highest + 1, LONG_MAX), None) if span else None
    found = made.complete.get(queue, found) if of_ops else found
    following, highest = (found.next_offset, found.highest) if found else (None, None)
    lowest = None if span is None else span.lowest
    return ProgressRow(*_key(queue, topic), following, known, landed_at, lowest, highest_offset=highest)


def log_row(broker_name: str, start: int, end: int, landed_at: int) -> ProgressRow:
    """The row that says how far a broker's commit log has been read, in physical offsets."""
    return ProgressRow(broker_name, COMMIT_LOG, 0, end, None, landed_at, start)


def check_row(queue: Queue, topic: str, offset: int, at: int, before: ProgressRow | None) -> ProgressRow:
    """The row that says how far a broker's own check of a half queue has come at an instant of the broker's."""
    same = before is not None and before.check_offset == offset
    since = before.check_since if before is not None and same else at
    row = ProgressRow(*_key(queue, topic), None, None, None, None)
    return row._replace(check_offset=offset, check_since=since)


def of_broker(warehouse: Warehouse, broker_name: str) -> dict[tuple[str, int], ProgressRow]:
    """A broker's rows by topic and queue, without those of queues that only an earlier version numbered so."""
    mine = (row for row in progress_rows(warehouse) if row["broker_name"] == broker_name)
    rows = [row for row in mine if row["topic"] not in ROCKSDB_TOPICS or row["queue_id"] >= ROCKSDB_QUEUES]
    return {
        (row["topic"], row["queue_id"]): ProgressRow(**{c: _raw(row[c]) for c in ProgressRow._fields}) for row in rows
    }


def _raw(value: Any) -> Any:
    return micros(value) if isinstance(value, datetime) else value


def log_offset(warehouse: Warehouse, broker_name: str) -> int | None:
    """The physical offset up to which a broker's commit log has landed; None if nothing of it has."""
    return _of_log(warehouse, broker_name, "next_offset")


def log_first(warehouse: Warehouse, broker_name: str) -> int | None:
    """The physical offset from which on a broker's commit log has been read; None if nothing of it has."""
    return _of_log(warehouse, broker_name, "first_offset")


def _of_log(warehouse: Warehouse, broker_name: str, column: str) -> int | None:
    rows = progress_rows(warehouse)
    return next((r[column] for r in rows if (r["broker_name"], r["topic"]) == (broker_name, COMMIT_LOG)), None)


def of_ops(warehouse: Warehouse) -> dict[Queue, ProgressRow]:
    """The rows of all op topics, by queue."""
    rows = _op_rows(warehouse)
    return {
        Queue(row["broker_name"], row["queue_id"]): ProgressRow(**{c: _raw(row[c]) for c in ProgressRow._fields})
        for row in rows
    }


def _op_rows(warehouse: Warehouse) -> list[dict[str, Any]]:
    return [row for row in progress_rows(warehouse) if row["topic"] == topics_of(row["queue_id"])[1]]


def sources(warehouse: Warehouse) -> dict[tuple[str, str | None, int], str | None]:
    """The source that counts for each row, by its key: broker, topic and queue."""
    return {(row["broker_name"], row["topic"], row["queue_id"]): row["source"] for row in progress_rows(warehouse)}


def add_missing(warehouse: Warehouse, rows: Iterable[ProgressRow], source: str) -> None:
    """Appends the rows whose keys the table lacks, and those that another source counts for from now on."""
    warehouse.make(TABLE)
    present = sources(warehouse)

    def counts(key: tuple[str, str | None, int]) -> bool:
        return key not in present or counting([present[key], source]) != present[key]

    if missing := [row for row in rows if counts(row[:3])]:
        _append(warehouse, missing, source)


def move(warehouse: Warehouse, rows: Iterable[ProgressRow], source: str) -> None:
    """Moves the rows forward; a value that is further already stays, because readers take the furthest."""
    _append(warehouse, rows, source)


def _append(warehouse: Warehouse, rows: Iterable[ProgressRow], source: str) -> None:
    warehouse.commit(TABLE, [_as_row(row) | {"source": source} for row in rows])


def tidy(warehouse: Warehouse) -> None:
    """Writes the rows afresh, one a queue, if landings have left many files. (Spark's own API joins the files alone.)

    What another landing appends meanwhile stays; if it came first, this is left to a later call.
    """
    version = warehouse.version(TABLE)
    if isinstance(warehouse, SparkWarehouse):
        warehouse.join_files(TABLE, version, _MOST_FILES)
    if not isinstance(warehouse, KernelWarehouse):
        return
    files = None if version == NO_TABLE else warehouse.log.data_files(warehouse.path(TABLE), version, None)
    if files is not None and len(files) > _MOST_FILES:
        warehouse.replace_rows(TABLE, version, progress_rows(warehouse, version))


def known_until(warehouse: Warehouse, of: Iterable[Queue]) -> list[int | None]:
    """The known-until of these queues as the table has it now."""
    wanted = set(of)
    rows = _op_rows(warehouse)
    return [_raw(row["known_until"]) for row in rows if Queue(row["broker_name"], row["queue_id"]) in wanted]


def summary_of(known: Sequence[int | None]) -> dict[str, object]:
    """The summary's figures: how many queues there are, and the least and the greatest known-until."""
    some = [k for k in known if k is not None]
    least, greatest = instant(min(some, default=None)), instant(max(some, default=None))
    return {"queues": len(known), "not_known": len(known) - len(some), "least": least, "greatest": greatest}


def _as_row(row: ProgressRow) -> dict[str, object]:
    return row._asdict() | {name: instant(getattr(row, name)) for name in _INSTANTS}


def micros(of: datetime) -> int:
    return (of - EPOCH) // timedelta(microseconds=1)


def instant(micros: int | None) -> datetime | None:
    return None if micros is None else EPOCH + timedelta(microseconds=micros)


class Queue(NamedTuple):
    """A broker's queue of half messages, or of the ops that belong to them: both have the same number."""

    broker_name: str
    queue_id: int


@dataclass(frozen=True)
class OffsetSpan:
    """A queue's rows that a landing brings: lowest and highest offset, newest store time (epoch microseconds).

    If `whole`, no offset between them is missing; else one may be, or nobody has looked.
    """

    lowest: int
    highest: int
    newest: int
    whole: bool = False

    def joined(self, other: OffsetSpan) -> OffsetSpan:
        lowest, highest = min(self.lowest, other.lowest), max(self.highest, other.highest)
        touching = other.lowest <= self.highest + 1 and self.lowest <= other.highest + 1
        whole = self.whole and other.whole and touching
        return OffsetSpan(lowest, highest, max(self.newest, other.newest), whole)


_LANDED_FILES = "landed_files"


def next_instant(warehouse: Warehouse) -> int:
    """The wall clock in epoch microseconds, or just above the last landing if the clock was set back."""
    rows = progress_rows(warehouse)
    known = [micros(row[at]) for row in rows for at in ("landed_at", "planned_at") if row[at] is not None]
    now = time.time_ns() // 1000
    later = warehouse.read(_LANDED_FILES, where=Compared("landed_at", ">=", now))
    known += [row["at"] for row in later.select(F.unix_micros("landed_at").alias("at")).collect()]
    return max([now, *(instant + 1 for instant in known)])


FILE = "config/consumerOffset.json"


def check_offsets(root: str) -> dict[int, int]:
    """Returns the next offset to be checked of each half queue; none if the file is missing or unreadable.

    A broker writes the file every few seconds, and a copy may have half of it.
    """
    try:
        with open(os.path.join(root, FILE), "rb") as file:
            table = read_json(file.read())["offsetTable"]
        found = table.get(f"{HALF_TOPIC}@{CHECK_GROUP}", {})
        return {int(queue): int(offset) for queue, offset in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def keep_tidy(warehouse: Warehouse, log: logging.Logger) -> None:
    """Does the upkeep that landings make due, unless another process works there now; a later call does it then."""
    try:
        with hold(warehouse, "landing"):
            tidy(warehouse)
    except WarehouseBusy:
        log.debug("another process lands: upkeep of landing_progress is left to a later call")
    except OPERATIONAL_ERRORS as error:
        raise_mistake(error)
        log.warning("upkeep of landing_progress failed: %s", first_line(error))
