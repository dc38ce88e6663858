"""landed_files: which files have landed already, and the instant of the next landing."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.frame.errors import InputRefused
from halfop.landing.files.check import Checked, Queue
from halfop.landing.files.sources import InputFile
from halfop.landing.progress import TABLE as PROGRESS
from halfop.landing.progress import QueueRow, micros
from halfop.warehouse.tables import NO_TABLE, Warehouse

TABLE = "landed_files"
_KEY_TYPES = "path STRING, size BIGINT, sha256 STRING, kind STRING"
_KEY = ("path", "size", "sha256", "kind")


def already_landed(warehouse: Warehouse, files: Sequence[InputFile]) -> set[InputFile]:
    """Those that landed before under the same path, with the same content."""
    asked = warehouse.frame([_key(f) for f in files], _KEY_TYPES)
    known = asked.join(warehouse.read(TABLE).select(*_KEY), list(_KEY), "left_semi")
    landed = {tuple(row) for row in known.collect()}
    return {file for file in files if _key(file) in landed}


def _key(file: InputFile) -> tuple[str, int, str, str]:
    return file.uri, file.size, file.sha256, file.kind


def record(warehouse: Warehouse, files: Iterable[InputFile], checked: Iterable[Checked], landed_at: int) -> None:
    by_kind = {each.kind: each for each in checked}
    rows = [(*_key(f), by_kind[f.kind].good[f.uri], by_kind[f.kind].bad[f.uri], landed_at) for f in files]
    frame = warehouse.frame(rows, f"{_KEY_TYPES}, rows BIGINT, bad_rows BIGINT, landed_at BIGINT")
    warehouse.make(TABLE)
    warehouse.append(TABLE, frame.withColumn("landed_at", F.timestamp_micros("landed_at")))


def next_instant(warehouse: Warehouse) -> int:
    """The wall clock in epoch microseconds, or just above the last landing where the clock has gone back."""
    rows = warehouse.rows(PROGRESS)
    known = [micros(row[at]) for row in rows for at in ("landed_at", "planned_at") if row[at] is not None]
    if warehouse.version(TABLE) != NO_TABLE:
        newest = warehouse.read(TABLE).agg(F.unix_micros(F.max("landed_at")).alias("at")).collect()[0]["at"]
        known += [] if newest is None else [newest]
    return max([time.time_ns() // 1000, *(instant + 1 for instant in known)])


def last_half(warehouse: Warehouse, row: QueueRow) -> tuple[int, set[int]] | None:
    """The queue offset of the newest half message that has landed of a queue, and where in the log it stands.

    Two places where two have landed under one offset. A killed first landing has moved no progress: all are looked at.
    """
    halves = warehouse.read("half_messages")
    halves = halves.where((F.col("broker_name") == row.broker_name) & (F.col("queue_id") == row.queue_id))
    last = halves.agg(F.max("queue_offset")).collect()[0][0] if row.next_offset is None else row.next_offset - 1
    newest = halves.where(F.col("queue_offset") == F.lit(last)).select("commit_log_offset")
    places = {row["commit_log_offset"] for row in newest.collect()}
    if not places and last is not None:  # `maintain` may have trimmed it; its decision stays
        places = {row["commit_log_offset"] for row in _decided(warehouse, row, last).collect()} - {None}
    return (last, places) if places else None


def _decided(warehouse: Warehouse, row: QueueRow, offset: int) -> DataFrame:
    mine = (F.col("broker_name") == row.broker_name) & (F.col("queue_id") == row.queue_id)
    named = (F.col("queue_offset") == F.lit(offset)) & (F.col("decision") != "EARLY_OP")
    return warehouse.read("decisions").where(mine & named).select("commit_log_offset").distinct()


def refuse_two_half_topics(where: str, topics: Collection[str]) -> None:
    """Their half messages would have the same keys."""
    if len(topics) > 1:
        problem = f"half messages in two topics, {' and '.join(topics)}: their queue offsets are the same"
        hint = "a broker that changed its transaction store (5.4+, RocksDB) can be landed up to the change only"
        raise InputRefused(where, None, problem, hint)


def reused(warehouse: Warehouse, queues: Iterable[Queue]) -> list[Queue]:
    """Those of the queues whose broker was rebuilt under its old name, as a run has found."""
    wanted = set(queues)
    if not wanted or warehouse.version("rejected") == NO_TABLE:
        return []
    rejected = warehouse.read("rejected").where(F.col("reason") == "KEY_REUSED")
    found = {Queue(r.broker_name, r.queue_id) for r in rejected.select("broker_name", "queue_id").distinct().collect()}
    return sorted(found & wanted)
