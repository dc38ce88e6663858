"""Warehouses that an older version wrote: work goes on in them, and columns that it did not know are added."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from halfop.runs.verify import verify
from halfop.warehouse import schema
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Marker, Warehouse
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType
from support import rows as r
from support.kills import content, finished, prepare
from support.messages import NOW, one_of_each
from support.places import DATA

OLD = DATA / "warehouse-0.2.tar.gz"
UNLIKE = {"runs": ["slice"]}  # it had a field more
NEW = {"name": "came_later", "type": "STRING", "comment": "A column of tomorrow's version; it's \\ quoted"}
GROWN = ("half_messages", "topics_index")
ROW = {"topic": "T", "directory": "T", "run_id": 1, "created_at": r.instant(NOW)}


@pytest.mark.slow
def test_a_warehouse_of_the_last_version_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """The warehouse is as kills.prepare left it then: one run closed, more landed."""
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path / "old", filter="data")
    old, new = (tmp_path / name / "warehouse" for name in ("old", "new"))
    prepare(KernelWarehouse(spark, str(new)))
    found, wanted = (content(finished(spark, folder), without=UNLIKE) for folder in (old, new))
    assert found == wanted
    assert verify(KernelWarehouse(spark, str(old)), 1)[0].status == 0


@pytest.fixture
def grown() -> Iterator[None]:
    """Tomorrow's schemas."""
    texts = schema._texts()
    new = {name: yaml.safe_load(texts[name]) for name in GROWN}
    for spec in new.values():
        spec["columns"].append(NEW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "_texts", lambda: texts | {name: yaml.safe_dump(spec) for name, spec in new.items()})
        schema.table.cache_clear()
        yield
    schema.table.cache_clear()


@pytest.fixture
def written(warehouse: Warehouse) -> Warehouse:
    one_of_each(warehouse)
    warehouse.make(*GROWN)
    warehouse.commit("topics_index", [ROW], Marker("test", 1))
    return warehouse


def test_new_columns(written: Warehouse, grown: None) -> None:
    """A table that Spark writes and one that Delta Kernel writes get them; both are read at an older version, too."""
    later = KernelWarehouse(written.spark, written.root)
    later.make("half_messages")
    field = later.spark.read.format("delta").load(later.path("half_messages")).schema["came_later"]
    assert (field.dataType, field.metadata["comment"]) == (StringType(), NEW["comment"])
    assert {row["came_later"] for row in later.read("half_messages", 1).collect()} == {None}
    later.commit("topics_index", [ROW | {"came_later": "now", "run_id": 2}], Marker("test", 2))
    assert {row["run_id"]: row["came_later"] for row in later.rows("topics_index")} == {1: None, 2: "now"}
