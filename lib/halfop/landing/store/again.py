"""`land store --again`: ranges of queues as parts of the log, which land again with all that stands between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from halfop.frame.errors import InputRefused
from halfop.landing import lost
from halfop.landing.again import Again, by_life, refuse_unknown
from halfop.landing.store.new_part import NewPart, look_into, rollbacks_are_sure
from halfop.landing.store.same_store import StoreLanding, refuse_another
from halfop.landing.survey import refuse_too_many, whole_survey
from halfop.rocketmq.store.commitlog import log_files
from halfop.rocketmq.store.consumequeue import ConsumeQueue, ConsumeQueues, present
from halfop.rocketmq.store.layout import layout
from halfop.warehouse.progress import COMMIT_LOG

Bytes = tuple[int, int]


def parts_again(landing: StoreLanding) -> Iterator[tuple[StoreLanding, NewPart]]:
    """The parts of the log to land, each with the landing as it was in the life that the part is of.

    What the store no longer has becomes a lost range. Raises InputRefused for another store than has landed.
    """
    refuse_another(landing)
    refuse_unknown(landing.request.again, landing.lives.names, landing.request.path)
    for name, ranges in by_life(landing.request.again, landing.lives).items():
        of_life = replace(landing, lives=landing.lives.upto(name))
        asked = list(_bytes(landing, ranges))
        for begin, end in _joined([*asked, *_lost_around(landing, asked)]):
            yield of_life, _part(of_life, begin, end)


def _bytes(landing: StoreLanding, ranges: Iterable[Again]) -> Iterator[Bytes]:
    """Where the log holds the ranges."""
    queues, first = ConsumeQueues(landing.root), log_files(landing.root)[0].first
    if not queues.exist:
        problem = "it has no folder consumequeue, which says where a queue's offsets are"
        raise InputRefused(landing.request.path, None, problem, "land from a store that has it")
    for each in ranges:
        found = [(topic, queues.get(topic, each.queue_id)) for topic in each.topics]
        there = [(topic, queue) for topic, queue in found if queue and queue.last.offset >= each.since]
        if not there:
            problem = f"--again {each}: no such offsets in its queues"
            raise InputRefused(landing.request.path, None, problem, "give offsets that the store has, or had")
        for topic, queue in there:
            yield from _bytes_of_queue(landing, each, topic, queue, first)


def _bytes_of_queue(landing: StoreLanding, each: Again, topic: str, queue: ConsumeQueue, first: int) -> Iterator[Bytes]:
    low, high = max(each.since, queue.first_from(first)), min(each.upto, queue.last.offset + 1)
    if each.since < low:
        gone = lost.Range(each.since, min(low, each.upto), topic, each.queue_id, landing.landed_at)
        landing.lost.add(gone, "deleted", "the broker has deleted it, so it cannot land again")
    if low < high:
        units = queue.at(np.array([low, high - 1], np.int64))
        if present(units).all():
            yield int(units["physical"][0]), int(units["physical"][1] + units["size"][1])


def _lost_around(landing: StoreLanding, asked: Sequence[Bytes]) -> list[Bytes]:
    """Lost ranges of the log that hold one of those: all of them lands again, so nothing of it is lost."""
    lost_ranges = landing.lost.of_log
    return [(since, upto) for since, upto in lost_ranges if any(since <= at and to <= upto for at, to in asked)]


def _joined(parts: Iterable[Bytes]) -> list[Bytes]:
    """The parts in their order; those that touch are one."""
    joined: list[Bytes] = []
    for begin, end in sorted(parts):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _part(landing: StoreLanding, begin: int, end: int) -> NewPart:
    """A sound part of the log, which lands under a marker of its own."""
    whole = layout(landing.root, begin)
    cut = [replace(each, end=min(each.end, end), fault=None) for each in whole.stretches if each.start < end]
    found = replace(whole, stretches=tuple(cut), end=end)
    there = look_into(landing, found.stretches, False)
    refuse_too_many(there.surveyed)
    survey = whole_survey(there.surveyed, landing.broker, begin, False)
    if survey.faults:
        fault = survey.faults[0]
        raise InputRefused(fault.file, fault.offset, fault.text, "nothing of --again has landed from there on")
    for gone in [each for each in landing.lost.all if each.topic == COMMIT_LOG]:
        if begin <= gone.since and gone.upto <= end:
            landing.lost.found(gone, "it has landed again")
    app = f"halfop.land.store/{landing.broker}/again/{landing.landed_at}/{begin}-{end}"
    return NewPart(found, begin, survey, app, end, there.files, rollbacks_are_sure(landing, there, survey))
