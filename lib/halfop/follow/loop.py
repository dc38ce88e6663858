"""Cycle after cycle until the process is asked to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from halfop.follow.cycle import Cycle
from halfop.follow.stop import Stop

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
