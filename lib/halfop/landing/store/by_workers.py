"""Stretches of a store surveyed by workers, and, if the tables lie on a local disk, written by them in one go."""

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
from halfop.rocketmq.batches import OP
from halfop.rocketmq.buffers import Longs
from halfop.rocketmq.store.stretch import Stretch
from halfop.warehouse.actions import DataFile
from halfop.warehouse.workers import in_workers

# Bytes of a commit log: so many are read by this process, and about so many by a task of a large landing.
_LITTLE, _OF_A_TASK = 8 << 20, 256 << 20
_TASKS_A_CORE = 4  # of a smaller one: so that all cores end at about the same time
Files = Mapping[str, Sequence[DataFile]]


class Found(NamedTuple):
    """The contents of stretches, and files of their rows by kind; no kind if Spark must write the tables.

    `rolled_back`: as a task names them.
    """

    surveyed: Sequence[Surveyed]
    files: Files
    rolled_back: Sequence[str]


def look_into(landing: StoreLanding, stretches: Sequence[Stretch], skip_corrupt: bool, write: bool) -> Found:
    """Surveys the stretches; `write`: and writes their rows to files, if workers may.

    Raises InputRefused for a broker that keeps its transactions in RocksDB alone.
    """
    rows = _rows(landing) if write else None
    done = _done(landing, [Share(part, skip_corrupt, rows) for part in _parts(landing, stretches)])
    kinds = rows.searched if rows else ()
    files = {kind: [file for each in done for file in each.files.get(kind, ())] for kind in kinds}
    rolled_back = [path for each in done for path in each.rolled_back]
    surveyed = [surveyed for each in done for surveyed in each.surveyed]
    if any(each.rocksdb for each in surveyed):
        rocksdb.refuse(landing.request.path, landing.broker)
    return Found(surveyed, files, rolled_back)


def _rows(landing: StoreLanding) -> Rows | None:
    if not landing.staging.by_workers:
        return None
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


def sound_files(landing: StoreLanding, found: Found, survey: Survey, skip_corrupt: bool) -> Files:
    """The files whose rows are what the survey counts; Spark writes those of the other kinds."""
    if survey.faults and not skip_corrupt:
        return {}
    files = dict(found.files)
    if files and (survey.faults or not _stay_rolled_back(landing, found.rolled_back, survey.committed_later)):
        del files[OP]
    return files


def _stay_rolled_back(landing: StoreLanding, paths: Iterable[str], later: Longs | None) -> bool:
    """Returns whether no half message that an op names as rolled back was committed in a later stretch."""
    if later is None:
        return False
    for path in paths if len(later) else ():
        rolled_back = np.frombuffer(landing.warehouse.files.read(path), np.int64)
        if len(rolled_back):
            near = later[np.searchsorted(later, rolled_back[0]) : np.searchsorted(later, rolled_back[-1], "right")]
            if np.isin(near, rolled_back, assume_unique=True).any():
                return False
    return True
