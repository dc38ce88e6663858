"""`reconcile` in atomic steps, as runs/reconcile.py, finish.py and owed.py: finish, pay, open, plan, apply, close."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from model.protocol.log import NONE, Commit, Pending, marker
from model.protocol.rules import closing, last_run, plan, rows_of
from model.protocol.world import DECISION_OF, PINNED, SINKS, Bound, Debts, Disk, Process, Protocol, Run

_NO_PINS = (0,) * len(PINNED)


class Call(NamedTuple):
    """The memory of a start of `reconcile`. `staged`: its files are still in the staging folder."""

    parked: bool
    clock: int
    start: int = 0
    run: Run | None = None
    pins: tuple[tuple[str, int], ...] = ()
    due: Debts = ()
    closed: bool = False
    opened: bool = False
    left_out: tuple[str, ...] = ()
    staged: bool = False


class Step(NamedTuple):
    """A step's effect: the process after it (None: it has ended), and the run below which it clears the staging."""

    says: str
    process: Process | None
    clears: int = NONE


class Reconcile:
    """The steps of one job, by the names of the places between them."""

    def __init__(self, protocol: Protocol, bound: Bound) -> None:
        self._protocol, self._bound = protocol, bound
        self._at: dict[str, Callable[[Disk, Call], Step]] = {
            "look": self._look,
            "pay": self._pay,
            "pin": self._pin,
            "open": self._open,
            "back": self._back,
            "plan": self._plan,
            "stage": self._stage,
            "close": self._close,
            "again": self._again,
            **{sink: self._writing(sink) for sink in SINKS},
        }

    def starts(self, start: int) -> Iterator[Process]:
        for parked in (False, True) if self._bound.parks else (False,):
            for clock in self._bound.clocks:
                yield Process("reconcile", "look", Call(parked, clock, start))

    def step(self, disk: Disk, process: Process) -> Step:
        return self._at[process.at](disk, process.memory)

    # ---- begin and end of a call ----

    def _look(self, disk: Disk, call: Call) -> Step:
        found = last_run(disk.runs)
        return self._taken_up(call, *found) if found else _go("finds no run", "pin", call)

    def _taken_up(self, call: Call, run: Run, closed: bool) -> Step:
        """Goes on with a run, after what it owes: it holds sinks in the order of the runs."""
        call = call._replace(run=run, closed=closed and not call.opened)
        due = tuple(debt for debt in run.owed if not (call.parked and debt[1] == "topic"))
        pays = self._protocol.pays_after_opening if call.opened else self._protocol.pays_first
        says = f"finds run {run.run_id}, {_state(closed)}"
        if due and pays:
            return _go(f"{says}, which owes {due}", "pay", call._replace(due=due))
        return _go(says, self._after_look(call), call)

    def _after_look(self, call: Call) -> str:
        return "pin" if call.closed else "plan"

    def _again(self, disk: Disk, call: Call) -> Step:
        """The run that it looked for is finished; another driver may have opened the next one meanwhile."""
        run, closed = _found(disk)
        if call.opened or run.run_id >= self._bound.runs:
            return Step("ends", None)
        if not closed and self._protocol.finishes_first:
            return _go(f"finds run {run.run_id}, open", "plan", call._replace(run=run))
        return _go(f"goes on after run {run.run_id}, {_state(closed)}", "pin", call._replace(run=run))

    # ---- pay ----

    def _pay(self, disk: Disk, call: Call) -> Step:
        assert call.run
        if not call.due:
            return _go("has paid", self._after_look(call), call)
        run_id, sink = debt = call.due[0]
        if not _bodies(disk, self._bound, run_id, sink):
            return Step(f"cannot pay {debt}: bodies are removed", None)
        owed = tuple(each for each in call.run.owed if each != debt)
        after = call._replace(due=call.due[1:], run=call.run._replace(owed=owed))
        return self._write_sink(disk, after, run_id, sink, "pay")

    # ---- open ----

    def _pin(self, disk: Disk, call: Call) -> Step:
        if call.run and call.run.run_id >= self._bound.runs:
            return Step("ends", None)
        pins = call.pins
        while len(pins) < len(PINNED):
            name = self._protocol.pinned[len(pins)]
            pins = (*pins, (name, len(disk.table(name))))
            if self._changes(name):
                break
        says = ", ".join(f"{name} at version {version}" for name, version in pins[len(call.pins) :])
        return _go(f"pins {says}", "open" if len(pins) == len(PINNED) else "pin", call._replace(pins=pins))

    def _changes(self, name: str) -> bool:
        """Returns whether anyone writes to a table; to read one that stands still is no step of its own."""
        bound = self._bound
        lands = bound.landed < bound.landings
        return {"decisions": True, "resumes": bound.resumes > 0, "halves": lands or bound.maintains > 0}.get(
            name, lands
        )

    def _open(self, disk: Disk, call: Call) -> Step:
        last, pins = call.run, tuple(dict(call.pins)[name] for name in PINNED)
        run = Run(1, call.clock, pins, _NO_PINS, ())
        if last:
            run = Run(last.run_id + 1, max(call.clock, last.now), pins, last.pins, last.owed)
        after = call._replace(opened=True, pins=())
        return _once(disk, after, "runs", Commit(("OPENED", run), "open", run.run_id), "back")

    def _back(self, disk: Disk, call: Call) -> Step:
        """Everyone reads back which run has opened, the winner too. If it has closed, its rows are there."""
        return self._taken_up(call, *_found(disk))

    # ---- plan, apply, close ----

    def _plan(self, disk: Disk, call: Call) -> Step:
        run = _run(call)
        call = call._replace(left_out=(), staged=False)
        if marker(disk.decisions, "plan") >= run.run_id:
            return _go(f"finds the plan of run {run.run_id}", "stage", call)
        return _once(disk, call, "decisions", Commit(plan(self._bound, disk, run), "plan", run.run_id), "stage")

    def _stage(self, disk: Disk, call: Call) -> Step:
        """Writes files of the rows that sinks lack, and clears what dead drivers left of earlier runs."""
        run_id = _run(call).run_id
        lacking = [sink for sink in SINKS if self._lacks(disk, call, sink)]
        left_out = tuple(sink for sink in lacking if call.parked and sink == "topic")
        if any(not _bodies(disk, self._bound, run_id, sink) for sink in lacking):
            return Step(f"cannot write run {run_id}: bodies are removed", None)
        call = call._replace(left_out=left_out, staged=lacking != list(left_out))
        says = f"stages run {run_id}" + (f" without {left_out}" if left_out else "")
        return Step(says, Process("reconcile", SINKS[0], call), run_id if call.staged else NONE)

    def _lacks(self, disk: Disk, call: Call, sink: str) -> bool:
        run_id = _run(call).run_id
        has_rows = rows_of(disk, run_id, DECISION_OF[sink])
        return bool(has_rows) and marker(disk.table(sink), self._app(call, run_id)) < run_id

    def _writing(self, sink: str) -> Callable[[Disk, Call], Step]:
        following = (*SINKS[SINKS.index(sink) + 1 :], "close")[0]

        def write(disk: Disk, call: Call) -> Step:
            run_id = _run(call).run_id
            if sink in call.left_out or not self._lacks(disk, call, sink):
                return _go(f"has nothing to write to {sink}", following, call)
            if not call.staged:
                return Step(f"cannot write {sink}: its staged files were cleared", None)
            return self._write_sink(disk, call, run_id, sink, following)

        return write

    def _write_sink(self, disk: Disk, call: Call, run_id: int, sink: str, at: str) -> Step:
        rows = rows_of(disk, run_id, DECISION_OF[sink])
        return _once(disk, call, sink, Commit(rows, self._app(call, run_id), run_id), at)

    def _app(self, call: Call, run_id: int) -> str:
        return {"constant": "sink", "run": f"sink of {run_id}", "start": f"sink by {call.start}"}[self._protocol.app]

    def _close(self, disk: Disk, call: Call) -> Step:
        run = _run(call)
        return _once(disk, call._replace(left_out=(), staged=False), "runs", closing(run, call.left_out), "again")


def _once(disk: Disk, call: Call, name: str, commit: Commit, at: str) -> Step:
    """Begins a commit that happens at most once for a run, unless the table has it."""
    table = disk.table(name)
    if marker(table, commit.app) >= commit.number:
        return _go(f"finds run {commit.number} in {name}", at, call)
    pending = Pending(name, commit, len(table))
    return Step(f"begins to commit run {commit.number} to {name}", Process("reconcile", at, call, pending))


def _go(says: str, at: str, call: Call) -> Step:
    return Step(says, Process("reconcile", at, call))


def _run(call: Call) -> Run:
    assert call.run
    return call.run


def _found(disk: Disk) -> tuple[Run, bool]:
    found = last_run(disk.runs)
    assert found, "runs has lost its rows"
    return found


def _bodies(disk: Disk, bound: Bound, run_id: int, sink: str) -> bool:
    """Returns whether the messages that a sink is due can be read; a discarded one has its body with it."""
    discarded = {row for commit in disk.discards for row in commit.rows}
    due = rows_of(disk, run_id, DECISION_OF[sink])
    return all(bound.messages[n].half not in disk.removed or n in discarded for n in due)


def _state(closed: bool) -> str:
    return "closed" if closed else "open"
