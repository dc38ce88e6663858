"""The cost of work in Spark jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession


def jobs(spark: SparkSession, work: Callable[[], object]) -> int:
    """The number of jobs that Spark begins meanwhile, in any thread."""
    scheduler: Any = spark.sparkContext._jsc.sc().dagScheduler()
    before = int(scheduler.numTotalJobs())
    work()
    return int(scheduler.numTotalJobs()) - before
