"""The metrics of a cycle: those of its landing and its run as their own jobs leave them, and the process's own."""

from __future__ import annotations

from halfop.follow.cycle import Cycle, StepEnd
from halfop.frame import metrics
from halfop.frame.prometheus import Family, Histogram, Sample
from halfop.frame.summary import Summary
from halfop.planning.digest import LATENCIES, Latency
from halfop.settings.model import MetricsSettings


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
