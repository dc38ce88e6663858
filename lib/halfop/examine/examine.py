"""`examine`: what is damaged in a warehouse, what that touches, the repair of it, and the calls that are left to do."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from halfop.columns.lives import own_name
from halfop.examine import landed
from halfop.examine.landed import FILES, Gap, LostFile
from halfop.examine.logs import Aside, tables_there
from halfop.examine.repair import Repair, RowsWritten, missing, pinned
from halfop.examine.runs import by_run, deficits, lost_ends, lost_runs
from halfop.frame.commands import job_here, word
from halfop.frame.errors import UsageError
from halfop.frame.summary import Summary
from halfop.landing.table_rows import TABLES
from halfop.planning.run import INPUTS
from halfop.runs.record import found_run
from halfop.settings.model import Settings
from halfop.warehouse.damage import Damage
from halfop.warehouse.disk import local_folder
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold

log = logging.getLogger("halfop.examine")

_GROUPS = ("ending", "landing", "run", "audit")  # in the order in which `end` holds two
_REMAINS = 3


def examine(warehouse: KernelWarehouse, settings: Settings, deep: bool, repair: bool) -> Summary:
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
            try:
                for line in work.bring_back(tables, damaged, summary):
                    log.info("brought back: %s", line)
                    done.append(line)
            except Exception:
                if not done and not work.aside.unfinished:  # all is as it was
                    work.aside.finish()
                raise
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


class RepairCall(NamedTuple):
    """A command that can be pasted, and what to put for a word of it that only the user knows."""

    command: str
    unknown: str = ""

    def __str__(self) -> str:
        return f"to do next{self.unknown and f' ({self.unknown})'}: {self.command}"


def repair_call(settings: Settings) -> RepairCall:
    """The call that repairs."""
    return RepairCall(f"{job_here('examine', settings)} --repair")


class Left(NamedTuple):
    """Files of which a table lacks rows, not marked yet and marked; other ranges that lack; rows that a repair adds."""

    unmarked: Sequence[LostFile]
    files: Sequence[LostFile]
    ranges: Sequence[Gap]
    lacking: Sequence[str]

    @property
    def lines(self) -> list[str]:
        """All of it in words, each once."""
        every = (self.unmarked, self.files, self.ranges, self.lacking)
        return list(dict.fromkeys(str(each) for part in every for each in part))

    def calls(self, settings: Settings, after_repair: bool) -> list[RepairCall]:
        """The calls in their order; a repair that lacked bodies is called again when they have landed."""
        if self.unmarked:
            return [repair_call(settings)]
        land = [*_of_files(self.files, settings), *_of_ranges(self.ranges, settings)]
        again = self.lacking or (land and after_repair)
        return [*land, repair_call(settings)] if again else land


def left(work: Repair, damaged: Collection[str], deep: bool) -> Left:
    """Looks for what tables lack; of tables that were damaged also for what nothing but that shows."""
    unmarked, marked = landed.lost_files(work.warehouse), landed.to_land_again(work.warehouse)
    ranges = landed.gaps(work.warehouse, damaged)
    if unmarked or marked:  # whose rows the ranges of files are
        ranges = [each for each in ranges if each.source != FILES]
    lost = [f"runs lacks run {run_id}" for run_id in lost_runs(work.warehouse, tables_there(work.root))]
    lost += [f"runs lacks how run {run_id} ended" for run_id in lost_ends(work.warehouse)]
    return Left(unmarked, marked, ranges, [*lost, *_of_pins(work), *(_of_runs(work) if deep else ())])


def _of_pins(work: Repair) -> Iterator[str]:
    """Tables that end before a version that a run has read."""
    for name, version in pinned(work.warehouse).items():
        if name in INPUTS and (newest := work.warehouse.version(name)) < version:
            yield f"{name} ends at version {newest}, but a run has read version {version}: its newest commits are gone"


def _of_runs(work: Repair) -> Iterator[str]:
    """Runs whose rows are not all there."""
    topics = [name for name in tables_there(work.root) if name.startswith("topics/")]
    lacking = deficits(work.warehouse, topics)
    yield from map(str, lacking)
    written, damaged = RowsWritten(work.warehouse), {each.run_id for each in lacking}
    for run_id in sorted(by_run(work.warehouse)):
        found = found_run(work.warehouse, run_id)
        if found is not None and found[1] and run_id not in damaged:
            yield from (str(each) for _, each in missing(work.warehouse, found[0], written))


# ---- calls ----


def _of_files(lost: Sequence[LostFile], settings: Settings) -> Iterator[RepairCall]:
    """One call for all files."""
    named = {kind: [word(each.shown) for each in lost if each.kind == kind] for kind in TABLES}
    options = [f"--{kind} {' '.join(paths)}" for kind, paths in named.items() if paths]
    if options:
        yield RepairCall(" ".join([job_here("land files", settings), *options]))


def _of_ranges(ranges: Sequence[Gap], settings: Settings) -> Iterator[RepairCall]:
    """One call a source, which lands its ranges again."""
    by_source: dict[tuple[str, str, str], list[str]] = {}
    for gap in ranges:
        by_source.setdefault(_source(gap), []).append(word(str(gap.again)))
    for (job, options, unknown), found in by_source.items():
        again = " ".join(dict.fromkeys(found))
        yield RepairCall(f"{job_here(job, settings)} {options} --again {again}", unknown)


def _source(gap: Gap) -> tuple[str, str, str]:
    """The job that lands from a range's source, its options, and what the user puts for words in capitals."""
    name = own_name(gap.again.broker_name)
    if gap.source in ("STORE", "GATEWAY"):
        return "land store", f"--path DIR --broker-name {word(name)}", f"DIR: the folder of the store of {name}"
    if gap.source == "BROKER":
        return "land broker", "--namesrv HOST:PORT", f"HOST:PORT: a name server that knows {name}"
    return "land files", "--half FILES --op FILES", f"FILES: those that the rows of {name} have landed from"
