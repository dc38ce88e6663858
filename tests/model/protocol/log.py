"""A Delta table's log as far as the run protocol relies on it. `test_delta_assumptions.py` holds it against Delta.

A commit begins from a version that it read. Delta Kernel refuses it at its end if a commit under the same app id, of
its number or a higher one, came since then. Delta's Spark connector refuses it whatever the other's number. Otherwise
it comes on top of what is there. A store whose commit is atomic does that in one step. A store that looks and then
renames does it in two, and overwrites a commit that came between them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

NONE = 0  # the marker of a table to which an app id has not written; runs and landings count from 1
Rows = tuple[Any, ...]


class Commit(NamedTuple):
    """Some rows. `app` and `number` are the writer's txnAppId and txnVersion; a plain append has no app."""

    rows: Rows
    app: str = ""
    number: int = NONE


Table = tuple[Commit, ...]


class Pending(NamedTuple):
    """A commit that has begun: `read` is the version that it began from, `place` where a look found no commit."""

    table: str
    commit: Commit
    read: int
    place: int | None = None


def marker(table: Table, app: str) -> int:
    """Returns the number under which an app id has written last."""
    return next((commit.number for commit in reversed(table) if commit.app == app), NONE)


def refused(table: Table, pending: Pending, whatever_number: bool = False) -> bool:
    """Returns whether a commit under the same app id came since this one began that keeps it out."""
    mine = pending.commit
    since = [commit.number for commit in table[pending.read :] if mine.app and commit.app == mine.app]
    return any(whatever_number or number >= mine.number for number in since)


def with_commit(table: Table, commit: Commit, place: int) -> Table:
    """Returns the table with a commit as its version `place`, whether or not another one is there."""
    return (*table[:place], commit, *table[place + 1 :])
