"""Conditions that must hold in every state, and what a fresh driver alone must reach from it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from model.protocol.rules import last_run, plan, rows_of
from model.protocol.world import DECISION_OF, LATE, SINKS, Bound, Disk, Run


def broken(bound: Bound, disk: Disk) -> str | None:
    """Returns what is wrong with the tables in a state that any moment may see; None if nothing is."""
    wrong = chain(
        _twice(disk), _orders(disk), _runs(disk), _applied(disk), _unfounded(bound, disk), _other_plans(bound, disk)
    )
    return next(wrong, None)


def unfinished(bound: Bound, disk: Disk) -> str | None:
    """Returns what is wrong with the tables after a fresh driver has ended all that was left; None if nothing is."""
    found = last_run(disk.runs)
    if found is None or not found[1] or found[0].owed:
        return f"the last run is still {'open' if found and not found[1] else 'owed something'}"
    delivered = [row for commit in disk.topic for row in commit.rows]
    resumed = {row for commit in disk.resumes for row in commit.rows}
    for number, message in enumerate(bound.messages):
        if message.op and delivered.count(number) != 1:
            return f"lost: message {number} is committed, and {delivered.count(number)} times in its topic"
        given_up = number in [row for commit in disk.discards for row in commit.rows]
        if not message.op and not given_up and number not in resumed:
            return f"lost: message {number} has no op and was never discarded"
    return None


def _twice(disk: Disk) -> Iterator[str]:
    for sink in SINKS:
        rows = [row for commit in disk.table(sink) for row in commit.rows]
        yield from (f"twice: message {row} in {sink}" for row in rows if rows.count(row) > 1)


def _orders(disk: Disk) -> Iterator[str]:
    for name in ("decisions", *SINKS):
        runs = [commit.number for commit in disk.table(name)]
        if runs != sorted(set(runs)):
            yield f"out of order: {name} has the runs {runs}"


def _runs(disk: Disk) -> Iterator[str]:
    """Each run opens once, closes once, and before the next one opens."""
    events = [(run.run_id, event) for event, run in (commit.rows for commit in disk.runs)]
    wanted = [(n // 2 + 1, "CLOSED" if n % 2 else "OPENED") for n in range(len(events))]
    if events != wanted:
        yield f"runs out of order: {', '.join(f'{event} {run_id}' for run_id, event in events)}"


def _applied(disk: Disk) -> Iterator[str]:
    """A sink has all rows of a run or none, and after the run has closed all, unless they are owed."""
    for sink in SINKS:
        written = {commit.number: commit.rows for commit in disk.table(sink)}
        for run_id, rows in written.items():
            if rows != rows_of(disk, run_id, DECISION_OF[sink]):
                yield f"{sink} has other rows of run {run_id} than its plan: {rows}"
        closed: list[Run] = [run for event, run in (commit.rows for commit in disk.runs) if event == "CLOSED"]
        for run in closed:
            due = rows_of(disk, run.run_id, DECISION_OF[sink])
            if due and run.run_id not in written and (run.run_id, sink) not in closed[-1].owed:
                yield f"lost: run {run.run_id} is closed, and {sink} lacks messages {due}"


def _unfounded(bound: Bound, disk: Disk) -> Iterator[str]:
    """No run believes ops complete that it does not see."""
    for commit in disk.decisions:
        for number, decision in commit.rows:
            op = bound.messages[number].op
            if decision == "DISCARD" and op and op <= LATE:
                yield f"run {commit.number} discards message {number}, though its op was stored before"
            if decision == "REJECTED_OP":
                yield f"run {commit.number} rejects the op of message {number}, though its half message has landed"


def _other_plans(bound: Bound, disk: Disk) -> Iterator[str]:
    """A plan follows from what `runs` records, whoever finds it there."""
    plans = {commit.number: commit.rows for commit in disk.decisions}
    for event, run in (commit.rows for commit in disk.runs):
        if event == "OPENED" and run.run_id in plans and plans[run.run_id] != plan(bound, disk, run):
            yield f"the plan of run {run.run_id} does not follow from its pins: {plans[run.run_id]}"
