"""Runs and landings under every fault at once: jobs of several drivers, switched at every call of the warehouse.

Runs, `resume`, `end`, `maintain` and landings of files are halfop's own; other landings are played, in the order of its
commits. The tables are in memory, the clock is the world's. What happens follows from a list of steps, each with a seed
of its own, so a history can be played again, and made shorter.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from functools import partial
from itertools import zip_longest
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from halfop.columns.keys import key_of
from halfop.ending.apply import ApplyRequest, apply
from halfop.ending.plan import COMMIT, ROLLBACK, EndingPlan, Kind
from halfop.ending.selection import Selection, plan
from halfop.frame.errors import TransientError, WarehouseBusy
from halfop.landing import progress
from halfop.landing.files import land
from halfop.landing.files.land import FilesRequest, land_files
from halfop.runs import finish, reconcile, record
from halfop.runs.record import last_run, refuse_held
from halfop.upkeep import maintain, resume
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.spark_errors import OPERATIONAL_ERRORS
from halfop.warehouse.tables import NO_TABLE, Marker
from halfop.warehouse.upkeep import TableUpkeep
from model import fleet as f
from model import reference as m
from model.strategies import Land, charters, copied_histories, histories
from pyspark.sql import SparkSession

from support import rows as r
from support.simulated.shortest import Step, drawn, played
from support.simulated.shortest import fails as fails_in
from support.simulated_runs.drivers import Driver
from support.simulated_runs.landings import LANDED, Landing, Part, commits_of, request_of
from support.simulated_runs.memory import Answer, Calls, MemoryWarehouse, Tables
from support.simulated_runs.reference import (
    all_landed,
    decided_as_pinned,
    ended_as_said,
    highest_pin,
    landed_as_told,
    pinned_in_order,
    runs_in_order,
    written_as_decided,
)

# How often each happens, of all together.
WEIGHTS = {
    "reconciles": 12,
    "lands": 10,
    "resumes": 2,
    "answers": 5,
    "goes_on": 60,
    "passes": 10,
    "delivers": 4,
    "maintains": 4,
    "cleans_up": 1,
    "is_killed": 5,
    "crashes": 1,
    "clock_jumps": 1,
}
FAULTS = {"commit_refused": 4, "commit_unanswered": 4, "disk_fails": 4, "listing_is_late": 3}
_OFTEN = (0.1, 1, 1, 3)  # of them in one seed
_ALWAYS = {kind: WEIGHTS[kind] for kind in ("lands", "goes_on")}
_CLOCKS: Sequence[Any] = (reconcile, finish, record, resume, maintain)
_BY_FILES = 0.4  # of all worlds
# How many calls a driver goes on, at most, and the verb before which it stops: most is decided around commits and pins.
_STRIDES = ((1, ""), (5, ""), (40, ""), (400, "version"), *[(400, "commit"), (400, "")] * 3)
_CALLS_LATER = (1, 1, 2, 4, 8)
_DRIVERS = 3
STEPS = 60  # of a history


def history(seed: int, steps: int = STEPS) -> list[Step]:
    """The steps of a seed. Some seeds have much of one thing, and hardly any of another."""
    random = Random(seed)
    weights = {kind: weight * random.choice(_OFTEN) for kind, weight in (WEIGHTS | FAULTS).items()} | _ALWAYS
    return drawn(seed, weights, steps)


class Sessions:
    """A session of Spark for each driver, as it would have in a process of its own."""

    def __init__(self, spark: SparkSession) -> None:
        self.own = spark
        self.free = [spark.newSession() for _ in range(_DRIVERS + 1)]


class _Fault(NamedTuple):
    """What comes with the last of so many calls that can meet it, of all tables or of those that a run writes to."""

    calls: int
    sinks: bool


class _Calls(Calls):
    """A driver's calls of its warehouse: each is a moment at which another driver goes on, and at which faults come."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.driver: Driver | None = None
        self._verb = self._name = ""

    def enter(self, verb: str, name: str) -> None:
        assert self.driver is not None
        self.driver.waits(verb)
        self._world.hears(self.driver, name)
        self._verb, self._name = verb, name
        if verb != "commit" and self._meets("disk_fails"):
            raise OSError(f"{name}: the disk has failed")

    def is_late(self, name: str) -> bool:
        """Only a look for a version is late, and one for what has landed only if that would go back.

        What else a late listing would do is not promised.
        """
        landed, tables = name == PROGRESS or name in LANDED, self._world.tables
        if self._verb != "version" or (landed and tables.newest(name) > highest_pin(tables, name)):
            return False
        return self._meets("listing_is_late")

    def commits(self, name: str) -> Answer:
        if self._meets("commit_refused"):
            return "refused"
        return "unanswered" if self._meets("commit_unanswered") else "made"

    def committed(self, name: str, version: int) -> None:
        """The commit is made, and its driver does not know it yet."""
        self._world.unheard[self.driver] = name, version
        runs_in_order(self._world.tables)
        assert self.driver is not None
        self.driver.waits()
        self._world.unheard.pop(self.driver, None)

    def _meets(self, fault: str) -> bool:
        waits = self._world.faults.get(fault)
        if waits is None or (waits.sinks and self._name not in _SINKS):
            return False
        if waits.calls > 1:
            self._world.faults[fault] = waits._replace(calls=waits.calls - 1)
            return False
        assert self.driver is not None
        del self._world.faults[fault]
        self.driver.disturbed = True
        return True


