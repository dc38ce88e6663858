"""The warehouse that a call works on, and the session that it works in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from halfop.frame.errors import HalfopError, UsageError
from halfop.frame.openlineage import Touched
from halfop.settings.model import Settings
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.given import refuse_unfit_server
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import WHILE_CALLED, is_of_server, is_stopped, session_settings, spark_session
from halfop.warehouse.sync import SYNC, set_sync
from halfop.warehouse.tables import Warehouse

log = logging.getLogger("halfop.warehouse")


def warehouse_of(spark: SparkSession, settings: Settings, touched: Touched) -> Warehouse:
    """Returns the warehouse that the settings name, though it may be damaged. The caller does its logs' upkeep."""
    if is_of_server(spark):
        if settings.warehouse is None:
            raise UsageError(
                "which warehouse? A server of Spark Connect has none of this checkout: name it by --warehouse, or as "
                "the root of halfop.open"
            )
        refuse_unfit_server(spark, settings.warehouse_root)
        return SparkWarehouse(spark, settings.warehouse_root, touched)
    return _of_files(spark, settings, touched)


def _of_files(spark: SparkSession, settings: Settings, touched: Touched) -> KernelWarehouse:
    warehouse = KernelWarehouse(spark, settings.warehouse_root, touched)
    warehouse.log.defer_upkeep()
    return warehouse


def refuse_damaged(warehouse: Warehouse) -> None:
    """Raises DamagedTable if a log has lost commits; of tables that only Spark reaches nobody can see that."""
    if isinstance(warehouse, KernelWarehouse):
        warehouse.log.sound.refuse_damaged_tables(warehouse.root)


def upkeep(warehouse: Warehouse) -> None:
    """Does the upkeep of logs that commits have left; Spark does that of its own commits at once."""
    if isinstance(warehouse, KernelWarehouse):
        warehouse.log.upkeep()


@contextmanager
def lent(spark: SparkSession, settings: Settings, conf: dict[str, str]) -> Iterator[None]:
    """Holds what a call needs of a session, unless it is stopped; at its end it has its own settings again."""
    if is_stopped(spark):
        raise HalfopError(
            "the Spark session of this warehouse was stopped, so this call did nothing: open the warehouse again, in a "
            "session that runs, by halfop.open(spark, root)"
        )
    if is_of_server(spark):
        with session_settings(spark, WHILE_CALLED | conf):
            yield
        return
    with SYNC.held(spark, settings.disk.sync), session_settings(spark, WHILE_CALLED | conf):
        yield


def session_of_job(app: str, settings: Settings, **conf: str) -> SparkSession:
    """Returns the session of a job."""
    spark = spark_session(app, **conf)
    if not is_of_server(spark):
        set_sync(spark, settings.disk.sync)
        _warn_of_listener(spark)
    return spark


def _warn_of_listener(spark: SparkSession) -> None:
    """Says that OpenLineage's listener sees but a part: little of what halfop writes has a plan of Spark's."""
    if "openlineage" in (spark.conf.get("spark.extraListeners", "") or "").lower():
        log.warning(
            "OpenLineage's Spark listener sees only a part of what this job reads and writes. halfop sends all of it "
            "itself: drop the listener, and configure OpenLineage's Python client (docs/observability.md)"
        )
