"""`examine`: what is damaged in a warehouse, what that touches, and the repair of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from halfop.examine import decisions, landed, sinks
from halfop.examine.aside import Aside
from halfop.examine.repair import Repair, pinned
from halfop.examine.runs import by_run
from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary
from halfop.planning.run import INPUTS
from halfop.runs.record import found_run
from halfop.settings.model import Settings
from halfop.warehouse.damage import Damage
from halfop.warehouse.disk import local_folder
from halfop.warehouse.lock import hold
from halfop.warehouse.schema import OF_A_TOPIC, table_names
from halfop.warehouse.tables import Warehouse

_GROUPS = ("ending", "landing", "run", "audit")  # in the order in which `end` holds two
_REMAINS = 3


def examine(warehouse: Warehouse, settings: Settings, log: logging.Logger, deep: bool, repair: bool) -> Summary:
    """Looks at every table, and repairs what it can. Status 3: something is damaged, or has to land again."""
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
        _report(work, found, deep or repair, summary, log)
    return summary


def tables_there(root: Path) -> list[str]:
    """The tables whose folders are there: halfop's own, and a topic's each."""
    named = [name for name in table_names() if name != OF_A_TOPIC]
    topics = sorted((root / "topics").iterdir()) if (root / "topics").is_dir() else []
    return [name for name in [*named, *(f"topics/{each.name}" for each in topics)] if (root / name).is_dir()]


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
            summary.extra["repaired"] = list(work.bring_back(tables, damaged, summary))
            summary.extra["damaged_tables"] = damaged
        work.aside.finish()


# ---- what is left to do ----


def _report(work: Repair, found: Collection[Damage], deep: bool, summary: Summary, log: logging.Logger) -> None:
    remains = [str(each) for each in found]
    remains += [f"{work.aside.root}: a repair was stopped before it had finished"] if work.aside.unfinished else []
    ranges = list[landed.Gap]()
    if not remains:
        with summary.phase("rows"):
            ranges = landed.gaps(work.warehouse, summary.extra.get("damaged_tables", ()))
            remains += [str(each) for each in ranges]
            remains += list(_of_pins(work)) + (list(_of_runs(work)) if deep else [])
    commands = landed.commands(ranges)
    lacks = len(remains) > len(ranges)
    if lacks or (ranges and "damaged_tables" in summary.extra):
        commands.append("examine --repair")
    summary.extra["remains"], summary.extra["commands"] = remains, commands
    summary.status = _REMAINS if any(each.sure for each in ranges) or lacks else 0
    for line in remains:
        log.warning(line)
    summary.notes += [f"call: {command}" for command in commands]


def _of_pins(work: Repair) -> Iterator[str]:
    """Tables that end before a version that a run has read."""
    for name, version in pinned(work.warehouse).items():
        if name in INPUTS and (newest := work.warehouse.version(name)) < version:
            yield f"{name} ends at version {newest}, but a run has read version {version}: its newest commits are gone"


def _of_runs(work: Repair) -> Iterator[str]:
    """Runs whose rows are not all there."""
    topics = [name for name in tables_there(work.root) if name.startswith("topics/")]
    lacking = decisions.deficits(work.warehouse, topics)
    yield from map(str, lacking)
    written, damaged = sinks.Written(work.warehouse), {each.run_id for each in lacking}
    for run_id in sorted(by_run(work.warehouse)):
        found = found_run(work.warehouse, run_id)
        if found is not None and found[1] and run_id not in damaged:
            yield from (str(each) for _, each in sinks.missing(work.warehouse, found[0], written))
