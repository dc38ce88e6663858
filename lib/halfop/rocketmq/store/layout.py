"""A broker's store directory, cut into stretches that workers read on their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from halfop.frame.errors import InputRefused
from halfop.rocketmq.store.commitlog import StoreFile, log_files
from halfop.rocketmq.store.consumequeue import ConsumeQueue, ConsumeQueues
from halfop.rocketmq.store.log_end import LogEnd
from halfop.rocketmq.store.resync import is_sound
from halfop.rocketmq.store.stretch import Stretch

STRETCH = 64 << 20
BACK = 8 << 20
_TRIES = 16  # units looked at for a place to cut
_GUIDES = 16  # queues looked at: those with the most units


@dataclass(frozen=True)
class StoreLayout:
    """The parts of a store's log. Later parts start at `end`.

    `cross_checked`: the store has consume queues. `queue_ahead`: units that name places after the log's end, as in a
    copy made while the broker was writing. `torn`: bytes of a half-written record at the log's end.
    """

    stretches: tuple[Stretch, ...]
    first: int
    end: int
    cross_checked: bool
    queue_ahead: int = 0
    torn: int = 0


def layout(root: str | Path, start: int | None = None, size: int = STRETCH) -> StoreLayout:
    """Cuts the log from physical offset `start` (a former layout's end; else the log's beginning) into stretches.

    Each begins with a file, or at a place that a consume queue names and that has a sound record; about `size` long.
    """
    known = ConsumeQueues(root)
    queues = [queue for queue in known.all() if queue.last.offset >= 0]  # before the log: what they name is in it
    files = log_files(root)
    used = _used(files)
    start = _checked_start(root, used, files[0].first if start is None else start)
    end_of = LogEnd(used[-1], files, queues)
    guides = sorted(queues, key=lambda queue: queue.last.offset, reverse=True)[:_GUIDES]
    begins = list(_begins(used, start, size, guides, end_of.dispatched))
    tail = end_of.find(begins[-1][1])
    ends = [*(min(at, file.end) for (file, _), (_, at) in pairwise(begins)), tail.end]
    stretches = [
        Stretch(str(root), file, at, end, end_of.dispatched) for (file, at), end in zip(begins, ends, strict=True)
    ]
    stretches[-1] = replace(stretches[-1], fault=tail.fault)
    kept = [each for each in stretches if each.start < each.end or each.fault]
    looking_back = tuple(replace(each, back=_back(each, start, used, guides)) for each in kept)
    return StoreLayout(looking_back, files[0].first, tail.end, known.exist, tail.queue_ahead, tail.torn)


def _used(files: Sequence[StoreFile]) -> Sequence[StoreFile]:
    """A broker makes its next file before it needs it."""
    last = len(files)
    while last > 1 and files[last - 1].zeros(files[last - 1].first):
        last -= 1
    return files[:last]


def _checked_start(root: str | Path, used: Sequence[StoreFile], start: int) -> int:
    if used[0].first <= start <= used[-1].end:
        return start
    problem = f"the log reaches from physical offset {used[0].first} to {used[-1].end}, without {start}"
    raise InputRefused(Path(root) / "commitlog", None, problem, "the broker deleted it, or this is another store")


def _begins(
    files: Sequence[StoreFile], start: int, size: int, guides: Sequence[ConsumeQueue], dispatched: int
) -> Iterator[tuple[StoreFile, int]]:
    """The beginnings of stretches, with their files."""
    for file in files:
        if file.end > start or file is files[-1]:
            at = max(start, file.first)
            yield file, at
            while (cut := _cut(file, at, size, guides, dispatched)) is not None:
                yield file, cut
                at = cut


def _cut(file: StoreFile, at: int, size: int, guides: Sequence[ConsumeQueue], dispatched: int) -> int | None:
    """The first place at least `size` after `at` that a unit names and that has a sound record."""
    while (at := at + size) < min(file.end, dispatched):
        if (place := _sound_place(file, at, guides)) is not None:
            return place
    return None


def _sound_place(file: StoreFile, target: int, guides: Sequence[ConsumeQueue]) -> int | None:
    """The first place from `target` on that a unit names and that has a sound record; None after some tries."""
    for _ in range(_TRIES):
        units = [unit for queue in guides for unit in queue.upto(queue.first_from(target), 1)]
        nearest = min(units, key=lambda unit: int(unit["physical"]), default=None)
        if nearest is None or int(nearest["physical"]) >= file.end:
            return None
        place = int(nearest["physical"])
        if place >= target and is_sound(file, place, int(nearest["size"])):
            return place
        target = max(place, target) + 1
    return None


def _back(stretch: Stretch, begin: int, files: Sequence[StoreFile], guides: Sequence[ConsumeQueue]) -> Stretch | None:
    """About the last 8 MiB before a stretch, in one file; `begin` is the layout's."""
    file = next((file for file in files if file.first < stretch.start <= file.end), None)
    if file is None:
        return None
    target = stretch.start - BACK
    try:
        start = file.first if target <= file.first else _sound_place(file, target, guides)
    except InputRefused:
        return None
    if start is None or start >= stretch.start:
        return None
    # within the layout it is checked by its own stretch: a fault there lets no other look back
    return Stretch(stretch.root, file, start, stretch.start, stretch.dispatched, sound=start >= begin)
