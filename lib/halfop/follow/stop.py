"""SIGTERM and SIGINT: the first asks the process to stop when its step is done, the second stops it as always."""

from __future__ import annotations

import logging
import signal
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType

from halfop.warehouse.signals import SIGNALS, end_by_another

log = logging.getLogger("halfop.follow")


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
        for number in SIGNALS:
            signal.signal(number, self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._first is None:
            self._first = time.monotonic()
            self._signals.put(number)
        else:
            end_by_another(number, self._first)