class World:
    """The tables, the drivers at work on them, and what is still to land."""

    def __init__(
        self, sessions: Sessions, rules: m.Settings, parts: Sequence[Part], folder: Path | None, random: Random
    ) -> None:
        """In a `folder` the parts come as files. `random` draws how many drivers there are, and their habits."""
        self._sessions, self._random, self._rules, self._parts = sessions, Random(), rules, parts
        self._folder, self._drivers = folder, random.randint(1, _DRIVERS)  # that reconcile at the same time, at most
        self._parked, self._most = random.choice(_PARKED), random.choice(_MOST)
        given = r.settings(rules)
        self._settings = given.model_copy(update={"topics": given.topics.model_copy(update={"threads": 1})})
        self.tables = Tables()
        self.faults = dict[str, _Fault]()
        self.unheard: dict[Driver | None, tuple[str, int]] = {}
        self.now = parts[0].at
        self._landed = 0
        self.landings: dict[datetime, Landing] = {}  # by their instants
        self._tried: list[Part] = []  # of landings: one after which no progress is known may share its instant
        self._landing: Landing | None = None  # that is at work
        self._plan: EndingPlan | None = None
        self._instants: dict[int, int] = {}  # of landings that go on with theirs
        self._at_work: dict[Driver, SparkSession] = {}

    def clock(self) -> datetime:
        return r.instant(self.now)

    # ---- drivers ----

    def _starts(self, name: str, job: Callable[[MemoryWarehouse], Any]) -> Driver | None:
        if not self._sessions.free:
            return None
        calls, spark = _Calls(self), self._sessions.free.pop()
        warehouse = MemoryWarehouse(spark, "memory:/warehouse", tables=self.tables, calls=calls)
        calls.driver = Driver(name, partial(job, warehouse))
        self._at_work[calls.driver] = spark
        return calls.driver

    def _is_at_work(self, *names: str) -> int:
        return sum(driver.name in names for driver in self._at_work)

    def _ends(self, driver: Driver) -> None:
        """Frees what a driver held whose job has ended, and raises what should not have happened."""
        spark = self._at_work.pop(driver)
        self._sessions.free.append(spark)
        self.unheard.pop(driver, None)
        try:
            summary = driver.future.result()
        except OPERATIONAL_ERRORS as error:
            if not driver.disturbed or not isinstance(error, OSError | TransientError):
                raise AssertionError(f"{driver.name} failed otherwise than by what it met: {error}") from error
        else:
            # a plan may be of messages that stand otherwise now
            ends_well = not summary or summary.status in ((0, 5) if driver.name == "end" else (0,))
            assert driver.disturbed or ends_well, f"{driver.name}: {summary}"

    def _kill(self, driver: Driver) -> None:
        driver.kill()
        self._ends(driver)

    def hears(self, driver: Driver, name: str) -> None:
        """Called when a driver looks at a table: it knows of commits there whose own drivers do not yet."""
        self.unheard = {each: of for each, of in self.unheard.items() if each is driver or of[0] != name}

    # ---- what happens ----

    def plays(self, step: Step) -> None:
        """Does one step."""
        self._random.seed(step.seed)
        if step.what in FAULTS:
            self.faults[step.what] = _Fault(self._random.choice(_CALLS_LATER), self._random.random() < 0.5)
        else:
            getattr(self, f"_{step.what}")()

    def _reconciles(self) -> None:
        parked, most = self._random.choice(self._parked), self._random.choice(self._most)
        if self._is_at_work("reconcile") < self._drivers:
            self._starts("reconcile", partial(self._reconcile, parked, most))

    def _reconcile(self, parked: frozenset[str], most: int | None, warehouse: MemoryWarehouse) -> Any:
        return reconcile.reconcile(warehouse, reconcile.Request(self._settings, max_rows=most, parked=parked))

    def _lands(self) -> None:
        if self._is_at_work("land", "resume", "end") or self._landed == len(self._parts):
            return
        number, part = self._landed, self._parts[self._landed]
        self.now = max(self.now, part.at)
        if self._folder is None:
            self._landing = Landing(part, by_files=False)
            self._starts("land", partial(self._land, number, self._landing))
        else:
            known = self._random.choice((None, part.at, part.at - 7_000))
            self._landing = Landing(part, by_files=True, known_until=known)
            self._starts("land", partial(self._land_files, number, request_of(self._folder, number, self._landing)))

    def _land(self, number: int, landing: Landing, warehouse: MemoryWarehouse) -> None:
        """A landing that was killed is begun again, and a table has its rows once."""
        if number not in self._instants:
            newest = max(self._instants.values(), default=0)
            self._instants[number] = max(self.now, newest + 1)
            self.lands_at(r.instant(self._instants[number]))
        with warehouse.for_few_rows():
            for name, rows, app in commits_of(landing.part, self._instants[number]):
                warehouse.make(name)
                warehouse.commit(name, r.frame(warehouse, name, rows), Marker(app, number))
        self._landed = number + 1

    def _land_files(self, number: int, request: FilesRequest, warehouse: MemoryWarehouse) -> Any:
        summary = land_files(warehouse, request, logging.getLogger("halfop.land"))
        self._landed = number + 1
        return summary

    def lands_at(self, instant: datetime) -> None:
        """Called when the landing at work has its instant."""
        assert self._landing is not None
        before = max((row["landed_at"] for row in self.tables.rows(PROGRESS)), default=r.EPOCH)
        assert instant > before, f"a landing of {instant} is not later than that of {before}"
        self.landings[instant] = self._landing
        self._tried.append(self._landing.part)

    def _resumes(self) -> None:
        given_up = self.tables.rows("trans_check_max_time")
        if given_up and not self._is_at_work("land", "resume", "end"):
            row = self._random.choice(given_up)
            selection = resume.ResumeSelection([key_of(row)])
            self._starts("resume", lambda warehouse: resume.resume(warehouse, selection)[0])

    def _answers(self) -> None:
        """An operator says of some messages how they end, or goes on with what he said before."""
        if self._folder is None or self._is_at_work("land", "resume", "end"):
            return
        kind, some = self._random.choice(_ENDS), self._random.choice(_SOME)
        goes_on = self._plan is not None and self._random.random() < 0.5
        selection = (
            None if goes_on else Selection(kind, where=f"{some} AND queue_offset < {1 << 62}", min_age=timedelta(0))
        )
        self._starts("end", partial(self._end, selection))

    def _end(self, selection: Selection | None, warehouse: Any) -> Any:
        if selection is not None:
            self._plan = plan(warehouse, selection)[1]
        assert self._plan is not None
        brokers = sorted(set(self._plan.rows["broker_name"].to_pylist()))
        return apply(warehouse, ApplyRequest(self._plan, brokers, len(self._plan)))[0]

    def _goes_on(self) -> None:
        if not self._at_work:
            self._random.choice((self._lands, self._reconciles))()
        if not self._at_work:
            return
        driver = self._random.choice(list(self._at_work))
        most, until = self._random.choice(_STRIDES)
        for _ in range(most):
            driver.goes_on()
            if driver.ended:
                self._ends(driver)
                break
            if driver.next_call == until:
                break

    def _passes(self) -> None:
        self.now += self._random.choice((0, 1, 1_000, 6_001, 31_000, 61_000, 3_600_001))

    def _clock_jumps(self) -> None:
        self.now += self._random.choice((-60_000, -1, 3_600_000))

    def _delivers(self) -> None:
        """A gateway has sent some questions, one of them twice."""
        asked = self.tables.rows("check_requests")
        asked = [row for row in asked if self._random.random() < 0.5]
        if asked:
            sent = {"outcome": "SENT", "at": self.clock()}
            named = [{c: row[c] for c in ("request_id", "broker_name", "producer_group")} | sent for row in asked]
            self._quiet.commit("check_deliveries", [*named, named[0]])

    def _maintains(self) -> None:
        if not self._is_at_work("maintain"):
            self._starts("maintain", self._maintain)

    def _maintain(self, warehouse: MemoryWarehouse) -> Any:
        """Joins files; nothing is old enough to be trimmed."""
        try:
            return maintain.maintain(warehouse, self._settings)[0]
        except WarehouseBusy:  # a run is open, or owes something
            return None

    def _cleans_up(self) -> None:
        """The logs of tables forget what is older than the last run's pins, and which no run that is open needs."""
        try:
            found = last_run(self._quiet)
            refuse_held(found, "")
        except WarehouseBusy:
            return
        if found is not None:
            for name, pin in found[0].inputs.items():
                if name != "decisions" and pin != NO_TABLE:
                    self.tables.first_kept[name] = pin

    def _is_killed(self) -> None:
        if self._at_work:
            self._kill(self._random.choice(list(self._at_work)))

    def _crashes(self) -> None:
        """The machine ends with all drivers; a commit of which nobody knows may be lost."""
        for name, version in reversed(self.unheard.values()):
            if version == self.tables.newest(name) > highest_pin(self.tables, name) and self._random.random() < 0.5:
                self.tables.take_back(name, version)
        for driver in list(self._at_work):
            self._kill(driver)

    @property
    def _quiet(self) -> MemoryWarehouse:
        return MemoryWarehouse(self._sessions.own, "memory:/warehouse", tables=self.tables)

    # ---- the end ----

    def finishes(self) -> None:
        """Nothing fails any more: the rest lands, and a fresh driver ends what was left; then all is compared."""
        self.faults.clear()
        for driver in list(self._at_work):
            self._kill(driver)
        jobs = [self._lands] * (len(self._parts) - self._landed) + [self._runs_alone] * 2
        jobs += [self._answers, self._answers, self._maintains, self._runs_alone]
        for starts in jobs:
            starts()
            for driver in list(self._at_work):
                while not driver.ended:
                    driver.goes_on()
                self._ends(driver)
        last = last_run(self._quiet)
        assert last is not None
        assert last[1], "the last run is still open"
        assert not last[0].owed, "something is still owed"
        pinned_in_order(self.tables, self.landings)
        pins = last[0].inputs
        assert all(self.tables.newest(name) == pins[name] for name in pins if name != "decisions"), "a landing was left"
        all_landed(self.tables, self._parts, self._tried)
        if self._folder is not None:
            landed_as_told(self.tables, self._parts, self.landings)
            ended_as_said(self.tables)
        written_as_decided(self.tables)
        decided_as_pinned(self.tables, self._quiet, self._rules)

    def _runs_alone(self) -> None:
        self.now += 1
        self._starts("reconcile", partial(self._reconcile, frozenset(), None))


