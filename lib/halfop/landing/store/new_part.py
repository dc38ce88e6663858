"""The new part of a store: read and checked as a whole before any of it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from halfop.landing import lost, progress
from halfop.landing.store.by_workers import Files, look_into, rollbacks_are_sure
from halfop.landing.store.lost_stretches import present_again, without
from halfop.landing.store.same_store import another_store, is_same_store, lacks_landed, next_offsets, refuse_gap
from halfop.landing.store.state import StoreLanding
from halfop.landing.survey import Survey, refuse_too_many, whole_survey
from halfop.rocketmq.store.commitlog import log_files
from halfop.rocketmq.store.consumequeue import ConsumeQueues
from halfop.rocketmq.store.layout import StoreLayout, layout


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
    if not is_same_store(landing):
        raise another_store(landing)
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
