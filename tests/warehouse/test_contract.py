"""All ways to read and write a warehouse's tables keep one contract, also the store of simulations."""

from __future__ import annotations

from pathlib import Path

import pytest
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from support.simulated_runs.memory import MemoryWarehouse
from support.ways import read_by_spark

from warehouse.contract import KernelContract, StoreContract, WarehouseContract


class TestHere(KernelContract):
    """Few rows: PyArrow reads and writes them in this process."""

    is_here = True

    @pytest.fixture
    def way(self) -> None:
        return None


class TestThere(KernelContract):
    """Spark reads the files that Delta's log lists."""

    @pytest.fixture
    def way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read_by_spark(monkeypatch, "files")


class TestByConnector(KernelContract):
    """Delta's connector reads and writes."""

    @pytest.fixture
    def way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read_by_spark(monkeypatch, "connector")


class TestBySpark(WarehouseContract):
    """Spark's public API alone; small tables are here, too."""

    is_here = True

    @pytest.fixture
    def warehouse(self, spark: SparkSession, tmp_path: Path) -> Warehouse:
        return SparkWarehouse(spark, str(tmp_path / "ware[h]ouse {1,2}*"))  # which Spark's readers take for a pattern

    @pytest.fixture
    def way(self) -> None:
        return None


class TestInMemory(StoreContract):
    """A simulation's tables."""

    is_here = True

    @pytest.fixture
    def warehouse(self, spark: SparkSession) -> Warehouse:
        return MemoryWarehouse(spark, "memory:/warehouse")

    @pytest.fixture
    def way(self) -> None:
        return None