_ENDS: Sequence[Kind] = (COMMIT, ROLLBACK)
_SOME = ("queue_offset % 2 = 0", "queue_offset % 2 = 1", "queue_offset >= 0")
_SINKS = frozenset(("real_topics", "check_requests", "rejected", "trans_check_max_time"))
# Habits of a world's drivers: the sinks that a call parks, and the rows of a slice.
_NONE, _ONE = frozenset[str](), frozenset(("real_topics",))
_PARKED = ((_NONE,), (_NONE, _NONE, _ONE, _SINKS), (_NONE, _SINKS))
_MOST: Sequence[Sequence[int | None]] = ((None,), (None, None, 2, 5), (2,))


def _drawn(seed: int) -> tuple[m.Settings, list[Part]]:
    """Settings, and the landings of a few histories side by side."""
    charter = max(f.generated(charters(3, 1), 4, seed), key=lambda each: len(each.phases))
    strategy = histories(charter) if seed % 2 else copied_histories(charter)
    ships = [ship for ship in f.with_gateways(f.generated(strategy, 8, seed), seed) if _is_plain(ship)]
    landings = [[step for step in ship.history.steps if isinstance(step, Land)] for ship in ships]
    return charter.settings, _staggered(landings, Random(seed))


def _staggered(landings: Sequence[Sequence[Land]], random: Random) -> list[Part]:
    """The landings of histories of which some begin, with their queues, when the others have landed for a while."""
    later = [[None] * random.choice((0, 0, 1, 2)) + list(each) for each in landings]
    steps = [[step for step in every if step is not None] for every in zip_longest(*later)]
    return [Part(every) for every in steps if every]


