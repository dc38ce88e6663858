"""The new part of a store: read and checked as a whole before any of it becomes part of a table.

Tasks read its stretches once and write their rows to files: here if they are few, else in workers. Lost ranges of the
log are left out, and read when they are sound again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from halfop.landing import lost, progress
from halfop.landing.lost import Ranges
from halfop.landing.staged import forms, searched_columns
from halfop.landing.store.same_store import (
    SOURCE,
    StoreLanding,
    another_store,
    lacks_landed,
    next_offsets,
    refuse_another,
    refuse_gap,
)
from halfop.landing.survey import StretchSurvey, Survey, Surveyed, refuse_too_many, whole_survey
from halfop.landing.table_rows import UNSETTLED, RowForm, in_form, write_items
from halfop.rocketmq.batches import BATCH, OP
from halfop.rocketmq.store.commitlog import log_files
from halfop.rocketmq.store.consumequeue import ConsumeQueues
from halfop.rocketmq.store.layout import StoreLayout, layout
from halfop.rocketmq.store.stretch import Stretch
from halfop.warehouse.disk import DataFile, Disk
from halfop.warehouse.splits import PartWriter


@dataclass(frozen=True)
class NewPart:
    """A part of the log to land, with its survey.

    Each table's commit is marked under `app` with `mark`, so that nothing lands twice after a killed landing: a table
    has all rows below its mark. `files` have the rows by kind, those after a fault, too. `sure`: no rollback in them
    is a commit in truth.
    """

    layout: StoreLayout
    start: int
    survey: Survey
    app: str
    mark: int
    files: Files
    sure: bool


def new_part(landing: StoreLanding) -> NewPart:
    """The part of the log after the last landing. Raises InputRefused if this is not the store that has landed."""
    request = landing.request
    offset = progress.log_offset(landing.warehouse, landing.broker)
    refuse_another(landing)
    queues = ConsumeQueues(landing.root)
    found = layout(landing.root, _begin(landing, offset))
    begin = found.stretches[0].start if found.stretches else found.end
    found = without(found, landing.lost.of_log)
    named = max((each.dispatched for each in found.stretches), default=0)
    landed = next_offsets(landing)
    if offset is not None and named > offset and lacks_landed(landed, queues):
        raise another_store(landing)
    there = look_into(landing, found.stretches, request.skip_corrupt)
    refuse_too_many(there.surveyed)
    survey = whole_survey(there.surveyed, landing.broker, begin, request.skip_corrupt)
    if offset is not None and not landing.lost.of_log:
        refuse_gap(request.path, landed, survey)
    sure = rollbacks_are_sure(landing, there, survey)
    app = f"halfop.land.store/{landing.broker}"
    return NewPart(found, begin, survey, app, survey.end, there.files, sure)


def _begin(landing: StoreLanding, offset: int | None) -> int | None:
    """The end of the last landing; with --skip-corrupt, the log's first offset if the broker has deleted more."""
    if offset is None or not landing.request.skip_corrupt:
        return offset
    first = log_files(landing.root)[0].first
    if first > offset:
        landing.lost.add(lost.Range(offset, first), "deleted", "the broker has deleted it before it landed")
    return max(first, offset)


def parts_found_again(landing: StoreLanding, before: int) -> Iterator[NewPart]:
    """Lost ranges before a physical offset that are sound again, each as a part of its own, which lands once."""
    for found in present_again(landing.root, landing.lost, before):
        there = look_into(landing, [found], False)
        survey = whole_survey(there.surveyed, landing.broker, found.start, False)
        if not survey.faults:
            app = f"halfop.land.store/{landing.broker}/{found.start}-{found.end}"
            alone = StoreLayout((found,), found.start, found.end, True)
            sure = rollbacks_are_sure(landing, there, survey)
            yield NewPart(alone, found.start, survey, app, found.end, there.files, sure)


def present_again(root: str, lost: Ranges, before: int) -> Iterator[Stretch]:
    """Lost ranges before a physical offset that now are in one of the log's files; they may be sound again."""
    files = log_files(root)
    for since, upto in lost.of_log:
        file = next((file for file in files if file.first <= since and upto <= file.end), None)
        if file is not None and upto <= before:
            yield Stretch(root, file, since, upto, upto)


def without(layout: StoreLayout, lost: Sequence[tuple[int, int]]) -> StoreLayout:
    """The layout without the lost ranges, which land by themselves when the rest has.

    They may be sound by now. But a killed landing left them out, and some tables have its commit: so the other tables
    leave them out too.
    """
    return replace(layout, stretches=tuple(piece for each in layout.stretches for piece in _outside(each, lost)))


def _outside(stretch: Stretch, lost: Sequence[tuple[int, int]]) -> Iterator[Stretch]:
    at = stretch.start
    for since, upto in sorted(lost):
        if since < stretch.end and upto > at:
            if at < since:
                yield replace(stretch, start=at, end=since, fault=None, back=_back(stretch, at, lost))
            at = upto
    if at < stretch.end or (stretch.fault and at == stretch.end):
        yield replace(stretch, start=at, back=_back(stretch, at, lost))


