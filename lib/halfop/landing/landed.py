"""landed_files: which files have landed already, and the instant of the next landing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from pyspark.sql import functions as F

from halfop.landing.check import Checked, Queue
from halfop.landing.progress import TABLE as PROGRESS
from halfop.landing.progress import micros
from halfop.landing.sources import InputFile
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


def reused(warehouse: Warehouse, queues: Iterable[Queue]) -> list[Queue]:
    """Those of the queues whose broker was rebuilt under its old name, as a run has found."""
    wanted = set(queues)
    if not wanted or warehouse.version("rejected") == NO_TABLE:
        return []
    rejected = warehouse.read("rejected").where(F.col("reason") == "KEY_REUSED")
    found = {Queue(r.broker_name, r.queue_id) for r in rejected.select("broker_name", "queue_id").distinct().collect()}
    return sorted(found & wanted)
