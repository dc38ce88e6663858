"""A landing on the disk of a client, whose tables only Spark reaches."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from halfop.frame.errors import TransientError
from halfop.landing.staged import Marks, OnClient, staging
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.tables import Marker
from pyspark.sql import SparkSession

APP = "halfop.test"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def staged(spark: SparkSession, tmp_path: Path, here: Path) -> Iterator[OnClient]:
    with staging(SparkWarehouse(spark, str(tmp_path / "warehouse"))) as made:
        assert isinstance(made, OnClient)
        yield made


def test_who_lands_while_another_sends_starts_over(staged: OnClient) -> None:
    """A marker alone would not tell: the second landing has gone further, and holds the rows of the first."""
    warehouse = staged.warehouse
    before = warehouse.marker("op_messages", APP)
    warehouse.commit("op_messages", [{"broker_name": "b", "item": 0}], Marker(APP, 1_000))
    with pytest.raises(TransientError, match="another landing has written to op_messages meanwhile"):
        staged.append_once("op_messages", [], None, APP, Marks(before, 1_200))
    assert len(warehouse.rows("op_messages")) == 1
    staged.append_once("op_messages", [], None, APP, Marks(1_000, 1_200))
    assert warehouse.marker("op_messages", APP) == 1_200


def test_what_killed_clients_left_goes_after_a_day(staged: OnClient, here: Path) -> None:
    old, new = (Path(tempfile.mkdtemp(prefix="halfop-landing-")) for _ in range(2))
    other = here / "others"
    other.mkdir()
    for folder in (old, other):
        (folder / "bodies").touch()
        os.utime(folder, (time.time() - 90_000,) * 2)
    with staging(staged.warehouse):
        pass
    assert (old.exists(), new.exists(), other.exists()) == (False, True, True)


def test_a_share_leaves_the_threads_of_the_client(staged: OnClient) -> None:
    threads = pa.cpu_count()
    pa.set_cpu_count(3)
    try:
        assert staged.work([1, 2], lambda share, _: pa.set_cpu_count(1) or share, few=False) == [1, 2]
        assert pa.cpu_count() == 3
    finally:
        pa.set_cpu_count(threads)