def _back(stretch: Stretch, at: int, lost: Sequence[tuple[int, int]]) -> Stretch | None:
    """The log right before the stretch, if it still begins at the same place and nothing in between is lost."""
    back = stretch.back
    if back is None or at != stretch.start or any(since < back.end and upto > back.start for since, upto in lost):
        return None
    return back


class Rows(NamedTuple):
    """The rows that a task writes, below a folder: kinds in the forms of their tables, with the bounds they keep."""

    forms: Mapping[str, RowForm]
    folder: str
    searched: Mapping[str, Sequence[str]]


class LogShare(NamedTuple):
    """The work of one task."""

    stretches: Sequence[Stretch]
    skip_corrupt: bool
    rows: Rows


class TaskFiles(NamedTuple):
    """The result of a task: the files that it has written, by kind.

    `rolled_back` are the paths of files, one a stretch, with the half messages that its ops name as rolled back:
    rightly, unless they were committed in a later stretch.
    """

    surveyed: Sequence[Surveyed]
    files: Mapping[str, Sequence[DataFile]]
    rolled_back: Sequence[str]


def land_share(share: LogShare, disk: Disk) -> TaskFiles:
    rows = share.rows
    out = PartWriter(disk, {kind: f"{rows.folder}/{kind}" for kind in rows.searched}, rows.searched)
    surveyed, rolled_back = [], []
    for stretch in share.stretches:
        survey = _written(stretch, share.skip_corrupt, rows.forms, out)
        surveyed.append(survey.result())
        rolled_back.append(_write_rolled_back(disk, rows.folder, survey))
    return TaskFiles(surveyed, out.close(), rolled_back)


def _written(stretch: Stretch, skip_corrupt: bool, forms: Mapping[str, RowForm], out: PartWriter) -> StretchSurvey:
    survey = StretchSurvey(stretch)
    for piece in survey.pieces(skip_corrupt):
        for kind, records in piece.kept.items():
            if kind != OP:
                out.write(kind, in_form(BATCH[kind](records), forms[kind]))
    for items in survey.items:
        write_items(out, items, forms[OP])
    return survey


def _write_rolled_back(disk: Disk, folder: str, survey: StretchSurvey) -> str:
    output = disk.create(f"{folder}/rolled-back-{uuid.uuid4()}")
    output.stream.write(survey.outcomes.rolled_back.tobytes())
    return output.close().path


# Bytes of a commit log: so many are read by this process, and about so many by a task of a large landing.
_LITTLE, _OF_A_TASK = 8 << 20, 256 << 20
_TASKS_A_CORE = 4  # of a smaller one: so that all cores end at about the same time
Files = Mapping[str, Sequence[DataFile]]


class StretchesFound(NamedTuple):
    """The contents of stretches, and files of their rows by kind. `rolled_back`: as a task names them."""

    surveyed: Sequence[Surveyed]
    files: Files
    rolled_back: Sequence[str]


def look_into(landing: StoreLanding, stretches: Sequence[Stretch], skip_corrupt: bool) -> StretchesFound:
    """Surveys the stretches, and writes their rows to files."""
    rows = _rows(landing)
    done = _done(landing, [LogShare(part, skip_corrupt, rows) for part in _parts(landing, stretches)])
    files = {kind: [file for each in done for file in each.files.get(kind, ())] for kind in rows.searched}
    rolled_back = [path for each in done for path in each.rolled_back]
    surveyed = [surveyed for each in done for surveyed in each.surveyed]
    return StretchesFound(surveyed, files, rolled_back)


def _rows(landing: StoreLanding) -> Rows:
    folder, bounds = landing.staging.path, {**searched_columns(), UNSETTLED: ()}
    return Rows(forms(landing.lives, SOURCE, landing.landed_at), folder, bounds)


def _done(landing: StoreLanding, shares: Sequence[LogShare]) -> list[TaskFiles]:
    few = sum(_size(share.stretches) for share in shares) <= _LITTLE
    return landing.staging.work(shares, land_share, few)


def _parts(landing: StoreLanding, stretches: Sequence[Stretch]) -> Iterator[list[Stretch]]:
    """The stretches in their order, some for each task."""
    enough = min(_OF_A_TASK, _size(stretches) // (_TASKS_A_CORE * landing.staging.cores))
    part: list[Stretch] = []
    for stretch in stretches:
        part.append(stretch)
        if _size(part) >= enough:
            yield part
            part = []
    if part:
        yield part


def _size(stretches: Iterable[Stretch]) -> int:
    return sum(stretch.end - stretch.start for stretch in stretches)


def rollbacks_are_sure(landing: StoreLanding, found: StretchesFound, survey: Survey) -> bool:
    """Returns whether no half message that an op names as rolled back was committed in a later stretch."""
    later = survey.committed_later
    if survey.faults or later is None:
        return False
    for path in found.rolled_back if len(later) else ():
        rolled_back = np.frombuffer(landing.staging.disk.open(path).read(), np.int64)
        if len(rolled_back):
            near = later[np.searchsorted(later, rolled_back[0]) : np.searchsorted(later, rolled_back[-1], "right")]
            if np.isin(near, rolled_back, assume_unique=True).any():
                return False
    return True
