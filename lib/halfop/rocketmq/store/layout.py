"""A broker's store directory, cut into stretches that workers read on their own, up to the end of its log.

The end is found also while a broker writes, and in a copy made meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from halfop.frame.errors import InputRefused
from halfop.rocketmq.record import ChainStop, Records, chain, sound_anywhere
from halfop.rocketmq.store.commitlog import QUIET, WINDOW, Fault, StoreFile, closes, log_files, windows
from halfop.rocketmq.store.consumequeue import ConsumeQueue, ConsumeQueues, is_sound, next_sound
from halfop.rocketmq.store.stretch import Stretch

STRETCH = 64 << 20
BACK = 8 << 20
_TRIES = 16  # units looked at for a place to cut
_LOOKS = 3
_GUIDES = 16  # queues looked at: those with the most units


@dataclass(frozen=True)
class StoreLayout:
    """The parts of a store's log. Later parts start at `end`.

    `cross_checked`: the store has consume queues; `in_rocksdb`: it has them in RocksDB. `queue_ahead`: units that name
    places after the log's end, as in a copy made while the broker was writing. `torn`: bytes of a half-written record
    at the log's end.
    """

    stretches: tuple[Stretch, ...]
    first: int
    end: int
    cross_checked: bool
    queue_ahead: int = 0
    torn: int = 0
    in_rocksdb: bool = False


def layout(root: str | Path, start: int | None = None, size: int = STRETCH) -> StoreLayout:
    """Cuts the log from physical offset `start` (a former layout's end; else the log's beginning) into stretches.

    Each begins with a file, or at a place that a consume queue names and that has a sound record; about `size` long.
    """
    known = ConsumeQueues(root)
    queues = [queue for queue in known.all() if queue.last.offset >= 0]  # before the log: what they name is in it
    files = log_files(root)
    used = _used(files)
    start = _checked_start(root, used, files[0].first if start is None else start)
    end_of = _EndSearch(used[-1], files, queues)
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
    return StoreLayout(
        looking_back, files[0].first, tail.end, known.exist, tail.queue_ahead, tail.torn, known.in_rocksdb
    )


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
    hint = "this is an older copy of the store, or another store"
    if start < used[0].first:
        hint = "the broker deleted what has not landed: --skip-corrupt goes on behind it; or this is another store"
    raise InputRefused(Path(root) / "commitlog", None, problem, hint)


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


# ---- the end of the log ----


@dataclass(frozen=True)
class _Tail:
    """The log's end as a layout has it, and what is corrupt there."""

    end: int
    queue_ahead: int = 0
    torn: int = 0
    fault: Fault | None = None


@dataclass(frozen=True)
class _EndSearch:
    """Looks for the end in the last file that is in use. `queues` were read before; `files` are all of the log's."""

    file: StoreFile
    files: Sequence[StoreFile]
    queues: Sequence[ConsumeQueue]

    @property
    def dispatched(self) -> int:
        """The end of what consume queues name."""
        return max((queue.last.end for queue in self.queues), default=0)

    def find(self, at: int) -> _Tail:
        """The end, searched from the beginning of a record on. Corrupt places are passed over: readers find them."""
        while True:
            place, stop, last = _walk(self.file, at)
            if stop is None or closes(stop, place, self.file):
                return self._tail(self.file.end)
            if self._is_end(place):
                return self._tail(place) if last is None or not self._is_torn(last) else self._torn_last(place, last)
            if torn := self._torn(place, stop):
                return _Tail(place, torn=torn)
            sound = next_sound(self.queues, self.file, place, self.file.end)
            if sound is None:
                return _Tail(place, fault=self._fault(place, stop))
            at = sound

    def _is_end(self, place: int) -> bool:
        """Returns whether zeros go on here, or a record came just now because a broker is writing.

        A long read may see zeros and, after them, records written meanwhile: then it looks again.
        """
        for _ in range(_LOOKS):
            quiet = self.file.zeros(place)
            if len(chain(self.file.read(place, WINDOW), place).records):
                return True
            if quiet and not self.file.read(place, 8).any():
                return not any(map(self._names_something, self._ahead(place)))
        return False

    def _ahead(self, place: int) -> list[int]:
        """Places after the end that queues name: the first and the last of each."""
        ahead = [queue for queue in self.queues if queue.last.physical >= place]
        firsts = [int(unit["physical"]) for queue in ahead for unit in queue.upto(queue.first_from(place), 1)]
        return [*firsts, *(queue.last.physical for queue in ahead)]

    def _names_something(self, place: int) -> bool:
        return any(file.read(place, 8).any() for file in self.files if file.first <= place < file.end)

    def _tail(self, end: int) -> _Tail:
        ahead = sum(q.last.offset + 1 - q.first_from(end) for q in self.queues if q.last.physical >= end)
        return _Tail(end, queue_ahead=ahead, fault=self._beyond(end))

    def _beyond(self, end: int) -> Fault | None:
        """The fault of a queue that names bytes after the last file; None if no queue does."""
        for queue in self.queues:
            if queue.last.end > self.files[-1].end:
                path, offset = queue.place(queue.last.offset)
                text = f"the unit names bytes up to physical offset {queue.last.end}, the log's files end at"
                return Fault("beyond", path, offset, end, queue.last.end, f"{text} {self.files[-1].end}")
        return None

    def _is_torn(self, last: Records) -> bool:
        """Returns whether the last record is half written: no unit names it, and some of it is missing."""
        cut = last.properties_length[0] > 0 and last.buffer[last.ends[0] - 1] == 0
        return int(last.head["physical_offset"][0]) >= self.dispatched and bool(cut or last.wrong_body_crc()[0])

    def _torn_last(self, end: int, last: Records) -> _Tail:
        place = int(last.head["physical_offset"][0])
        return _Tail(place, torn=end - place)

    def _torn(self, place: int, stop: ChainStop) -> int:
        """Bytes of a half-written last record; 0 if what stands there is something else."""
        if self.dispatched > place or stop.code == "cut":
            return 0
        limit = stop.size if stop.code == "lengths" else QUIET
        rest = self.file.read(place, limit + QUIET)
        written = len(rest) - int(np.argmax(rest[::-1] != 0))
        return 0 if written > limit or len(sound_anywhere(rest[1:], place + 1)) else written

    def _fault(self, place: int, stop: ChainStop) -> Fault:
        lost = max(self.dispatched, self.file.end)
        return Fault(stop.code, self.file.path, place - self.file.first, place, lost, stop.text)


def _walk(file: StoreFile, at: int) -> tuple[int, ChainStop | None, Records | None]:
    """The end of the records, what stops them there, and the last of them."""
    stop, last = None, None
    for base, found in windows(file, at, file.end):
        at, stop = base + found.end, found.stop
        last = found.records.select(slice(-1, None)) if len(found.records) else last
    return at, stop, last
