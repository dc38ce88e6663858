"""Warehouses whose landing tables are copied: making one costs Spark a second, copying a folder costs nothing."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession

LANDED = ("half_messages", "op_messages", PROGRESS, "resumes")
FROM_BROKERS = ("final_messages", "broker_discards")


def with_tables(warehouse: Warehouse, *names: str) -> None:
    """Gives the warehouse those of its tables that it lacks, empty."""
    for name in names if isinstance(warehouse, KernelWarehouse) else ():
        empty, folder = Path(_empty(warehouse.spark)), Path(warehouse.path(name))
        if not folder.exists():
            shutil.copytree(empty / name, folder)
    warehouse.make(*names)


@cache
def _empty(spark: SparkSession) -> str:
    """The folder of a warehouse that holds every table that a landing fills."""
    folder = tempfile.mkdtemp(prefix="halfop-empty-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    KernelWarehouse(spark, folder).make(*LANDED, *FROM_BROKERS)
    return folder
