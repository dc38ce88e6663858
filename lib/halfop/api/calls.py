"""A call of the API: the session's settings while it runs, and the upkeep after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property, partial
from numbers import Integral
from pathlib import Path
from typing import Any, get_args

from pyspark.sql import SparkSession

from halfop.frame.errors import PartsFailed, UsageError
from halfop.frame.openlineage import Touched
from halfop.frame.summary import FailedPart, Summary
from halfop.opened import lent, refuse_damaged, upkeep, warehouse_of
from halfop.settings.model import Settings
from halfop.settings.values import UNITS
from halfop.warehouse.tables import Warehouse

Work = Callable[[], None]


def _now(work: Work) -> None:
    work()


class WarehouseCalls:
    """A warehouse whose session starts when a call first needs it. `later` does what need not come before a result."""

    def __init__(
        self,
        settings: Settings,
        session: Callable[[], SparkSession],
        touched: Touched | None = None,
        later: Callable[[Work], None] = _now,
    ) -> None:
        self.settings, self._session, self._touched, self._later = settings, session, touched or Touched(), later
        self._is_sound = False

    @property
    def root(self) -> str:
        """The warehouse as a URI or an absolute path."""
        return self.settings.warehouse_root

    @cached_property
    def spark(self) -> SparkSession:
        return self._session()

    @cached_property
    def warehouse(self) -> Warehouse:
        """The tables, for what has no method here. It is no part of what is promised."""
        return warehouse_of(self.spark, self.settings, self._touched)

    @contextmanager
    def _reading(self, **conf: str) -> Iterator[Warehouse]:
        with lent(self.spark, self.settings, conf):
            yield self.warehouse

    @contextmanager
    def _writing(self, **conf: str) -> Iterator[Warehouse]:
        """A call that writes: refused if a table is damaged; the upkeep of the logs comes after it."""
        with self._as_it_is(**conf) as warehouse:
            if not self._is_sound:
                refuse_damaged(warehouse)
                self._is_sound = True
            yield warehouse

    @contextmanager
    def _as_it_is(self, **conf: str) -> Iterator[Warehouse]:
        """A call that may write to damaged tables, too."""
        with self._reading(**conf) as warehouse:
            try:
                yield warehouse
            finally:
                self._later(partial(upkeep, warehouse))


def refuse_failed_parts(summary: Summary, rows: Sequence[Any] = ()) -> Summary:
    """The summary of a call; raises PartsFailed if parts of its work failed."""
    if summary.extra.keys() & set(get_args(FailedPart)):
        raise PartsFailed(summary, rows)
    return summary


def refuse_text(**lists: object) -> None:
    """Raises UsageError for a text or a path where a list is wanted: a text would count as the list of its letters."""
    for name, given in lists.items():
        if isinstance(given, str | Path):
            raise UsageError(f"{name}={given!r}: expected a list, as {name}=[{given!r}]")


def number_of(run: int | Summary) -> int:
    """Returns the number of a run, which may be given by the summary of the call that made it."""
    found: object = run.run_id if isinstance(run, Summary) else run
    if isinstance(found, Integral) and 0 < int(found) < 2**63:
        return int(found)
    raise UsageError(f"run={found!r}: expected the number of a run, or the Summary of a reconcile that made one")


def refuse_no_count(**numbers: object) -> None:
    """Raises UsageError for what is no whole number of at least 1."""
    for name, given in numbers.items():
        if not (isinstance(given, Integral) and int(given) > 0):
            raise UsageError(f"{name}={given!r}: expected a whole number of at least 1")


def refuse_no_interval(**intervals: object) -> None:
    """Raises UsageError for what is no time between two calls: a text, less than a millisecond, or a part of one."""
    for name, given in intervals.items():
        if given is None or (isinstance(given, timedelta) and given > timedelta(0) and not given % UNITS["ms"]):
            continue
        raise UsageError(f"{name}={given!r}: expected whole milliseconds above 0, as timedelta(seconds=30)")


def refuse_no_instant(**instants: object) -> None:
    """Raises UsageError for what is no instant: a text, a date, or a datetime without its zone."""
    for name, given in instants.items():
        if given is not None and not (isinstance(given, datetime) and given.tzinfo is not None):
            expected = "an instant with its zone, as datetime(2025, 6, 15, tzinfo=timezone.utc)"
            raise UsageError(f"{name}={given!r}: expected {expected}")
