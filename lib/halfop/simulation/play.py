"""One variant's runs over a replayed history."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from pyspark.sql import Row
from pyspark.sql import functions as F

from halfop.planning.run import INPUTS, Run, counts_delivered
from halfop.planning.stages import arrived, plan_of
from halfop.settings.model import RuleSettings, Settings
from halfop.simulation.outcome import Outcome, Point, outcome
from halfop.simulation.replay import Replay
from halfop.warehouse.tables import NO_TABLE
from halfop.warehouse.where import equal

log = logging.getLogger("halfop.simulate")

_LOG_EVERY = 10.0  # seconds


class Play:
    """Runs as `reconcile` makes them, without what a run writes besides its decisions."""

    def __init__(
        self, name: str, rules: RuleSettings, replay: Replay, go_on: Callable[[], None] = lambda: None
    ) -> None:
        self._name, self._replay, self._go_on = name, replay, go_on
        self._settings = Settings(rules=rules.model_copy(update={"ask": True}))
        self._delivered = counts_delivered(rules.count, replay.landed.progress)
        self._schedule = replay.landed.schedule
        self._pins = dict.fromkeys(INPUTS, NO_TABLE)
        self._run_id = 0
        self._points: list[Point] = []

    def outcome(self) -> Outcome:
        """The figures of all runs."""
        self.play()
        last_run = self._run_id
        if any(point.discards for point in self._points):
            self._hear_all()
        return outcome(self._name, self._settings.rules, self._replay, self._points, last_run)

    def play(self) -> None:
        """Every run of the schedule that may find something."""
        self._replay.make("decisions")
        logged = time.monotonic()
        for step in self._schedule.steps:
            self._go_on()
            if self._replay.lands(step) or self._open:
                self._step(step)
            if time.monotonic() - logged > _LOG_EVERY:
                logged = time.monotonic()
                log.info("%s: %d of %d runs", self._name, step, len(self._schedule.instants))

    @property
    def _open(self) -> bool:
        return bool(self._points) and self._points[-1].carried > 0

    def _step(self, step: int) -> None:
        now = self._schedule.at(step)
        counts = self._run(step)
        self._points.append(Point.of(now, counts))
        if not self._points[-1].checks or not (self._replay.landed.any_answers or self._counts_delivered):
            return
        asked = self._replay.read("decisions", where=equal("run_id", self._run_id)).where(F.col("decision") == "CHECK")
        if self._counts_delivered:
            within = self._settings.rules.transaction_check_interval
            asked = self._replay.deliver(asked, self._run_id, step, within)
        if self._replay.landed.any_answers:
            self._replay.release(asked, now)

    @property
    def _counts_delivered(self) -> bool:
        """Returns whether a question may count only when it is delivered."""
        return self._settings.rules.count == "delivered" or any(self._delivered.values())

    def _hear_all(self) -> None:
        """Makes a run after the last one, which knows all that history knows."""
        self._replay.release_all()
        self._run(self._schedule.beyond)

    def _run(self, step: int) -> list[Row]:
        self._run_id += 1
        pins, before = self._replay.pins(step), self._pins
        now = self._schedule.at(min(step, len(self._schedule.instants)))
        run = Run(self._run_id, now, pins, before, self._settings, delivered=self._delivered)
        with arrived(self._replay, run) as arrivals:
            plan_of(arrivals).commit()
        self._pins = pins
        decided = self._replay.read("decisions", where=equal("run_id", self._run_id))
        return decided.groupBy("decision").agg(F.count("*").alias("rows")).collect()
