"""Landings, `resume` and `maintain` in atomic steps, as landing/, upkeep/resume.py and upkeep/maintain.py do them."""

from __future__ import annotations

from model.protocol.log import NONE, Commit, Pending, marker
from model.protocol.reconciling import Step
from model.protocol.rules import discarded, last_run
from model.protocol.world import PINNED, Bound, Disk, Process

_BEGUN, _LANDED = "begin", ("halves", "ops")


def landed(disk: Disk) -> int:
    """Returns the last landing that is done."""
    return max((row for commit in disk.progress for row in commit.rows), default=0)


class Land:
    """The next landing. The first comes from files, whose rows land again if it is killed, the others from a store."""

    def step(self, disk: Disk, process: Process) -> Step:
        number: int = process.memory
        if process.at == "look":
            number = landed(disk) + 1
            at = _LANDED[0] if disk.progress else _BEGUN
            return Step(f"lands part {number}", Process("land", at, number))
        if process.at == _BEGUN:
            return _append(disk, "progress", Commit((0,)), Process("land", _LANDED[0], number))
        if process.at in _LANDED:
            return self._rows(disk, process.at, number)
        if process.at == "move":
            return _append(disk, "progress", Commit((number,)), Process("land", "end"))
        return Step("ends", None)

    def _rows(self, disk: Disk, name: str, number: int) -> Step:
        at = "ops" if name == "halves" else "move"
        app = "" if number == 1 else "land"
        if app and marker(disk.table(name), app) >= number:
            return Step(f"finds part {number} in {name}", Process("land", at, number))
        return _append(disk, name, Commit((number,), app, number if app else NONE), Process("land", at, number))


class Resume:
    """All that is discarded is resumed at once."""

    def step(self, disk: Disk, process: Process) -> Step:
        found = discarded(disk) if process.at == "look" else []
        if not found:
            return Step("ends", None)
        return _append(disk, "resumes", Commit(tuple(found)), Process("resume", "end"))


class Maintain:
    """Trims landings of which the last closed run has looked at nothing, and removes their files at once.

    The product keeps files for a week. A trimmed landing is a commit to `halves` without rows.
    """

    def __init__(self, bound: Bound) -> None:
        self._bound = bound

    def step(self, disk: Disk, process: Process) -> Step:
        if process.at == "look":
            return self._look(disk)
        if process.at == "trim":
            return self._trim(disk, process.memory)
        return Step("ends", None)

    def _look(self, disk: Disk) -> Step:
        found = last_run(disk.runs)
        if found is None or not found[1] or found[0].owed:
            return Step("has nothing to maintain", None)
        return Step(f"finds run {found[0].run_id} closed", Process("maintain", "trim", found[0]))

    def _trim(self, disk: Disk, run: tuple[int, ...]) -> Step:
        run_id, _, pins, *_ = run
        upto = dict(zip(PINNED, pins, strict=True))["halves"]  # type: ignore[call-overload]
        looked_at = {n for commit in disk.decisions if commit.number >= run_id for n, _ in commit.rows}
        kept = {self._bound.messages[n].half for n in looked_at}
        new = {row for commit in disk.halves[upto:] for row in commit.rows}
        there = {row for commit in disk.halves[:upto] for row in commit.rows}
        old = frozenset(k for k in there if k < min(kept | new, default=len(disk.halves) + 1)) - disk.removed
        if not old:
            return Step("finds nothing old", None)
        return _append(disk, "halves", Commit((), "trim"), Process("maintain", "vacuum", old))


def _append(disk: Disk, name: str, commit: Commit, after: Process) -> Step:
    """Begins a commit; `after` is the process when it has committed."""
    pending = Pending(name, commit, len(disk.table(name)))
    return Step(f"begins to commit to {name}", after._replace(pending=pending))
