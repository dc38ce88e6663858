"""The warehouse that a job works on."""

from __future__ import annotations

import logging

from pyspark.sql import SparkSession

from halfop.frame.cli import Context
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import set_sync, spark_session

log = logging.getLogger("halfop.warehouse")


def opened(app: str, context: Context, **conf: str) -> KernelWarehouse:
    """Returns the warehouse that the settings name, refused if it is damaged.

    The upkeep of its logs comes after the job's result.
    """
    warehouse = opened_as_it_is(app, context, **conf)
    warehouse.log.sound.refuse_damaged_tables(warehouse.root)
    return warehouse


def opened_as_it_is(app: str, context: Context, **conf: str) -> KernelWarehouse:
    """Returns the warehouse, though it may be damaged."""
    settings = context.settings
    spark = spark_session(app, **conf)
    set_sync(spark, settings.disk.sync)
    _warn_of_listener(spark)
    warehouse = KernelWarehouse(spark, settings.warehouse_root, context.lineage.touched)
    warehouse.log.defer_upkeep()
    context.later.append(warehouse.log.upkeep)
    return warehouse


def _warn_of_listener(spark: SparkSession) -> None:
    """Says that OpenLineage's listener sees but a part: little of what halfop writes has a plan of Spark's."""
    if "openlineage" in (spark.conf.get("spark.extraListeners", "") or "").lower():
        log.warning(
            "OpenLineage's Spark listener sees only a part of what this job reads and writes. halfop sends all of it "
            "itself: drop the listener, and configure OpenLineage's Python client (docs/observability.md)"
        )
