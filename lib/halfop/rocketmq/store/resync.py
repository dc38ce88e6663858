"""Records found by consume queues: places to cut the log, and to go on after a corrupt place."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from halfop.rocketmq.buffers import gather
from halfop.rocketmq.record import HEAD, MAX_SIZE, MIN_SIZE, chain
from halfop.rocketmq.store.commitlog import StoreFile
from halfop.rocketmq.store.consumequeue import ConsumeQueue, Units, present

_AHEAD = 4096  # units of a queue looked at in one go


def is_sound(file: StoreFile, physical: int, size: int) -> bool:
    """Returns whether a record of just that size stands there."""
    if not MIN_SIZE <= size <= MAX_SIZE or physical + size > file.end:
        return False
    head = gather(file.read(physical, HEAD.itemsize), np.zeros(1, np.int64), HEAD)[0]
    if head["size"] != size or head["physical_offset"] != physical:
        return False
    return len(chain(file.read(physical, size), physical).records) == 1


def next_sound(queues: Iterable[ConsumeQueue], file: StoreFile, after: int, end: int) -> int | None:
    """Returns the first place after `after` and before `end` that a unit names and that has a sound record."""
    searched = list(queues)
    while after + 1 < end:
        units, horizon = _named(searched, after + 1, end)
        for unit in units:
            if is_sound(file, int(unit["physical"]), int(unit["size"])):
                return int(unit["physical"])
        after = horizon - 1
    return None


def _named(queues: Iterable[ConsumeQueue], start: int, end: int) -> tuple[Units, int]:
    """Units that name places from `start` on, in their order, and the place up to which these are all."""
    blocks, horizon = [], end
    for queue in queues:
        units = queue.upto(queue.first_from(start), _AHEAD)
        if len(units) == _AHEAD and start < units["physical"][-1] < horizon:
            horizon = int(units["physical"][-1])
        blocks.append(units)
    units = np.concatenate(blocks) if blocks else np.zeros(0, [("physical", ">i8"), ("size", ">i4"), ("tags", ">i8")])
    units = units[present(units) & (units["physical"] >= start) & (units["physical"] < horizon)]
    return units[np.argsort(units["physical"], kind="stable")], horizon
