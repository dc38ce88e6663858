"""Stretches of a store, surveyed and written to files in one go: here if they are few, else by workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from halfop.landing import rocksdb
from halfop.landing.staged import forms, searched_columns
from halfop.landing.store.state import SOURCE, StoreLanding
from halfop.landing.store.tasks import Landed, Rows, Share, land_share
from halfop.landing.survey import Survey, Surveyed
from halfop.landing.tables import UNSETTLED
from halfop.rocketmq.store.stretch import Stretch
from halfop.warehouse.disk import DataFile
from halfop.warehouse.workers import in_workers

# Bytes of a commit log: so many are read by this process, and about so many by a task of a large landing.
_LITTLE, _OF_A_TASK = 8 << 20, 256 << 20
_TASKS_A_CORE = 4  # of a smaller one: so that all cores end at about the same time
Files = Mapping[str, Sequence[DataFile]]


class Found(NamedTuple):
    """The contents of stretches, and files of their rows by kind. `rolled_back`: as a task names them."""

    surveyed: Sequence[Surveyed]
    files: Files
    rolled_back: Sequence[str]


def look_into(landing: StoreLanding, stretches: Sequence[Stretch], skip_corrupt: bool) -> Found:
    """Surveys the stretches, and writes their rows to files.

    Raises InputRefused for a broker that keeps its transactions in RocksDB alone.
    """
    rows = _rows(landing)
    done = _done(landing, [Share(part, skip_corrupt, rows) for part in _parts(landing, stretches)])
    files = {kind: [file for each in done for file in each.files.get(kind, ())] for kind in rows.searched}
    rolled_back = [path for each in done for path in each.rolled_back]
    surveyed = [surveyed for each in done for surveyed in each.surveyed]
    if any(each.rocksdb for each in surveyed):
        rocksdb.refuse(landing.request.path, landing.broker)
    return Found(surveyed, files, rolled_back)


def _rows(landing: StoreLanding) -> Rows:
    folder, bounds = landing.staging.path, {**searched_columns(), UNSETTLED: ()}
    return Rows(forms(landing.lives, SOURCE, landing.landed_at), folder, bounds)


def _done(landing: StoreLanding, shares: Sequence[Share]) -> list[Landed]:
    if sum(_size(share.stretches) for share in shares) <= _LITTLE:
        return [land_share(share, landing.staging.disk) for share in shares]
    return in_workers(landing.warehouse, shares, land_share)


def _parts(landing: StoreLanding, stretches: Sequence[Stretch]) -> Iterator[list[Stretch]]:
    """The stretches in their order, some for each task."""
    cores = landing.warehouse.spark.sparkContext.defaultParallelism
    enough = min(_OF_A_TASK, _size(stretches) // (_TASKS_A_CORE * cores))
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


def rollbacks_are_sure(landing: StoreLanding, found: Found, survey: Survey) -> bool:
    """Returns whether no half message that an op names as rolled back was committed in a later stretch."""
    later = survey.committed_later
    if survey.faults or later is None:
        return False
    for path in found.rolled_back if len(later) else ():
        rolled_back = np.frombuffer(landing.warehouse.files.read(path), np.int64)
        if len(rolled_back):
            near = later[np.searchsorted(later, rolled_back[0]) : np.searchsorted(later, rolled_back[-1], "right")]
            if np.isin(near, rolled_back, assume_unique=True).any():
                return False
    return True
