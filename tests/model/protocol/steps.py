"""The states that may follow a state: a job starts, does a step, or is killed; a JVM goes on alone after its Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from model.protocol.log import refused, with_commit
from model.protocol.others import Land, Maintain, Resume, landed
from model.protocol.reconciling import Call, Reconcile, Step
from model.protocol.rules import discarded, last_run
from model.protocol.world import Bound, Disk, Left, Process, Protocol, World

# The locks that a job holds; on a disk without a lock it holds none.
GROUPS = {"reconcile": {"run"}, "land": {"landing"}, "resume": {"landing"}, "maintain": {"landing", "run"}}
Successor = tuple[str, World]


class Steps:
    """All that may happen under a protocol within bounds."""

    def __init__(self, protocol: Protocol, bound: Bound) -> None:
        self._protocol, self._bound = protocol, bound
        self._reconcile = Reconcile(protocol, bound)
        self._jobs: dict[str, Callable[[Disk, Process], Step]] = {
            "reconcile": self._reconcile.step,
            "land": Land().step,
            "resume": Resume().step,
            "maintain": Maintain(bound).step,
        }

    def after(self, world: World) -> Iterator[Successor]:
        """Returns every state that one atomic step leads to, with a text of the step."""
        for place, process in enumerate(world.processes):
            name = f"driver {place + 1}"
            if process is None:
                for says, started, left in self._starts(world):
                    yield f"{name} {says}", _with(world, place, started)._replace(left=left)
                continue
            for says, after in self._of(world, place, process):
                yield f"{name} {says}", after
            if world.left.kills and process.job != "jvm":
                left = world.left._replace(kills=world.left.kills - 1)
                yield f"{name} is killed", _with(world, place, self._orphan(process))._replace(left=left)

    def _of(self, world: World, place: int, process: Process) -> Iterator[Successor]:
        if process.job == "jvm":
            yield "'s JVM ends", _with(world, place, None)
        if process.pending:
            yield self._committed(world, place, process)
        elif process.at == "vacuum":
            removed = world.disk.removed | process.memory
            after = world._replace(disk=world.disk._replace(removed=removed))
            yield f"removes the files of landing {sorted(process.memory)}", _with(after, place, None)
        else:
            step = self._jobs[process.job](world.disk, process)
            yield step.says, _with(_cleared(world, place, step.clears), place, step.process)

    # ---- commits ----

    def _committed(self, world: World, place: int, process: Process) -> Successor:
        pending = process.pending
        assert pending
        table, what = world.disk.table(pending.table), f"{pending.table}: {pending.commit.rows}"
        after = None if process.job == "jvm" or process.at == "end" else process._replace(pending=None)
        if pending.place is None and refused(table, pending, self._protocol.whatever_number):
            return f"is refused at {pending.table}, its rows are there", _with(world, place, after)
        if not self._protocol.atomic and pending.place is None:
            looked = process._replace(pending=pending._replace(place=len(table)))
            return f"sees no version {len(table)} of {pending.table}", _with(world, place, looked)
        at = len(table) if pending.place is None else pending.place
        disk = world.disk.put(pending.table, with_commit(table, pending.commit, at))
        return f"commits version {at} of {what}", _with(world._replace(disk=disk), place, after)

    def _orphan(self, process: Process) -> Process | None:
        """The JVM of a killed Python finishes the commit that it is at. A lock of the JVM is held until then."""
        if self._protocol.lock == "none" or process.pending is None:
            return None
        groups = GROUPS[process.job] if self._protocol.lock == "jvm" else frozenset[str]()
        return Process("jvm", "", frozenset(groups), process.pending)

    # ---- starts ----

    def _starts(self, world: World) -> Iterator[tuple[str, Process, Left]]:
        left, disk = world.left, world.disk
        if self._is_free(world, "reconcile") and self._has_work(disk):
            start = left.started + 1 if self._protocol.app == "start" else 0
            for process in self._reconcile.starts(start):
                call: Call = process.memory
                says = f"starts reconcile at instant {call.clock}" + (" with --park-sink topic" if call.parked else "")
                yield says, process, left._replace(started=start)
        if landed(disk) < self._bound.landings and self._is_free(world, "land"):
            yield "starts land", Process("land", "look"), left
        if left.resumes and discarded(disk) and self._is_free(world, "resume"):
            yield "starts resume", Process("resume", "look"), left._replace(resumes=left.resumes - 1)
        if left.maintains and disk.decisions and self._is_free(world, "maintain"):
            yield "starts maintain", Process("maintain", "look"), left._replace(maintains=left.maintains - 1)

    def _has_work(self, disk: Disk) -> bool:
        found = last_run(disk.runs)
        if found is None:
            return bool(disk.halves or disk.ops)
        run, closed = found
        return not closed or run.run_id < self._bound.runs or bool(run.owed)

    def _is_free(self, world: World, job: str) -> bool:
        if self._protocol.lock == "none":
            return True
        held = {group for process in world.processes if process for group in _held(process)}
        return not held & GROUPS[job]


def _held(process: Process) -> set[str]:
    return process.memory if process.job == "jvm" else GROUPS[process.job]


def _with(world: World, place: int, process: Process | None) -> World:
    processes = (*world.processes[:place], process, *world.processes[place + 1 :])
    return world._replace(processes=processes)


def _cleared(world: World, by: int, below: int) -> World:
    """Staged files of earlier runs are removed, also those of a driver that still needs them."""
    if not below:
        return world
    others = [p if n == by else _without_files(p, below) for n, p in enumerate(world.processes)]
    return world._replace(processes=tuple(others))


def _without_files(process: Process | None, below: int) -> Process | None:
    if process is None or process.job != "reconcile":
        return process
    call: Call = process.memory
    lost = call.staged and call.run is not None and call.run.run_id < below
    return process._replace(memory=call._replace(staged=False)) if lost else process
