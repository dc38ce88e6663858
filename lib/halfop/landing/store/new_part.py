"""The new part of a store: read and checked as a whole before any of it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from halfop.landing import lost, progress
from halfop.landing.store.by_workers import Files, look_into, sound_files
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
    has all rows below its mark. `files` are the kinds whose rows workers have written.
    """

    layout: StoreLayout
    start: int
    survey: Survey
    app: str
    mark: int
    files: Files = field(default_factory=dict)


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
    there = look_into(landing, found.stretches, request.skip_corrupt, write=True)
    refuse_too_many(there.surveyed)
    survey = whole_survey(there.surveyed, landing.broker, begin, request.skip_corrupt)
    if offset is not None and not landing.lost.of_log:
        refuse_gap(request.path, landed, survey)
    files = sound_files(landing, there, survey, request.skip_corrupt)
    return NewPart(_sound_part(found, survey), begin, survey, f"halfop.land.store/{landing.broker}", survey.end, files)


def _begin(landing: StoreLanding, offset: int | None) -> int | None:
    """The end of the last landing; with --skip-corrupt, the log's first offset if the broker has deleted more."""
    if offset is None or not landing.request.skip_corrupt:
        return offset
    first = log_files(landing.root)[0].first
    if first > offset:
        landing.lost.add(lost.Range(offset, first), "deleted", "the broker has deleted it before it landed")
    return max(first, offset)


def _sound_part(found: StoreLayout, survey: Survey) -> StoreLayout:
    """The layout up to the survey's end; stretches without a fault need no second check."""
    faults = [fault.physical for fault in survey.faults]
    before = [replace(s, end=min(s.end, survey.end), fault=None) for s in found.stretches if s.start < survey.end]
    checked = [
        replace(s, sound=not any(s.start <= fault < s.end for fault in faults), back=None if faults else s.back)
        for s in before
    ]
    return replace(found, stretches=tuple(checked))


def parts_found_again(landing: StoreLanding, before: int) -> Iterator[NewPart]:
    """Lost ranges before a physical offset that are sound again, each as a part of its own, which lands once."""
    stretches = {each.start: each for each in present_again(landing.root, landing.lost, before)}
    if not stretches:
        return
    for each in look_into(landing, list(stretches.values()), False, write=False).surveyed:
        found, survey = stretches[each.start], whole_survey([each], landing.broker, each.start, False)
        if not survey.faults:
            app = f"halfop.land.store/{landing.broker}/{found.start}-{found.end}"
            alone = StoreLayout((replace(found, sound=True),), found.start, found.end, True)
            yield NewPart(alone, found.start, survey, app, found.end)
