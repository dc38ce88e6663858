"""The brokers of some transactions: which of them may be asked, how far they have landed, and who decides for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from halfop.columns.lives import lives_of
from halfop.ending.owner import Where
from halfop.ending.tails import Landed, landed_of
from halfop.frame.errors import InputRefused, UsageError
from halfop.planning.run import sources
from halfop.runs.record import last_run
from halfop.warehouse.progress import GATEWAY, progress_rows
from halfop.warehouse.progress import TABLE as PROGRESS
from halfop.warehouse.tables import NO_TABLE, Warehouse

_ASKED = ("STORE", "BROKER", GATEWAY)


def refuse_forbidden(names: Sequence[str], allowed: Sequence[str]) -> None:
    """Raises UsageError for brokers that the settings do not name."""
    if forbidden := [name for name in names if name not in allowed]:
        raise UsageError(
            f"end.brokers: {', '.join(forbidden)} may not be asked to end transactions; "
            f"it names {', '.join(allowed) or 'none'}. If it may: --set end.brokers={','.join([*allowed, *forbidden])}"
        )


def refuse_unreachable(names: Sequence[str], where: Where | None) -> None:
    """Raises UsageError if these brokers must be asked, and no option says where."""
    if names and where is None:
        raise UsageError(f"{', '.join(names)}: only the broker itself can end its messages: give --namesrv or --broker")
    if len(names) > 1 and where is not None and where.broker:
        raise UsageError(f"--broker is one broker, but the messages are of {', '.join(names)}: give --namesrv")


def by_files(warehouse: Warehouse) -> set[str]:
    """Returns the brokers that nobody can ask, because their messages land by files."""
    return {name for name, source in sources(progress_rows(warehouse)).items() if source not in _ASKED}


def owners(warehouse: Warehouse, names: Collection[str]) -> dict[str, list[str]]:
    """Returns the brokers' own names with those of the given names that are lives of them."""
    of = {row["broker_name"]: row["life_of"] for row in progress_rows(warehouse)}
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        found.setdefault(of.get(name) or name, []).append(name)
    return found


def decided_until(warehouse: Warehouse) -> int:
    """Returns the version of landing_progress that the last run knew which has decided about all of that.

    Call it before you read decisions: a run in between would have seen more, and what it saw must be read again.
    """
    found = last_run(warehouse)
    if found is None:
        return NO_TABLE
    run, closed = found
    decided = closed and run.slice.number == run.slice.of
    return (run.inputs if decided else run.inputs_before)[PROGRESS]


def landed(warehouse: Warehouse, name: str, queues: Collection[int], version: int) -> dict[int, Landed]:
    """Returns how far a broker's queues had landed at a version of landing_progress, as `decided_until` gives it.

    What landed later, no run has seen, so it is read from the broker again.
    """
    rows, before = progress_rows(warehouse), progress_rows(warehouse, version)
    lives = lives_of(rows, name)
    if lives.names != lives_of(before, name).names:
        problem = f"broker {name} has begun another life, {lives.current}, since the last run"
        raise InputRefused(warehouse.path(PROGRESS), None, problem, "start reconcile, and plan again")
    mine = [row for row in before if row["broker_name"] == lives.current]
    offsets = {(row["topic"], row["queue_id"]): row["next_offset"] for row in mine}
    return {queue: landed_of(offsets, queue) for queue in queues}
