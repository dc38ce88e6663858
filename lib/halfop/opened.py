"""The warehouse that a call works on, and the session that it works in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from halfop.frame.cli import Context
from halfop.frame.openlineage import Touched
from halfop.settings.model import Settings
from halfop.warehouse.session import WHILE_CALLED, session_settings, set_sync, spark_session, sync_as_before
from halfop.warehouse.tables import Warehouse

log = logging.getLogger("halfop.warehouse")


def warehouse_of(spark: SparkSession, settings: Settings, touched: Touched) -> Warehouse:
    """Returns the warehouse that the settings name, though it may be damaged. The caller does its logs' upkeep."""
    warehouse = Warehouse(spark, settings.warehouse_root, touched)
    warehouse.log.defer_upkeep()
    return warehouse


def opened(app: str, context: Context, **conf: str) -> Warehouse:
    """Returns the warehouse of a job, refused if it is damaged. The upkeep of its logs comes after the job's result."""
    warehouse = opened_as_it_is(app, context, **conf)
    warehouse.log.sound.refuse_damaged_tables(warehouse.root)
    return warehouse


def opened_as_it_is(app: str, context: Context, **conf: str) -> Warehouse:
    """Returns the warehouse of a job, though it may be damaged."""
    spark = session_of_job(app, context.settings, **conf)
    warehouse = warehouse_of(spark, context.settings, context.lineage.touched)
    context.later.append(warehouse.log.upkeep)
    return warehouse


@contextmanager
def lent(spark: SparkSession, settings: Settings, conf: dict[str, str]) -> Iterator[None]:
    """Holds what a call needs of a session; at its end the session has its own settings again."""
    with sync_as_before(spark), session_settings(spark, WHILE_CALLED | conf):
        set_sync(spark, settings.disk.sync)
        yield


def session_of_job(app: str, settings: Settings, **conf: str) -> SparkSession:
    """Returns the session of a job."""
    spark = spark_session(app, **conf)
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
