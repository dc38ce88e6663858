"""maintain --values killed by SIGKILL before and after each of its commits: no row is lost or doubled, all have their
old values or all the new ones, and the next call completes."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from halfop.runs.reconcile import Request, reconcile
from halfop.runs.verify import verify
from halfop.settings.load import load_settings
from halfop.sinks.topics import TopicTables
from halfop.warehouse.kernel import KernelWarehouse
from pyspark.sql import SparkSession
from support import rows as r
from support.crash import KILLED, commits, dying, ended, job
from support.messages import NOW, QUEUE, half, ops
from support.reader_version import needs_more

_FORMAT = "topics.orders.value.format=json"
OLD, NEW = "topics.orders.value.schema=id BIGINT", "topics.orders.value.schema=id STRING, `at` TIMESTAMP"
pytestmark = pytest.mark.timeout(3600)


def command(warehouse: Path) -> list[str]:
    return ["maintain", "--warehouse", str(warehouse), "--values", "orders", "--set", _FORMAT, "--set", NEW]


@pytest.fixture(scope="module")
def before(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs by the old setting; one of the bodies fits none."""
    folder = tmp_path_factory.mktemp("values") / "before"
    warehouse = KernelWarehouse(spark, str(folder))
    for at, bodies in ((0, (b'{"id":1,"at":"2026-01-31T09:30:00Z"}', b"?")), (10, (b'{"id":"x"}',))):
        halves = [half(at + n, "orders", body=body) for n, body in enumerate(bodies)]
        offsets = [each.offset for each in halves]
        r.land(warehouse, halves, ops("COMMIT", *offsets), NOW + at, {QUEUE: NOW + at})
        reconcile(warehouse, Request(load_settings(None, (_FORMAT, OLD), {}), r.instant(NOW + at), allow_future=True))
    return folder


def content(warehouse: KernelWarehouse, *columns: str) -> Counter[str]:
    rows = TopicTables.of(warehouse).rows("orders")
    return Counter(map(str, (rows.select(*columns) if columns else rows.drop("value", "value_error")).collect()))


def whole(spark: SparkSession, folder: Path) -> tuple[Counter[str], Counter[str]]:
    """What the topic holds besides its values, and those. Its readers need no more than before, and all runs verify."""
    warehouse = KernelWarehouse(spark, str(folder))
    assert [verify(warehouse, run_id)[1] for run_id in (1, 2)] == [[], []]
    assert needs_more(str(folder)) == set()
    return content(warehouse), content(warehouse, "half_queue_offset", "value", "value_error")


def killed(spark: SparkSession, before: Path, when: str, number: int) -> Path:
    folder = before.with_name(f"{when}-{number}")
    shutil.copytree(before, folder)
    status, said = ended(dying(when, number, *command(folder)))
    assert status == KILLED, said
    return folder


def completed(spark: SparkSession, folder: Path) -> tuple[Counter[str], Counter[str]]:
    assert ended(job(*command(folder)))[0] == 0
    assert KernelWarehouse(spark, str(folder)).properties("topics/orders")["delta.appendOnly"] == "true"
    return whole(spark, folder)


@pytest.mark.thorough
def test_killed_before_the_rows_are_replaced(spark: SparkSession, before: Path) -> None:
    """The table is open for that, and a property names the setting that does not hold yet."""
    untouched = whole(spark, before)
    folder = killed(spark, before, "before", 2)
    assert whole(spark, folder) == untouched
    rows, values = completed(spark, folder)
    assert (rows, sum(values.values())) == (untouched[0], 3)
    assert values != untouched[1]


@pytest.mark.slow
def test_killed_at_every_commit(spark: SparkSession, before: Path) -> None:
    counted = before.with_name("counted")
    shutil.copytree(before, counted)
    number = commits(*command(counted))
    assert number == 3, "the table is opened, written and closed"
    untouched, wanted = whole(spark, before), whole(spark, counted)
    for when, at in [("before", 1), *(("after", at) for at in range(1, number + 1))]:
        folder = killed(spark, before, when, at)
        assert whole(spark, folder) == (wanted if when == "after" and at > 1 else untouched), (when, at)
        assert completed(spark, folder) == wanted, (when, at)
