"""The instants of a simulation's runs, and the run that a row comes with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pyspark.sql import Column
from pyspark.sql import functions as F

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Schedule:
    """The instants of the runs, ascending; `every` is the time between two if it is constant. Step 1 is the first."""

    instants: Sequence[datetime]
    every: timedelta | None = None

    @property
    def steps(self) -> range:
        return range(1, len(self.instants) + 1)

    @property
    def beyond(self) -> int:
        """The step of rows that come after the last run."""
        return len(self.instants) + 1

    def at(self, step: int) -> datetime:
        return self.instants[step - 1]

    def step_of(self, micros: str) -> Column:
        """The first step that is not before an instant, given as a column of microseconds."""
        bounds = [(instant - EPOCH) // _MICROSECOND for instant in self.instants]
        return F.expr(_search(micros, bounds, 1, self.beyond))


def _search(micros: str, bounds: Sequence[int], low: int, high: int) -> str:
    """A binary search as one expression."""
    if low == high:
        return str(low)
    middle = (low + high) // 2
    below, above = _search(micros, bounds, low, middle), _search(micros, bounds, middle + 1, high)
    return f"IF({micros} <= {bounds[middle - 1]}, {below}, {above})"


def regular(since: datetime, until: datetime, every: timedelta) -> Schedule:
    """Runs at each multiple of `every`, as a clock shows them, after `since` and before `until`, and at `until`."""
    first = _after(since, every)
    return Schedule([*(first + n * every for n in range(_number(since, until, every) - 1)), until], every)


def widened(since: datetime, until: datetime, every: timedelta, most: int) -> timedelta:
    """The least multiple of `every` that gives no more than `most` runs."""
    times = max(1, (until - since) // (every * most))
    while _number(since, until, every * times) > most:
        times += 1
    return every * times


def _number(since: datetime, until: datetime, every: timedelta) -> int:
    return max(0, -((_after(since, every) - until) // every)) + 1


def _after(since: datetime, every: timedelta) -> datetime:
    return ((since - EPOCH) // every + 1) * every + EPOCH
