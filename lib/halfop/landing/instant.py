"""The instant of a landing: every row that it writes carries it, and no two landings share one."""

from __future__ import annotations

import time

from pyspark.sql import functions as F

from halfop.landing.progress import micros
from halfop.warehouse.progress import progress_rows
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.where import Compared

_LANDED_FILES = "landed_files"


def next_instant(warehouse: Warehouse) -> int:
    """The wall clock in epoch microseconds, or just above the last landing if the clock was set back."""
    rows = progress_rows(warehouse)
    known = [micros(row[at]) for row in rows for at in ("landed_at", "planned_at") if row[at] is not None]
    now = time.time_ns() // 1000
    later = warehouse.read(_LANDED_FILES, where=Compared("landed_at", ">=", now))
    known += [row["at"] for row in later.select(F.unix_micros("landed_at").alias("at")).collect()]
    return max([now, *(instant + 1 for instant in known)])
