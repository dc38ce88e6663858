"""On HDFS, by Hadoop's mini cluster: the rows of a local disk, and files through the executor's JVM."""

from __future__ import annotations

import gzip
import json
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from halfop.frame.errors import InputRefused
from halfop.landing.files import sources
from halfop.landing.files.land import FilesRequest, land_files
from halfop.landing.store import new_part
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.warehouse.disk import Disk
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.spark_errors import SPARK_ERRORS
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.workers import in_workers
from pyspark.sql import SparkSession
from support.brokers.store_writer import Store
from support.brokers.stores import transactions
from support.json_lines import half, lines, op
from support.large_runs import ROWS, everything, landed_and_decided, write_backlog

from systems.hdfs.local_hdfs import local_hdfs

pytestmark = [pytest.mark.hdfs, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with local_hdfs(tmp_path_factory.mktemp("hdfs")) as running:
        yield running


def test_landed_and_reconciled_by_workers(spark: SparkSession, hdfs: str, tmp_path: Path) -> None:
    given = str(write_backlog(tmp_path / "in"))
    here, there = str(tmp_path / "local"), f"{hdfs}/large"
    ways = [landed_and_decided(root, given) for root in (here, there)]
    assert ways[0] == ways[1]
    assert ways[0][0].startswith("by workers")
    found = everything(KernelWarehouse(spark, there))
    assert found == everything(KernelWarehouse(spark, here))
    assert found["decisions"].total() == ROWS


@pytest.mark.parametrize("little", [0, 8 << 20])
def test_a_store_lands_as_on_a_local_disk(
    spark: SparkSession, hdfs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, little: int
) -> None:
    """Workers land most of it, this process a little."""
    monkeypatch.setattr(new_part, "_LITTLE", little)
    store = Store(tmp_path / "store", file_size=1 << 13)
    transactions(store, range(60))
    found = []
    for root in (str(tmp_path / "local"), f"{hdfs}/store-{little}"):
        warehouse = KernelWarehouse(spark, root)
        land_store(warehouse, StoreRequest(str(store.root), "broker-a", timedelta(0)), logging.getLogger("test"))
        found.append({name: rows(warehouse, name) for name in ("half_messages", "final_messages", "op_messages")})
        assert warehouse.files.folders(f"{root}/_staging") == []
    assert found[0] == found[1]
    assert found[0]["half_messages"].total() == 60


def test_files_land_as_from_a_local_disk(
    spark: SparkSession, hdfs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers read them, whatever their names; what is no row of ours is refused by its place."""
    monkeypatch.setattr(sources, "_FEW_BYTES", -1)
    here = tmp_path / "a b [1]%20ü"
    given = {
        "half": [lines(here / "1.jsonl", *map(half, range(20)), "no JSON"), str(here / "2.json.gz")],
        "op": [lines(here / "o" / "1.ndjson", *(op(n, f"{n},") for n in range(10)))],
    }
    Path(given["half"][1]).write_bytes(gzip.compress("".join(json.dumps(half(n)) + "\n" for n in (20, 21)).encode()))
    there = copied(spark, here, f"{hdfs}/in")
    found = []
    for name, folder in (("local", str(here)), ("hdfs", there)):
        warehouse = KernelWarehouse(spark, str(tmp_path / name) if name == "local" else f"{hdfs}/of-files")
        files = {kind: [path.replace(str(here), folder) for path in paths] for kind, paths in given.items()}
        asked = FilesRequest(files["half"], files["op"])
        with pytest.raises(InputRefused, match=r"1\.jsonl:21: "):
            land_files(warehouse, asked, logging.getLogger("test"))
        land_files(warehouse, replace(asked, skip_bad=True), logging.getLogger("test"))
        found.append({table: rows(warehouse, table) for table in ("half_messages", "op_messages")})
        assert warehouse.read("rejected").count() == 1
    assert found[0] == found[1]
    assert found[0]["half_messages"].total() == 22


def copied(spark: SparkSession, folder: Path, to: str) -> str:
    """The folder's copy on another file system."""
    jvm: Any = spark._jvm
    jsc: Any = spark._jsc
    path = jvm.org.apache.hadoop.fs.Path(to)
    path.getFileSystem(jsc.hadoopConfiguration()).copyFromLocalFile(jvm.org.apache.hadoop.fs.Path(str(folder)), path)
    return to


def rows(warehouse: Warehouse, name: str) -> Counter[str]:
    return Counter(str(row) for row in warehouse.read(name).drop("landed_at").collect())


def test_a_task_that_fails_leaves_no_half_file(spark: SparkSession, hdfs: str) -> None:
    def fail(uri: str, disk: Disk) -> Any:
        whole, half = (disk.create(f"{uri}/{name}") for name in ("whole", "half"))
        whole.close()
        half.stream.write(b"1" * (5 << 20))
        raise ValueError("on its own")

    warehouse, uri = KernelWarehouse(spark, f"{hdfs}/failed"), f"{hdfs}/failed/x"
    with pytest.raises(SPARK_ERRORS, match="on its own"):
        in_workers(warehouse, [uri], fail)
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(uri)
    jsc: Any = spark._jsc
    found = path.getFileSystem(jsc.hadoopConfiguration()).listStatus(path)
    assert [status.getPath().getName() for status in found] == ["whole"]
