"""Cycles: each lands what is new, then runs the rules over what has landed, whatever became of the landing."""

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

from pyspark.sql import SparkSession

from halfop.frame import metrics
from halfop.frame.errors import (
    HalfopError,
    PartsFailed,
    TransientError,
    UsageError,
    WarehouseBusy,
    is_mistake,
    summary_of,
)
from halfop.frame.log import logged_apart, logged_with
from halfop.frame.metrics import Family, Histogram, Sample
from halfop.frame.summary import Summary
from halfop.frame.trouble import Failure, failure_of
from halfop.planning.digest import LATENCIES, Latency
from halfop.settings.model import MetricsSettings
from halfop.warehouse.session import is_of_server, is_stopped
from halfop.warehouse.signals import SIGNALS, end_by_another
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS, first_line, log_failure

log = logging.getLogger("halfop.follow")

Step = Callable[[], Summary]
_DONE = (0, 5)
# From good to bad: by 5 all is done, by 4 nothing is wrong but the moment.
_WORSE = (0, 5, 4, 3, 1)


@dataclass(frozen=True)
class StepEnd:
    """The end of a step: its summary, or the failure that ended it."""

    seconds: float
    summary: Summary | None
    failure: Failure | None = None

    @property
    def status(self) -> int:
        if self.summary is not None:
            return self.summary.status
        return 0 if self.failure is None else self.failure.status

    @property
    def transient(self) -> bool:
        if self.failure is not None:
            return self.failure.transient
        return self.summary is None or bool(self.summary.extra.get("transient", True))

    @property
    def problem(self) -> str:
        """What went wrong; nothing if all is done."""
        if self.failure is not None:
            return self.failure.message
        return "" if self.summary is None or self.summary.status in _DONE else str(PartsFailed(self.summary))

    def fields(self, job: str) -> dict[str, object]:
        """The line that the step's own job would have printed."""
        if self.summary is not None:
            return self.summary.fields()
        return {"job": job} | ({} if self.failure is None else self.failure.fields())


@dataclass(frozen=True)
class Cycle:
    """The end of a cycle; `run` is None if the process was asked to stop before its run."""

    number: int
    landing: StepEnd
    run: StepEnd | None

    @property
    def status(self) -> int:
        """The worse status of the two steps."""
        found = [self.landing.status] + ([] if self.run is None else [self.run.status])
        return max(found, key=lambda status: _WORSE.index(status) if status in _WORSE else len(_WORSE))

    @property
    def run_failed(self) -> bool:
        """Returns whether to wait longer before the next turn; another process that works there now is no reason."""
        return self.run is not None and self.run.status not in (*_DONE, 4)

    def summary(self) -> Summary:
        """The cycle in one line. Decisions and rows are the run's; those of the landing are in `landing`."""
        steps = {"land": self.landing} | ({} if self.run is None else {"run": self.run})
        summary = Summary(
            "follow", status=self.status, seconds={k: round(each.seconds, 3) for k, each in steps.items()}
        )
        for each in steps.values():
            summary.notes += [] if each.summary is None else each.summary.notes
        if self.run is None:
            summary.notes.append("stopped by a signal before its run")
        elif self.run.summary is not None:
            summary.run_id = self.run.summary.run_id
            summary.add(self.run.summary)
        summary.extra = {
            "cycle": self.number,
            "landing": self.landing.fields("land"),
            "run": None if self.run is None else self.run.fields("reconcile"),
        }
        if self.status not in _DONE:
            summary.extra["transient"] = all(each.transient for each in steps.values() if each.status not in _DONE)
        return summary


def cycle(number: int, land: Step, run: Step, stopping: Callable[[], bool], alive: Callable[[], bool]) -> Cycle:
    """Does a cycle. An error ends neither it nor the process, unless the next cycle could only end the same way.

    That is wrong usage, a mistake in the code, and a Spark that is not `alive`. If the process is asked to stop
    while it lands, there is no run.
    """
    with logged_apart(), logged_with(cycle=number):
        landing = _step_end("the landing failed", land, alive)
        ran = None if stopping() else _step_end("the run failed", run, alive)
    return Cycle(number, landing, ran)


class CycleFailed(HalfopError):
    """The landing of a cycle failed, or its run, or both: `cycle` has the end of each."""

    def __init__(self, cycle: Cycle) -> None:
        self.cycle, summary = cycle, cycle.summary()
        self.summary, self.transient = summary, bool(summary.extra.get("transient"))
        self.exit_status = cycle.status
        steps = {"the landing": cycle.landing, "the run": cycle.run}
        super().__init__("\n".join(f"{name}: {each.problem}" for name, each in steps.items() if each and each.problem))


class SparkIsGone(TransientError):
    """Spark no longer answers, so no later cycle of this process can do anything."""


def _no_spark(what: str) -> SparkIsGone:
    return SparkIsGone(f"{what}\nSpark no longer answers in this process; start follow again, which is always safe")


def _step_end(what: str, step: Step, alive: Callable[[], bool]) -> StepEnd:
    start = time.perf_counter()
    summary, failure = None, None
    with logged_apart():
        try:
            summary = summary_of(step)
            if summary.status == HalfopError.exit_status and not alive():
                raise _no_spark(what)
        except Exception as error:
            if isinstance(error, (UsageError, SparkIsGone)) or is_mistake(error):
                raise
            if not alive():
                raise _no_spark(f"{what}: {first_line(error)}") from error
            if isinstance(error, WarehouseBusy):  # nothing is wrong but the moment
                log.info("%s, so this turn leaves it to the next", str(error).partition(";")[0])
            else:
                line = "; ".join(str(error).splitlines()) if isinstance(error, HalfopError) else None
                log_failure(log, what, error, line)
            failure = failure_of(error, verbose=True)
    return StepEnd(time.perf_counter() - start, summary, failure)


def spark_answers(spark: SparkSession) -> bool:
    """Returns whether Spark answers, with the part that knows its blocks: no query does without it."""
    try:
        if is_stopped(spark):
            return False
        if is_of_server(spark):
            return len(spark.sql("SELECT 1").collect()) == 1
        return bool(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() > 0)
    except OPERATIONAL_ERRORS:
        return False


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
