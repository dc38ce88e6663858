"""One Spark session a worker, a warehouse of its own for each test, and the order of the files."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("support", "model")  # a failing assertion there shows its values, too

from halfop import opened
from halfop.frame import log
from halfop.planning import counts
from halfop.start import FIRST_COMPILER
from halfop.warehouse import sync
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import is_of_server, spark_session
from halfop.warehouse.sync import set_sync
from halfop.warehouse.tables import Warehouse
from pyspark.sql import SparkSession
from support import effort
from support.seeds import the_same_again
from support.suites import needs_delta

pytest_plugins = ["systems.broker.real_broker", "support.missing_tools", "support.kills", "support.suites"]
NewWarehouse = Callable[[str], Warehouse]

# collected timestamps are naive and in the machine's time zone
os.environ["TZ"] = "UTC"
time.tzset()
effort.choose()

# ---- order ----

# Two workers end at about the same time where the longest begin first.
_LONGEST = [
    "test_sparks",  # before its worker has a Spark, because it starts one
    *("test_small_histories_in_memory", "test_rules", "test_copies_in_memory"),
    *("test_rules_written", "test_lineage", "test_runs", "test_land_files", "test_kills", "test_oracle"),
    *("test_production_settings", "test_simulate", "test_wheel", "test_few_rows"),
    *("test_by_workers", "test_check_limit", "test_delivered", "test_small_histories", "test_land_by_workers"),
    *("test_land_store", "test_explain", "test_report", "test_audit", "test_model"),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Orders the files."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    """The files' places; their own order is kept otherwise."""
    file = item.path.stem
    return _LONGEST.index(file) if file in _LONGEST else len(_LONGEST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to a failed test the command that draws the same again."""
    report = yield
    if report.failed:
        report.sections.append(("the same again", the_same_again(item.nodeid)))
    return report


# ---- Spark ----

# Tests have a handful of rows: compiling a query costs far more than interpreting it, and so do tasks and plan texts.
TINY = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "3g",
    # Java's first compiler alone: the second one takes more time than its code saves.
    # A young heap of 600 MB: nearly all objects are plans, which nobody needs any more when they have run.
    "spark.driver.extraJavaOptions": f"{' '.join(FIRST_COMPILER)} -XX:+UseSerialGC -Xmn600m -XX:-UsePerfData",
    "spark.sql.shuffle.partitions": "1",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.skipping": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # VACUUM has a task each
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session("tests", **TINY)
    if is_of_server(session):
        yield session
        session.stop()
        return
    with pytest.MonkeyPatch.context() as patch:
        for module in (opened, sync):  # no power is cut here; test_log_store.py sets it itself
            patch.setattr(module, "set_sync", lambda *_: None)
        set_sync(session, sync=False)
        yield session
    session.stop()


@pytest.fixture(scope="session")
def frames(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session for frames in memory: the suite's own, or one that starts without Delta where no test needs it."""
    if any(needs_delta(item) for item in request.session.items):
        yield request.getfixturevalue("spark")
        return
    session = spark_session("tests", **TINY, **{"spark.sql.extensions": ""})
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def _few_ranges() -> Iterator[None]:
    """Cases side by side have hundreds of brokers, which no cluster has: one range over all of them plans faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "_MOST_RANGES", 8)
        yield


@pytest.fixture
def warehouse(spark: SparkSession, tmp_path: Path) -> Warehouse:
    return (SparkWarehouse if is_of_server(spark) else KernelWarehouse)(spark, str(tmp_path / "warehouse"))


@pytest.fixture(scope="session")
def new_warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> NewWarehouse:
    """Makes warehouses that a module's tests share."""
    return lambda name: KernelWarehouse(spark, str(tmp_path_factory.mktemp(name) / "warehouse"))


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """What a job changes in logging, undone; and no field that a test left whose run failed."""
    log._fields.clear()
    root = logging.getLogger()
    handlers, level = list(root.handlers), logging.getLogger("halfop").level
    yield
    root.handlers = handlers
    logging.getLogger("halfop").setLevel(level)
    logging.captureWarnings(False)
