"""`examine`: what is damaged in a warehouse, what that touches, and the repair of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from halfop.examine.aside import Aside
from halfop.examine.left import left, repair_call
from halfop.examine.repair import Repair, tables_there
from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary
from halfop.settings.model import Settings
from halfop.warehouse.damage import Damage
from halfop.warehouse.disk import local_folder
from halfop.warehouse.lock import hold
from halfop.warehouse.tables import Warehouse

log = logging.getLogger("halfop.examine")

_GROUPS = ("ending", "landing", "run", "audit")  # in the order in which `end` holds two
_REMAINS = 3


def examine(warehouse: Warehouse, settings: Settings, deep: bool, repair: bool) -> Summary:
    """Looks at every table, and repairs what it can. Status 3: something is damaged, or left to do."""
    summary = Summary("examine")
    folder = local_folder(warehouse.root)
    if folder is None:
        raise UsageError(
            f"{warehouse.root}: examine reads and repairs tables on a local disk; object stores keep files"
        )
    root = Path(folder)
    work = Repair(warehouse, settings, root, Aside(root, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())))
    with summary.shown_in_failure():
        with summary.phase("look"):
            found = _damage(work)
        summary.extra["damaged"] = [str(each) for each in found]
        if repair:
            _repair(work, found, settings.lock.wait, summary)
            found = _damage(work)
        _report(work, found, deep or repair or work.aside.holds_any, summary)
    return summary


def _damage(work: Repair) -> list[Damage]:
    return [each for name in tables_there(work.root) for each in work.log_of(name).damage()]


def _repair(work: Repair, found: Collection[Damage], wait: timedelta, summary: Summary) -> None:
    with ExitStack() as locks:
        for group in _GROUPS:
            locks.enter_context(hold(work.warehouse, group, wait, repairing=True))
        found = _damage(work) if found else []
        work.aside.begin({str(Path(each.table).relative_to(work.root)) for each in found})
        damaged = work.aside.unfinished
        with summary.phase("logs"):
            work.logs(damaged)
        with summary.phase("rows"), work.warehouse.for_few_rows():
            tables = tables_there(work.root)
            done = summary.extra["repaired"] = list[str]()
            for line in work.bring_back(tables, damaged, summary):
                log.info("brought back: %s", line)
                done.append(line)
            summary.extra["damaged_tables"] = damaged
        work.aside.finish()


def _report(work: Repair, found: Collection[Damage], deep: bool, summary: Summary) -> None:
    """Says what is left to do, and by which calls, in the log and in the summary; the status is that there is any."""
    damaged = summary.extra.get("damaged_tables")
    remains = [str(each) for each in found]
    remains += [f"{work.aside.root}: a repair was stopped before it had finished"] if work.aside.unfinished else []
    calls = [repair_call(work.settings)]
    if not remains:
        with summary.phase("rows"):
            remaining = left(work, damaged or (), deep)
        remains, calls = remaining.lines, remaining.calls(work.settings, damaged is not None)
    summary.extra["remains"], summary.extra["commands"] = remains, [call.command for call in calls]
    summary.status = _REMAINS if remains else 0
    for line in (*remains, *calls):
        log.warning("%s", line)
    if not remains:
        log.info("nothing is left to do")
