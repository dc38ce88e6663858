"""A small warehouse in which something of everything has happened over four runs, made once for all tests of views."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from model import reference as m
from model.strategies import op_rows
from pyspark.sql import SparkSession

from support import rows as r
from support.messages import NOW, QUEUE, half, ops

RULES = m.Settings(check_max=2)
AN_HOUR = 3_600_000
HOSTILE_KEY, HOSTILE_GROUP = "</td><script>alert(1)</script>\x1b[2J", '"><img src=x onerror=y>\u202e'

COMMITTED, OTHER_TOPIC, ROLLED_BACK, GIVEN_UP, UNDELIVERABLE, CONFLICTING, ASKED, RESUMED = range(8)
ORIGINAL, COPY, TWIN, OTHER_TWIN, HOSTILE = range(8, 13)
NOT_LANDED, UNKNOWN = 40, 50


def old(offset: int, group: str) -> m.Half:
    """Asked twice by its broker, an hour ago."""
    return half(offset, group=group, check_times="2", born=NOW - 2 * AN_HOUR, store=NOW - AN_HOUR)


HALVES = [
    half(COMMITTED),
    half(OTHER_TOPIC, "U"),
    half(ROLLED_BACK),
    old(GIVEN_UP, "silent"),
    half(UNDELIVERABLE, "a b"),
    half(CONFLICTING),
    half(ASKED),
    old(RESUMED, "silent"),
    half(ORIGINAL, uniq_key="copied"),
    half(COPY, uniq_key="copied", check_times="1", store=NOW - 1_000),
    half(TWIN, uniq_key="twins"),
    half(OTHER_TWIN, uniq_key="twins"),
    half(HOSTILE, uniq_key=HOSTILE_KEY, group=HOSTILE_GROUP),
]


@cache
def lived(spark: SparkSession) -> Warehouse:
    warehouse = KernelWarehouse(spark, str(Path(tempfile.mkdtemp(prefix="halfop-lived-")) / "warehouse"))
    both = [*ops("COMMIT", COMMITTED, OTHER_TOPIC, CONFLICTING, NOT_LANDED), *ops("ROLLBACK", ROLLED_BACK)]
    both += op_rows(QUEUE, 9, str(CONFLICTING), ["ROLLBACK"], NOW - 500)
    r.land(warehouse, HALVES, both, NOW, {QUEUE: NOW + AN_HOUR})
    for seconds in (0, 30, 40):
        _run(warehouse, seconds)
    late = op_rows(QUEUE, 20, str(ASKED), ["COMMIT"], NOW + 50_000, from_check=True)
    late += op_rows(QUEUE, 21, str(COMMITTED), ["ROLLBACK"], NOW + 51_000)
    r.land(warehouse, [], late, NOW + 60_000)
    r.resume(warehouse, [(*QUEUE, RESUMED)], NOW + 55_000)
    _run(warehouse, 61)
    return warehouse


def _run(warehouse: Warehouse, seconds: int) -> None:
    r.run(warehouse, RULES, NOW + seconds * 1000, layout="per_topic")
