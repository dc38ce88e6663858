"""Work with Spark that is called off, jobs and all, when whoever waits for it is interrupted."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from typing import TypeVar

from pyspark.sql import SparkSession

T = TypeVar("T")
_AGAIN = 0.2  # seconds after which the jobs are cancelled again: the work may just have begun another


class Task:
    """Work that may be called off."""

    def __init__(self, spark: SparkSession) -> None:
        self._context, self._name, self._off = spark.sparkContext, f"halfop-{uuid.uuid4()}", False

    def join(self) -> None:
        """Makes the jobs of this thread part of the work."""
        self._context.addJobTag(self._name)

    def go_on(self) -> None:
        """Raises CancelledError if the work was called off."""
        if self._off:
            raise CancelledError

    def call_off(self) -> None:
        self._off = True
        self._context.cancelJobsWithTag(self._name)


def or_called_off(spark: SparkSession, work: Callable[[Task], T]) -> T:
    """Returns what the work does, in a thread of its own.

    The caller's connection to Java has no answer to come then if it is interrupted, so that it may clean up.
    """
    task = Task(spark)
    with ThreadPoolExecutor(1, initializer=task.join) as pool:
        ended = pool.submit(work, task)
        try:
            return ended.result()
        except BaseException:
            while not ended.done():
                task.call_off()
                wait([ended], _AGAIN)
            raise
