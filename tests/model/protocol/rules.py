"""The rules, as small as the protocol needs them: what a run decides follows from its pins alone."""

from __future__ import annotations

from typing import NamedTuple

from model.protocol.log import Commit, Table
from model.protocol.world import LATE, PINNED, SINKS, Bound, Disk, Message, Run

Decision = tuple[int, str]
_FOREVER = 9


def arrived(table: Table, before: int, upto: int) -> set[object]:
    """Returns what landed between two versions."""
    return {row for commit in table[before:upto] for row in commit.rows}


def known_until(progress: Table) -> int:
    """Returns until when ops are known: 0 for a queue of which nothing is, forever for one without a row."""
    return max((row for commit in progress for row in commit.rows), default=_FOREVER)


def plan(bound: Bound, disk: Disk, run: Run) -> tuple[Decision, ...]:
    """Returns the decisions of a run, a row for each message that it looks at."""
    pins = dict(zip(PINNED, run.pins, strict=True))
    new = {n: arrived(disk.table(n), b, pins[n]) for n, b in zip(PINNED, run.before, strict=True) if n != "decisions"}
    decided = disk.decisions[: pins["decisions"]]
    known = known_until(disk.progress[: pins["progress"]])
    clock = min(run.now, known)
    looked_at = (
        (
            number,
            _decision(_Seen.of(run, number, message, new, decided), clock >= LATE, _FOREVER > known >= message.half),
        )
        for number, message in enumerate(bound.messages)
    )
    return tuple((number, decision) for number, decision in looked_at if decision)


class _Seen(NamedTuple):
    """A message as a run sees it: its last decision, whether it is open or arrived, its op, a resume."""

    before: str | None
    half: bool
    op: bool
    resumed: bool

    @classmethod
    def of(cls, run: Run, number: int, message: Message, new: dict[str, set[object]], decided: Table) -> _Seen:
        before, was_open = _last(decided, number), _open(decided, run.run_id - 1, number)
        arrives = message.half in new["halves"] and before in (None, "EARLY_OP")
        resumed = was_open == "RESUMED" or (number in new["resumes"] and before == "DISCARD")
        op = message.op in new["ops"] or was_open == "EARLY_OP"
        return cls(before, was_open in ("WAIT", "RESUMED") or arrives, op, resumed)


def _decision(seen: _Seen, late: bool, landed_past: bool) -> str | None:
    if seen.op and (seen.half or seen.before == "DISCARD"):
        return "COMMIT"
    if seen.op and seen.before in (None, "EARLY_OP"):
        return "REJECTED_OP" if landed_past else "EARLY_OP"
    if seen.resumed:
        return "RESUMED"  # its age counts from the resume
    if seen.half:
        return "DISCARD" if late else "WAIT"
    return None


def _last(decided: Table, number: int) -> str | None:
    found = (row[1] for commit in reversed(decided) for row in commit.rows if row[0] == number)
    return next(found, None)


def _open(decided: Table, run_id: int, number: int) -> str | None:
    """The open set of the run before is in its own rows."""
    rows = (row[1] for commit in decided if commit.number == run_id for row in commit.rows if row[0] == number)
    found = next(rows, None)
    return found if found in ("WAIT", "RESUMED", "EARLY_OP") else None


def rows_of(disk: Disk, run_id: int, decision: str) -> tuple[int, ...]:
    """Returns the messages that a planned run decided so."""
    return tuple(n for commit in disk.decisions if commit.number == run_id for n, d in commit.rows if d == decision)


def discarded(disk: Disk) -> list[int]:
    """Returns the messages whose last decision is DISCARD and that no resume waits for."""
    decided = {number: decision for commit in disk.decisions for number, decision in commit.rows}
    waiting = {row for commit in disk.resumes for row in commit.rows}
    return [n for n, decision in sorted(decided.items()) if decision == "DISCARD" and n not in waiting]


# ---- what `runs` says ----


def last_run(runs: Table) -> tuple[Run, bool] | None:
    """Returns the run that opened last, with what it owes, and whether it has closed."""
    events = [commit.rows for commit in runs]
    run_id = max((run.run_id for event, run in events if event == "OPENED"), default=0)
    mine = {event: run for event, run in events if run.run_id == run_id}
    return (mine.get("CLOSED") or mine["OPENED"], "CLOSED" in mine) if run_id else None


def closing(run: Run, left_out: tuple[str, ...]) -> Commit:
    """Returns the row that closes a run; it owes what sinks were left out."""
    owed = (*run.owed, *[(run.run_id, sink) for sink in SINKS if sink in left_out])
    return Commit(("CLOSED", run._replace(owed=owed)), "close", run.run_id)
