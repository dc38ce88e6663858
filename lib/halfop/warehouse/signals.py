"""SIGTERM and SIGINT of a process with Spark: the JVM would end at once, in the middle of what is under way."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Thread
from types import FrameType
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from halfop.warehouse.session import is_of_server

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# One request may come twice at once: to all processes of a terminal or a unit, and passed on by the JVM.
_SAME_SECONDS = 1.0


def pass_on(spark: SparkSession) -> None:
    """Makes the JVM, which spark-submit starts first, pass both signals to this process instead of stopping at once."""
    if is_of_server(spark):
        return
    jvm: Any = spark._jvm
    driver = jvm.java.lang.ProcessHandle.of(os.getpid()).get()
    jvm.halfop.StopSignals.passTo(driver)


def end_by_another(number: int, first: float) -> None:
    """Ends the process as that signal always does, unless it is the first one again, which was taken at `first`."""
    if time.monotonic() - first > _SAME_SECONDS:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


@contextmanager
def interrupted_once(spark: SparkSession) -> Iterator[None]:
    """Lets the first signal end the block by a KeyboardInterrupt, which it may clean up after: the JVM lives on.

    A second signal ends the process as always. PySpark's own handler would cancel all jobs on the connection whose
    answer is still to come, and so wait for it.
    """
    first: list[float] = []

    def take(number: int, frame: FrameType | None) -> None:
        if not first:
            first.append(time.monotonic())
            quiet = Thread(target=spark.sparkContext.setLogLevel, args=("OFF",))  # of tasks that are called off
            quiet.start()
            quiet.join(_SAME_SECONDS)
            raise KeyboardInterrupt
        end_by_another(number, first[0])

    if "PYSPARK_GATEWAY_PORT" in os.environ:  # the JVM is spark-submit, and was here first
        pass_on(spark)
    before = {number: signal.signal(number, take) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
