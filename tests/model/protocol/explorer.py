"""Breadth-first search over all states: the first thing that goes wrong is found by its shortest way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from model.protocol.invariants import broken, unfinished
from model.protocol.log import Commit
from model.protocol.others import landed
from model.protocol.steps import Steps
from model.protocol.world import LATE, Bound, Disk, Left, Protocol, World

_NO_KILLS = Left(0, 0, 0)
_MOST_STEPS = 2_000


@dataclass(frozen=True)
class Found:
    """The result of a search. `wrong` is what went wrong first, and `trace` the steps that led there."""

    states: int
    disks: int
    depth: int
    wrong: str | None = None
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = [f"{n:3} {says}" for n, says in enumerate(self.trace, 1)]
        about = f"{self.states} states, {self.disks} of the tables, up to {self.depth} steps deep"
        return "\n".join([about, *steps, *([] if self.wrong is None else [f"  ! {self.wrong}"])])


def beginning(bound: Bound) -> World:
    """Returns the state before anything happens; the bound's `landed` parts have landed."""
    parts = range(1, bound.landed + 1)
    plain, marked = [Commit((k,)) for k in parts][:1], [Commit((k,), "land", k) for k in parts][1:]
    rows, known = (*plain, *marked), tuple(Commit((k,)) for k in (0, *parts)) if bound.landed else ()
    return World(
        Disk(progress=known, halves=rows, ops=rows),
        (None,) * bound.drivers,
        Left(bound.kills, bound.resumes, bound.maintains),
    )


class Explorer:
    """One search, with what it knows of the states that it has seen."""

    def __init__(self, protocol: Protocol, bound: Bound) -> None:
        self._bound, self._steps = bound, Steps(protocol, bound)
        self._alone = _Alone(protocol, bound)
        self._came: dict[int, tuple[int, str]] = {}  # a state's hash: the state before it, and the step

    def explore(self, most: int | None = None) -> Found:
        """Returns after all states, after the first that is wrong, or after about `most`."""
        begin = beginning(self._bound)
        self._came[_key(begin)] = (0, "")
        depth, level = 0, [begin]
        while level and (most is None or len(self._came) < most):
            following: list[World] = []
            for world in level:
                wrong = self._expand(world, following)
                if wrong:
                    return wrong
            depth, level = depth + bool(following), following
        return Found(len(self._came), self._alone.known, depth)

    def _expand(self, world: World, following: list[World]) -> Found | None:
        mine = _key(world)
        for says, after in self._steps.after(world):
            key = _key(after)
            if key in self._came:
                continue
            self._came[key] = (mine, says)
            following.append(after)
            if after.disk != world.disk:
                wrong, more = self._judged(after.disk)
                if wrong:
                    trace = self._trace(key)
                    return Found(len(self._came), self._alone.known, len(trace), wrong, (*trace, *more))
        return None

    def _judged(self, disk: Disk) -> tuple[str | None, tuple[str, ...]]:
        wrong = broken(self._bound, disk)
        return (wrong, ()) if wrong else self._alone.ends(disk)

    def _trace(self, key: int) -> tuple[str, ...]:
        steps: list[str] = []
        while (came := self._came[key])[0]:
            steps.append(came[1])
            key = came[0]
        return tuple(reversed(steps))


class _Alone:
    """The work of a fresh driver on the tables, alone, with nobody left who could disturb it."""

    def __init__(self, protocol: Protocol, bound: Bound) -> None:
        self._bound = bound._replace(clocks=(LATE,), parks=False, runs=2 * bound.runs + bound.landings)
        self._steps = Steps(protocol, self._bound)
        self._known: dict[Disk, str | None] = {}

    @property
    def known(self) -> int:
        return len(self._known)

    def ends(self, disk: Disk) -> tuple[str | None, tuple[str, ...]]:
        """Returns what is wrong at the end, and the steps of the fresh driver."""
        if disk in self._known:
            return self._known[disk], ()
        begun, steps = disk, list[str]()
        jobs = ["starts land"] * (self._bound.landings - landed(disk))
        wrong = None
        for job in (*jobs, "starts reconcile", "starts reconcile"):  # the first may only finish what was open
            disk = self._job(disk, job, steps)
            wrong = wrong or broken(self._bound, disk)
            if wrong:
                break
        wrong = wrong or unfinished(self._bound, disk)
        self._known[begun] = wrong
        return wrong, tuple(f"then, alone: {step}" for step in steps) if wrong else ()

    def _job(self, disk: Disk, starts: str, steps: list[str]) -> Disk:
        world = World(disk, (None,), _NO_KILLS)
        following: Callable[[World], tuple[str, World]] = partial(self._next, starts)
        for _ in range(_MOST_STEPS):
            says, world = following(world)
            steps.append(says)
            if world.processes == (None,) or broken(self._bound, world.disk):
                return world.disk
        raise AssertionError(f"a fresh driver that {starts} does not end")

    def _next(self, starts: str, world: World) -> tuple[str, World]:
        able = [each for each in self._steps.after(world) if world.processes[0] or starts in each[0]]
        return able[0]


def _key(world: World) -> int:
    """A state's hash. It does not matter which of the drivers does what."""
    return hash((world.disk, world.left, tuple(sorted(map(hash, world.processes)))))
