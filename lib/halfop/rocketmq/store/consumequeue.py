"""Consume queues: the place in the commit log of each record of a topic's queue, and sound records found by them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from halfop.rocketmq.buffers import I4, I8, Longs, Mask, dtype_of, gather, struct_of
from halfop.rocketmq.names import queue_number, queue_there
from halfop.rocketmq.record import HEAD, MAX_SIZE, MIN_SIZE, chain
from halfop.rocketmq.store.commitlog import StoreFile, store_files


class Unit(NamedTuple):
    """The layout of a unit: the place of a message's record in the log, its size, and the hash of its tags."""

    physical: I8
    size: I4
    tags: I8


UNIT, PACKED = dtype_of(Unit), struct_of(Unit)
_PRE_BLANK = 0x7FFFFFFF
BLANK = PACKED.pack(0, _PRE_BLANK, 0)  # fills a queue's first file up to its first message
Units = NDArray[Any]


class Last(NamedTuple):
    """A queue's last unit; all -1 if it has none."""

    offset: int
    physical: int
    end: int


NOTHING = Last(-1, -1, -1)


class ConsumeQueue:
    """A consume queue as its files are when first read. Offsets are queue offsets, units are the records' places."""

    def __init__(self, folder: str, topic: str, queue_id: int) -> None:
        self.folder, self.topic, self.queue_id = folder, topic, queue_id

    @cached_property
    def _files(self) -> tuple[StoreFile, ...]:
        return store_files(self.folder)

    @cached_property
    def _firsts(self) -> Longs:
        return np.array([file.first for file in self._files], np.int64) // UNIT.itemsize

    def place(self, offset: int) -> tuple[str, int]:
        """The file of a unit and the position in it; the folder if no file has it."""
        file = self._file(offset)
        return (file.path, offset * UNIT.itemsize - file.first) if file else (self.folder, 0)

    def at(self, offsets: Longs) -> Units:
        """The units of these offsets; zeros for offsets that have none."""
        found = np.zeros(len(offsets), UNIT)
        number = np.searchsorted(self._firsts, offsets, side="right") - 1
        for n in np.unique(number[number >= 0]):
            mine = number == n
            low = int(offsets[mine].min())
            block = self._block(self._files[n], low, int(offsets[mine].max()) + 1)
            inside = mine & (offsets - low < len(block))
            found[inside] = block[offsets[inside] - low]
        return found

    @cached_property
    def last(self) -> Last:
        """The last unit, by binary search: right unless a unit in the middle is zero."""
        return self._search_last(_count)

    @cached_property
    def surely_last(self) -> Last:
        """The last unit, also if units in the middle are zero."""
        return self._search_last(_count_all)

    def first_from(self, physical: int) -> int:
        """The offset of the first unit that names a place at or after `physical`; one after the last if none does."""
        return self._first(lambda unit: int(unit["physical"]) >= physical) if self._files else 0

    def kept_before(self, physical: int) -> int:
        """The offset after the units of places before `physical`; a power cut may have left what follows in holes."""
        return self._first(lambda unit: int(unit["physical"]) >= physical or not unit["size"]) if self._files else 0

    def upto(self, offset: int, count: int) -> Units:
        """Units from an offset on, not beyond the last."""
        return self.at(np.arange(offset, min(offset + count, self.last.offset + 1), dtype=np.int64))

    def _first(self, wanted: Callable[[Units], bool]) -> int:
        low, high = int(self._firsts[0]), self.last.offset + 1
        while low < high:
            middle = (low + high) // 2
            file = self._files[np.searchsorted(self._firsts, middle, side="right") - 1]
            if wanted(self._block(file, middle, middle + 1)[0]):
                high = middle
            else:
                low = middle + 1
        return low

    def _search_last(self, count: Callable[[StoreFile], int]) -> Last:
        for file in reversed(self._files):
            if used := count(file):
                offset = file.first // UNIT.itemsize + used - 1
                unit = self.at(np.array([offset]))
                physical, size = int(unit["physical"][0]), int(unit["size"][0])
                return Last(offset, physical, physical + size) if present(unit)[0] else NOTHING
        return NOTHING

    def _file(self, offset: int) -> StoreFile | None:
        number = int(np.searchsorted(self._firsts, offset, side="right")) - 1
        file = self._files[number] if number >= 0 else None
        return file if file and (offset + 1) * UNIT.itemsize <= file.end else None

    def _block(self, file: StoreFile, low: int, high: int) -> Units:
        high = min(high, file.end // UNIT.itemsize)
        return _units(file, low * UNIT.itemsize - file.first, max(high - low, 0))


def _units(file: StoreFile, position: int, count: int) -> Units:
    content = file.read(file.first + position, count * UNIT.itemsize)
    return content[: len(content) // UNIT.itemsize * UNIT.itemsize].view(UNIT)


def _count(file: StoreFile) -> int:
    """Units before the zeros at the end."""
    low, high = 0, file.size // UNIT.itemsize
    while low < high:
        middle = (low + high) // 2
        unit = _units(file, middle * UNIT.itemsize, 1)
        low, high = (low, middle) if not len(unit) or zero(unit)[0] else (middle + 1, high)
    return low


def _count_all(file: StoreFile) -> int:
    used = np.flatnonzero(~zero(_units(file, 0, file.size // UNIT.itemsize)))
    return int(used[-1]) + 1 if len(used) else 0


def zero(units: Units) -> Mask:
    is_zero: Mask = (units["physical"] == 0) & (units["size"] == 0)
    return is_zero


def present(units: Units) -> Mask:
    """Marks units that name a record: neither zero nor pre-blanked."""
    pre_blank: Mask = (units["physical"] == 0) & (units["size"] == _PRE_BLANK)
    return ~zero(units) & ~pre_blank


_ROCKSDB = ("consumequeue", "consumequeue_rocksdb")


class ConsumeQueues:
    """A store's consume queues; none if the store has no folder consumequeue.

    `in_rocksdb`: a broker with `storeType=defaultRocksDB` keeps them there: RocketMQ 5.3 in the same folder.
    """

    def __init__(self, root: str | Path) -> None:
        self._folder = Path(root) / "consumequeue"
        self.in_rocksdb = any((Path(root) / name / "CURRENT").exists() for name in _ROCKSDB)
        self.exist = self._folder.is_dir() and not (self._folder / "CURRENT").exists()
        self._known: dict[tuple[str, int], ConsumeQueue | None] = {}

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue by the number under which it lands; None if it has no folder, as an empty one may."""
        key = (topic, queue_id)
        if key not in self._known:
            own = queue_there(topic, queue_id)
            folder = self._folder / topic / str(own)
            real = _is_name(topic) and own >= 0 and folder.is_dir()
            self._known[key] = ConsumeQueue(str(folder), topic, queue_id) if real else None
        return self._known[key]

    def of(self, topic: str) -> Iterator[ConsumeQueue]:
        """A topic's queues."""
        for name in _folders(self._folder / topic):
            if name.isdecimal() and (queue := self.get(topic, queue_number(topic, int(name)))):
                yield queue

    def all(self) -> Iterator[ConsumeQueue]:
        for topic in _folders(self._folder):
            yield from self.of(topic)


def _is_name(topic: str) -> bool:
    """Returns whether a topic can be part of a path: it is read from bytes that may be anything."""
    return not (set("/\0") & set(topic) or topic in ("", ".", "..") or "\ufffd" in topic or len(topic) > 255)


def _folders(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


# ---- sound records: where to cut the log, and where to go on after a corrupt place ----

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
    units = np.concatenate(blocks) if blocks else np.zeros(0, UNIT)
    units = units[present(units) & (units["physical"] >= start) & (units["physical"] < horizon)]
    return units[np.argsort(units["physical"], kind="stable")], horizon
