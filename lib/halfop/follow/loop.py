"""Cycle after cycle until the process is asked to stop."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue
from types import FrameType

from halfop.follow.cycle import Cycle, StepEnd
from halfop.frame import metrics
from halfop.frame.metrics import Family, Histogram, Sample
from halfop.frame.summary import Summary
from halfop.planning.digest import LATENCIES, Latency
from halfop.settings.model import MetricsSettings
from halfop.warehouse.signals import SIGNALS, end_by_another

_LONGEST = timedelta(minutes=5)
_SHORTEST_AFTER_A_FAILURE = timedelta(seconds=1)


@dataclass
class Turns:
    """The time from the start of one cycle to the start of the next: it doubles while runs fail."""

    every: timedelta
    failures: int = 0

    def count(self, cycle: Cycle) -> None:
        self.failures = self.failures + 1 if cycle.run_failed else 0

    @property
    def length(self) -> timedelta:
        if not self.failures:
            return self.every
        doubled: timedelta = max(self.every, _SHORTEST_AFTER_A_FAILURE) * 2 ** min(self.failures, 20)
        return min(doubled, max(self.every, _LONGEST))


def follow(cycle: Callable[[int], Cycle], done: Callable[[Cycle], None], stop: Stop, every: timedelta) -> int:
    """Does cycles and passes each to `done`; returns their number when the process has been asked to stop."""
    number, turns = 0, Turns(every)
    while not stop.asked:
        number, start = number + 1, time.monotonic()
        ended = cycle(number)
        done(ended)
        turns.count(ended)
        stop.wait(turns.length.total_seconds() - (time.monotonic() - start))
    return number


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


class Measures:
    """`landing` is the name that the source's landings go by. Latencies are counted as long as the process lives."""

    def __init__(self, settings: MetricsSettings, landing: str) -> None:
        self._settings, self._landing, self._latency = settings, landing, Latency()

    def report(self, cycle: Cycle, summary: Summary) -> None:
        self._report(self._landing, cycle.landing)
        if cycle.run is not None:
            self._report("reconcile", cycle.run)
            self._latency = self._latency.plus(_latency(cycle.run))
        seconds = sum(summary.seconds.values())
        metrics.report(
            self._settings, metrics.Call("follow", seconds, cycle.status, summary, own(cycle.number, self._latency))
        )

    def _report(self, command: str, step: StepEnd) -> None:
        metrics.report(self._settings, metrics.Call(command, step.seconds, step.status, step.summary))


def own(cycles: int, latency: Latency) -> tuple[Family | Histogram, ...]:
    """The metrics of the process: its cycles, and the latencies of all its commits."""
    help_text = "Time from a half message's birth to its commit, of all messages that this process committed."
    within: dict[float, int] = dict(zip(LATENCIES, latency.within, strict=True))
    return (
        Family("halfop_cycles", "Cycles since the process started.", (Sample(cycles),)),
        Histogram("halfop_commit_latency_seconds", help_text, within, latency.messages, latency.seconds),
    )


def _latency(run: StepEnd) -> Latency:
    found = run.summary.extra.get("commit_latency") if run.summary else None
    return Latency(**found) if found else Latency()