def _is_plain(ship: f.Ship) -> bool:
    """Returns whether no landing of a history is refused."""
    return not ship.played.refused and not ship.played.model.refused_queues


@contextmanager
def begun(sessions: Sessions, seed: int) -> Iterator[World | None]:
    """A world with empty tables; None if the seed has nothing that may land."""
    rules, parts = _drawn(seed)
    if not parts:
        yield None
        return
    with ExitStack() as entered:
        folder = None
        random = Random(seed)
        if random.random() < _BY_FILES:
            parts = [part.of_files for part in parts]
            folder = Path(entered.enter_context(tempfile.TemporaryDirectory(prefix="halfop-simulated-")))
        world = World(sessions, rules, parts, folder, random)
        for module in _CLOCKS:
            entered.enter_context(patch.object(module, "wall_clock", world.clock))
        entered.enter_context(patch.object(maintain, "_MANY_FILES", 2))
        # properties, and files that no version needs, are Delta's
        entered.enter_context(patch.multiple(TableUpkeep, set=lambda *_: None, removable=lambda *_: 0))
        entered.enter_context(patch.object(progress, "time", SimpleNamespace(time_ns=lambda: world.now * 1_000_000)))

        def next_instant(warehouse: MemoryWarehouse) -> int:
            at = progress.next_instant(warehouse)
            world.lands_at(progress.instant(at) or r.EPOCH)
            return at

        entered.enter_context(patch.object(land, "next_instant", next_instant))
        try:
            yield world
        finally:
            for driver in list(world._at_work):
                driver.kill()
                sessions.free.append(world._at_work.pop(driver))


def play(sessions: Sessions, seed: int, steps: Sequence[Step]) -> int:
    """Plays a history; returns the number of its runs. Raises Failed."""
    return played(seed, steps, partial(_play, sessions, seed))


def fails(sessions: Sessions, seed: int, steps: Sequence[Step]) -> bool:
    """Returns whether something does not hold in a history. A Spark that has died is no finding: it raises."""
    found = fails_in(steps, partial(_play, sessions, seed))
    assert sessions.own.range(1).count() == 1
    return found


def _play(sessions: Sessions, seed: int, steps: Sequence[Step]) -> int:
    with begun(sessions, seed) as world:
        if world is None:
            return 0
        for step in steps:
            world.plays(step)
        world.finishes()
        return len(world.tables.rows("runs")) // 2
