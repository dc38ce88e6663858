"""Topics whose tables are laid out by their settings: what maintain does to them, what it leaves, and who notices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from halfop.columns.keys import Key
from halfop.erasure.erase import erase, plan
from halfop.erasure.selection import ToErase
from halfop.examine.examine import examine
from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary
from halfop.runs.reconcile import Request, reconcile
from halfop.runs.verify import verify
from halfop.settings.load import load_settings
from halfop.settings.model import Settings
from halfop.upkeep import maintain as m
from halfop.upkeep.maintain import Step, maintain
from halfop.upkeep.values import make_values
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.schema import STATS, delta_table
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.upkeep import UPKEEP, TableUpkeep
from pyspark.sql import SparkSession
from support import rows as r
from support.messages import NOW, QUEUE, half, ops
from support.reader_version import needs_more

TOPIC = "topics/orders"
BY = "topics.orders.cluster_by=committed_at,transaction_id"
FEED = "topics.orders.change_feed=true"
_CUBE = "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize"
_AT_ONCE = [f"retention.{name}=0s" for name in ("verify", "files")]


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files are enough to be joined, and what is clustered once is large enough."""
    monkeypatch.setattr(m, "_MANY_FILES", 2)
    monkeypatch.setitem(UPKEEP, f"{_CUBE}.threshold", "1")


def settings(*given: str) -> Settings:
    return load_settings(None, ["topics.layout=per_topic", *given], {})


def run(warehouse: Warehouse, at: int, *given: str) -> Summary:
    return reconcile(warehouse, Request(settings(*given), r.instant(at), allow_future=True))


def deliver(warehouse: Warehouse, numbers: Sequence[int], *given: str) -> None:
    """A run for each message: so each comes in a file of its own."""
    for n in numbers:
        r.land(warehouse, [half(n, "orders", body=b'{"id": %d}' % n)], ops("COMMIT", n), NOW + n, {QUEUE: NOW + n})
        assert run(warehouse, NOW + n, *given).status == 0


def maintained(warehouse: Warehouse, *given: str, dry_run: bool = False) -> dict[str, Step]:
    steps = maintain(warehouse, settings(*_AT_ONCE, *given), dry_run)[1]
    return {step.what: step for step in steps if step.table == TOPIC}


def files(warehouse: Warehouse) -> set[str]:
    return {Path(file.path).name for file in warehouse.listed(TOPIC)}


def delivered(warehouse: Warehouse) -> list[int]:
    return sorted(row["half_queue_offset"] for row in warehouse.read(TOPIC).collect())


def bounds(warehouse: Warehouse) -> dict[str, dict[str, Any]]:
    """The least values of each file that was ever part of the table."""
    log = Path(warehouse.path(TOPIC)) / "_delta_log"
    lines = [json.loads(line) for commit in sorted(log.glob("*.json")) for line in commit.read_text().splitlines()]
    return {each["add"]["path"]: json.loads(each["add"]["stats"])["minValues"] for each in lines if "add" in each}


@pytest.mark.parametrize(
    "store",
    [pytest.param(KernelWarehouse, marks=pytest.mark.thorough), pytest.param(SparkWarehouse, marks=pytest.mark.slow)],
)
def test_new_files_are_laid_out_and_others_left(spark: SparkSession, tmp_path: Path, store: type[Warehouse]) -> None:
    """The setting comes to a table that is there."""
    warehouse = store(spark, str(tmp_path / "warehouse"))
    deliver(warehouse, [0, 1])
    assert "clusteringColumns" not in warehouse.properties(TOPIC)
    before = files(warehouse)
    planned = maintained(warehouse, BY, dry_run=True)
    assert (files(warehouse), {*planned}) == (before, {m.LAYOUT, m.COMPACT})
    assert {m.LAYOUT, m.COMPACT} <= {*maintained(warehouse, BY)}
    assert TableUpkeep(warehouse, TOPIC).clustered_by == ["committed_at", "transaction_id"]
    (clustered,) = files(warehouse)
    assert clustered not in before
    assert bounds(warehouse)[clustered]["transaction_id"] == "k0"

    assert maintained(warehouse, BY) == {}, "nothing is left to do"
    deliver(warehouse, [2, 3], BY)
    fresh = files(warehouse) - {clustered}
    assert {bounds(warehouse)[each]["transaction_id"] for each in fresh} == {"k2", "k3"}, "as runs write them"
    assert maintained(warehouse, BY)[m.COMPACT].files == (2 if store is KernelWarehouse else 3)
    assert clustered in files(warehouse), "what is laid out is not written again"
    assert len(files(warehouse)) == 2
    assert m.COMPACT not in maintained(warehouse, BY)

    assert delivered(warehouse) == [0, 1, 2, 3]
    assert needs_more(warehouse.root) == set(), "readers of Delta's first version can read it"
    assert {m.LAYOUT, m.COMPACT} <= {*maintained(warehouse, "topics.orders.cluster_by=[]")}
    assert (TableUpkeep(warehouse, TOPIC).clustered_by, len(files(warehouse))) == ([], 1), "joined as any table's are"
    assert delivered(warehouse) == [0, 1, 2, 3]
    assert maintained(warehouse) == {}, "no setting: the table stays as it is"


