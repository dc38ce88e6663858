"""SIGTERM and SIGINT of a process with Spark: the JVM would end at once, in the middle of what is under way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# One request may come twice at once: to all processes of a terminal or a unit, and passed on by the JVM.
_SAME_SECONDS = 1.0


def pass_on(spark: SparkSession) -> None:
    """Makes the JVM, which spark-submit starts first, pass both signals to this process instead of stopping at once."""
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
