"""The instant of a landing: every row that it writes carries it, and no two landings share one."""

from __future__ import annotations

import time

from pyspark.sql import functions as F

from halfop.landing.progress import TABLE as PROGRESS
from halfop.landing.progress import micros
from halfop.warehouse.tables import NO_TABLE, Warehouse

_LANDED_FILES = "landed_files"


def next_instant(warehouse: Warehouse) -> int:
    """The wall clock in epoch microseconds, or just above the last landing if the clock was set back."""
    rows = warehouse.rows(PROGRESS)
    known = [micros(row[at]) for row in rows for at in ("landed_at", "planned_at") if row[at] is not None]
    if warehouse.version(_LANDED_FILES) != NO_TABLE:
        newest = warehouse.read(_LANDED_FILES).agg(F.unix_micros(F.max("landed_at")).alias("at")).collect()[0]["at"]
        known += [] if newest is None else [newest]
    return max([time.time_ns() // 1000, *(instant + 1 for instant in known)])
