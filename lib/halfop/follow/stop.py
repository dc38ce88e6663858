"""SIGTERM and SIGINT: the first asks the process to stop when its step is done, the second stops it as always."""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession

log = logging.getLogger("halfop.follow")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# One request may come twice at once: to all processes of a terminal or a unit, and passed on by the JVM.
_SAME_SECONDS = 1.0


class Stop:
    """Knows whether the process has been asked to stop.

    The queue is what a signal's handler may write to at any moment; an Event's lock could be the interrupted code's.
    """

    def __init__(self) -> None:
        self._signals: SimpleQueue[int] = SimpleQueue()
        self._first: float | None = None

    @property
    def asked(self) -> bool:
        return self._first is not None

    def wait(self, seconds: float) -> None:
        """Waits so long, or until the process is asked to stop."""
        if not self.asked:
            with suppress(Empty):
                self._signals.get(timeout=max(0.0, seconds))

    def listen(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._first is None:
            self._first = time.monotonic()
            self._signals.put(number)
        elif time.monotonic() - self._first > _SAME_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def pass_on(spark: SparkSession) -> None:
    """Makes the JVM, which spark-submit starts first, pass both signals to this process instead of stopping at once."""
    jvm: Any = spark._jvm
    driver = jvm.java.lang.ProcessHandle.of(os.getpid()).get()
    jvm.halfop.StopSignals.passTo(driver)
