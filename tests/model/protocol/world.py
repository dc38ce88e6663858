"""The parts of the model: the tables on the disk, the processes, the protocol's choices, and the bounds."""

from __future__ import annotations

from typing import Any, NamedTuple

from model.protocol.log import Pending, Table

# What a run reads, in the order in which it pins; as INPUTS of the product, without tables that change nothing here.
PINNED = ("progress", "ops", "halves", "resumes", "decisions")
SINKS = ("topic", "discards")
DECISION_OF = {"topic": "COMMIT", "discards": "DISCARD"}
EARLY, LATE = 1, 2  # instants; a message that nothing has ended is discarded from LATE on
NEVER = None
Debts = tuple[tuple[int, str], ...]


class Message(NamedTuple):
    """A half message: the landing that brings it, and the one that brings its op, which says COMMIT. `NEVER`: no op.

    Its op was stored before the end of that landing; an op of the second landing comes before LATE.
    """

    half: int
    op: int | None


class Disk(NamedTuple):
    """All tables, and the landings whose half messages a VACUUM has removed."""

    progress: Table = ()
    halves: Table = ()
    ops: Table = ()
    resumes: Table = ()
    decisions: Table = ()
    runs: Table = ()
    topic: Table = ()
    discards: Table = ()
    removed: frozenset[int] = frozenset()

    def table(self, name: str) -> Table:
        found: Table = getattr(self, name)
        return found

    def put(self, name: str, table: Table) -> Disk:
        changed: dict[str, Any] = {name: table}
        return self._replace(**changed)


class Run(NamedTuple):
    """A run as `runs` records it: pins of this run and of the run before are table versions in the order of PINNED."""

    run_id: int
    now: int
    pins: tuple[int, ...]
    before: tuple[int, ...]
    owed: Debts


class Process(NamedTuple):
    """A job at work: where it is, its memory, and a commit that has begun. A kill removes all of it."""

    job: str
    at: str
    memory: Any = None
    pending: Pending | None = None


class Left(NamedTuple):
    """How often something may still happen."""

    kills: int
    resumes: int
    maintains: int
    started: int = 0  # counted only if an app id is made of it


class World(NamedTuple):
    """A state of the model. `processes` has a place for each driver; None is a driver that does nothing."""

    disk: Disk
    processes: tuple[Process | None, ...]
    left: Left


class Protocol(NamedTuple):
    """How the jobs and the disk behave. The product's way is the default; everything else is a known mistake."""

    atomic: bool = True  # else a commit looks and then renames
    whatever_number: bool = False  # a commit is refused as by Delta's Spark connector, not as by Kernel
    lock: str = "none"  # or "jvm", or "python": the lock is free before its JVM has stopped committing
    pinned: tuple[str, ...] = PINNED  # the order
    app: str = "constant"  # or "run", or "start": what a sink's app id is made of
    pays_first: bool = True  # what earlier runs owe, before it goes on with a run that it has found
    pays_after_opening: bool = True  # the same when it has opened a run, or another driver has
    finishes_first: bool = True  # another driver's run, before it opens one


class Bound(NamedTuple):
    """Limits of what may happen."""

    messages: tuple[Message, ...]
    landings: int = 2
    landed: int = 0  # landings that are done at the beginning
    runs: int = 2
    drivers: int = 2
    kills: int = 1
    resumes: int = 0
    maintains: int = 0
    parks: bool = False
    clocks: tuple[int, ...] = (EARLY, LATE)
