"""One Spark session for the whole suite; a warehouse of its own for each test."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from halfop.warehouse.session import spark_session
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession

pytest_plugins = ["real_broker"]

# collected timestamps are naive and in the machine's time zone
os.environ["TZ"] = "UTC"
time.tzset()

# Tests have a handful of rows: compiling a query costs far more than interpreting it, and so do tasks and plan texts.
_TINY = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.databricks.delta.stats.skipping": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # VACUUM has a task each
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session(
        "tests",
        **{
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "3g",
            "spark.sql.shuffle.partitions": "1",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.log.level": "ERROR",
            "spark.ui.showConsoleProgress": "false",
        }
        | _TINY,
    )
    yield session
    session.stop()


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path) -> Warehouse:
    return Warehouse(spark, str(tmp_path / "warehouse"))


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """What a job changes in logging, undone."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), logging.getLogger("halfop").level
    yield
    root.handlers = handlers
    logging.getLogger("halfop").setLevel(level)
    logging.captureWarnings(False)
