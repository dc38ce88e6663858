"""One cycle: land what is new, then run the rules over what has landed, whatever became of the landing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from halfop.frame.errors import HalfopError, TransientError, UsageError, WarehouseBusy, is_mistake
from halfop.frame.failure import Failure, failure_of
from halfop.frame.log import logged_apart, logged_with
from halfop.frame.summary import Summary
from halfop.warehouse.spark_errors import first_line, log_failure

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


class SparkIsGone(TransientError):
    """Spark no longer answers, so no later cycle of this process can do anything."""


def _no_spark(what: str) -> SparkIsGone:
    return SparkIsGone(f"{what}\nSpark no longer answers in this process; start follow again, which is always safe")


def _step_end(what: str, step: Step, alive: Callable[[], bool]) -> StepEnd:
    start = time.perf_counter()
    summary, failure = None, None
    with logged_apart():
        try:
            summary = step()
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