@pytest.mark.slow
def test_erasure_values_and_examine_go_on(warehouse: KernelWarehouse) -> None:
    """A layout by a field whose type `maintain --values` changes."""
    typed = ["topics.orders.value.format=json", "topics.orders.value.schema=id BIGINT", FEED]
    by_value = "topics.orders.cluster_by=value.id"
    r.land(warehouse, [half(0, "orders", body=b'{"id": 0}'), half(1, "orders")], ops("COMMIT", 0, 1), NOW, {QUEUE: NOW})
    assert run(warehouse, NOW, *typed, by_value).status == 0
    deliver(warehouse, [2], *typed, by_value)
    maintained(warehouse, *typed, by_value)
    (clustered,) = files(warehouse)
    assert bounds(warehouse)[clustered]["value"] == {"id": 0}
    assert erase(warehouse, plan(warehouse, ToErase([Key(*QUEUE, 1)]))[1], Settings())[0].status == 0
    assert delivered(warehouse) == [0, 2]
    typed[1] = "topics.orders.value.schema=id STRING"
    make_values(warehouse, settings(*typed), "orders", None)
    assert TableUpkeep(warehouse, TOPIC).clustered_by == ["value.id"], "it stays laid out by the column"
    deliver(warehouse, [3], *typed, by_value)
    steps = maintained(warehouse, *typed, by_value)
    assert {m.COMPACT, m.VACUUM} == {*steps}, "its new files are"
    assert warehouse.properties(TOPIC)["delta.appendOnly"] == "true"
    assert delivered(warehouse) == [0, 2, 3]
    looked = examine(warehouse, settings(*typed), deep=True, repair=False)
    assert (looked.status, looked.extra["remains"]) == (0, [])
    assert verify(warehouse, 1)[0].status == 0
    assert needs_more(warehouse.root) == set()


@pytest.mark.thorough
@pytest.mark.parametrize(("new", "left"), [("id STRING", "value.id"), ("key STRING", None), ("id BOOLEAN", None)])
def test_values_made_again_leave_the_layout_that_they_can_have(
    warehouse: KernelWarehouse, new: str, left: str | None
) -> None:
    """Bounds, and the columns that rows are laid out by: a field of the values may go, or have none any more."""
    typed = ["topics.orders.value.format=json", "topics.orders.value.schema=id BIGINT"]
    deliver(warehouse, [0], *typed)
    laid_out = [*typed, "topics.orders.cluster_by=value.id,committed_at"]
    maintained(warehouse, *laid_out)
    table = TableUpkeep(warehouse, TOPIC)
    before = table.properties[STATS].split(",")
    assert table.clustered_by == ["value.id", "committed_at"]
    typed[1] = f"topics.orders.value.schema={new}"
    make_values(warehouse, settings(*typed), "orders", None)
    wanted = [column for column in (left, "committed_at") if column]
    assert table.clustered_by == wanted
    assert table.properties[STATS].split(",") == [column for column in before if column != "value.id" or left]
    assert m.LAYOUT not in maintained(warehouse, *typed, f"topics.orders.cluster_by={','.join(wanted)}")
    assert delivered(warehouse) == [0]
    assert needs_more(warehouse.root) == set()


@pytest.mark.slow
def test_a_change_feed_has_what_comes_and_what_goes(warehouse: KernelWarehouse) -> None:
    """Also of a table that is there; what erase removed lies in it as long as in old files."""
    deliver(warehouse, [0])
    maintained(warehouse, FEED)
    since = warehouse.version(TOPIC)
    deliver(warehouse, [1], FEED)
    erase(warehouse, plan(warehouse, ToErase([Key(*QUEUE, 0)]))[1], Settings())
    feed = warehouse.spark.read.option("readChangeFeed", "true").option("startingVersion", since)
    seen = feed.format("delta").load(warehouse.path(TOPIC)).orderBy("half_queue_offset").collect()
    assert [(row["half_queue_offset"], row["_change_type"]) for row in seen] == [(0, "delete"), (1, "insert")]
    removed = Path(warehouse.path(TOPIC)) / "_change_data"
    assert [*removed.glob("*.parquet")]
    maintained(warehouse, FEED)
    assert [*removed.glob("*.parquet")] == []
    assert m.LAYOUT in maintained(warehouse, "topics.orders.change_feed=false")
    assert warehouse.properties(TOPIC)["delta.enableChangeDataFeed"] == "false"


@pytest.mark.thorough
@pytest.mark.parametrize("store", [KernelWarehouse, SparkWarehouse])
def test_a_new_table_has_its_layout_from_its_first_message_on(
    spark: SparkSession, tmp_path: Path, store: type[KernelWarehouse | SparkWarehouse]
) -> None:
    """Without values, too."""
    warehouse = store(spark, str(tmp_path))
    deliver(warehouse, [0], FEED, "topics.orders.cluster_by=reconsume_times")
    about = warehouse.properties(TOPIC)
    assert about["delta.enableChangeDataFeed"] == "true"
    assert about["delta.dataSkippingStatsColumns"].endswith(",reconsume_times")
    detail = spark.sql(f"DESCRIBE DETAIL {delta_table(warehouse.path(TOPIC))}").collect()[0]
    assert "real topic orders" in (detail["description"] or about["comment"])
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", 0).format("delta")
    assert feed.load(warehouse.path(TOPIC)).count() == 1


def test_columns_that_do_not_fit(warehouse: KernelWarehouse) -> None:
    """No run opens by one; maintain says that it waits, because a run may bring the column."""
    deliver(warehouse, [0])
    for column, said in {
        "comitted_at": "the topic's table has no column comitted_at; did you mean committed_at?",
        "value.id": "the topic's table has no column value.id",
        "body": "body is BINARY, of which Delta keeps no bounds: name numbers, texts or times",
    }.items():
        wrong = f"topics.orders.cluster_by={column}"
        with pytest.raises(UsageError) as refused:
            run(warehouse, NOW + 1, wrong)
        assert str(refused.value) == f"topics.orders.cluster_by: {said}"
    summary, steps = maintain(warehouse, settings(wrong))
    assert f"topics.orders.cluster_by: not yet, because {said}" in summary.notes
    assert m.LAYOUT not in {step.what for step in steps}
