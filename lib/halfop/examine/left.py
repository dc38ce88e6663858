"""What is left to do in a warehouse whose logs are whole: in words, and as calls that can be pasted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from halfop.examine import decisions, files, landed, sinks
from halfop.examine.files import LostFile
from halfop.examine.landed import FILES, Gap
from halfop.examine.repair import Repair, pinned, tables_there
from halfop.examine.runs import by_run
from halfop.landing.table_rows import TABLES
from halfop.planning.run import INPUTS
from halfop.runs.record import found_run
from halfop.settings.model import Settings
from halfop.wording import job_here, word


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
    unmarked, marked = files.lost(work.warehouse), files.to_land_again(work.warehouse)
    ranges = landed.gaps(work.warehouse, damaged)
    if unmarked or marked:  # whose rows the ranges of files are
        ranges = [each for each in ranges if each.source != FILES]
    return Left(unmarked, marked, ranges, [*_of_pins(work), *(_of_runs(work) if deep else ())])


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
    written, damaged = sinks.RowsWritten(work.warehouse), {each.run_id for each in lacking}
    for run_id in sorted(by_run(work.warehouse)):
        found = found_run(work.warehouse, run_id)
        if found is not None and found[1] and run_id not in damaged:
            yield from (str(each) for _, each in sinks.missing(work.warehouse, found[0], written))


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
    name = gap.again.broker_name.partition("~")[0]
    if gap.source in ("STORE", "GATEWAY"):
        return "land store", f"--path DIR --broker-name {word(name)}", f"DIR: the folder of the store of {name}"
    if gap.source == "BROKER":
        return "land broker", "--namesrv HOST:PORT", f"HOST:PORT: a name server that knows {name}"
    return "land files", "--half FILES --op FILES", f"FILES: those that the rows of {name} have landed from"
