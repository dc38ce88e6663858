"""Opening a warehouse: in a program's session, or in that of a job."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from halfop.api.halfop import Halfop
from halfop.frame.cli import Context
from halfop.frame.errors import UsageError
from halfop.opened import session_of_job
from halfop.settings.home import JARS_LOCK, checkout
from halfop.settings.load import load_settings
from halfop.warehouse.given import refuse_unfit, spark_conf
from halfop.warehouse.session import session_of_server, spark_session


def open(
    spark: SparkSession | None = None, root: str | Path | None = None, settings: Mapping[str, object] | None = None
) -> Halfop:
    """Returns the warehouse at a path or URI; without a root it is the configured one.

    The session is yours: a call changes settings of it only while it runs. Without one it is the session that runs, or
    a new one. It must have halfop's jars and settings (`spark_conf`), or UsageError lists what is missing. `settings`
    are those of docs/settings.md, by dotted keys or nested; they win over the file and the environment.

    >>> wh = halfop.open(spark, root, settings={"rules.transaction_timeout": "10s"})
    >>> wh.settings.rules.transaction_timeout
    datetime.timedelta(seconds=10)
    """
    _refuse_name(root)
    found = load_settings(None, given=dict(settings or {}) | ({} if root is None else {"warehouse": str(root)}))
    spark = spark or _running()
    if spark is None:
        return Halfop(found, _new)
    refuse_unfit(spark, found.warehouse_root)
    own = spark
    return Halfop(found, lambda: own)


def _new() -> SparkSession:
    """A session of our own. Where a launcher of ours has started this process, it has given Spark the jars."""
    launched = {"PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"} & os.environ.keys()
    if launched:
        return spark_session("python")
    quiet = (checkout(os.environ) or JARS_LOCK.parent) / "conf" / "log4j2.properties"
    if quiet.is_file():  # as jobs are
        os.environ.setdefault("LOG4J_CONFIGURATION_FILE", str(quiet))
    return spark_session("python", **spark_conf())


def of_job(app: str, context: Context) -> Halfop:
    """Returns the warehouse of a job, which starts its session when it needs it, and does the upkeep after all else."""
    return Halfop(
        context.settings, partial(session_of_job, app, context.settings), context.lineage.touched, context.later.append
    )


def _refuse_name(root: str | Path | None) -> None:
    if isinstance(root, str) and re.fullmatch(r"\w+\.\w+", root) and not Path(root).exists():
        raise UsageError(
            f"{root}: is this a catalog's schema? halfop keeps its tables below a path, and gives them names in a "
            f'schema: open(spark, "/path/or/uri", settings={{"catalog.schema": "{root}"}}). A folder: ./{root}'
        )


def _running() -> SparkSession | None:
    """The running session: to ask for one with settings would set them in it for good."""
    if (of_server := session_of_server()) is not None:
        return of_server
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
