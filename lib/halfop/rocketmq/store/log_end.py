"""The end of a commit log, also while a broker writes to it, and in a copy made meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halfop.rocketmq.record import ChainStop, Records, chain, sound_anywhere
from halfop.rocketmq.store.commitlog import QUIET, WINDOW, StoreFile, closes, windows
from halfop.rocketmq.store.consumequeue import ConsumeQueue
from halfop.rocketmq.store.fault import Fault
from halfop.rocketmq.store.resync import next_sound

_LOOKS = 3


@dataclass(frozen=True)
class Tail:
    """The log's end as a layout has it, and what is corrupt there."""

    end: int
    queue_ahead: int = 0
    torn: int = 0
    fault: Fault | None = None


@dataclass(frozen=True)
class LogEnd:
    """Looks for the end in the last file that is in use. `queues` were read before; `files` are all of the log's."""

    file: StoreFile
    files: Sequence[StoreFile]
    queues: Sequence[ConsumeQueue]

    @property
    def dispatched(self) -> int:
        """The end of what consume queues name."""
        return max((queue.last.end for queue in self.queues), default=0)

    def find(self, at: int) -> Tail:
        """The end, searched from the beginning of a record on. Corrupt places are passed over: readers find them."""
        while True:
            place, stop, last = _walk(self.file, at)
            if stop is None or closes(stop, place, self.file):
                return self._tail(self.file.end)
            if self._is_end(place):
                return self._tail(place) if last is None or not self._is_torn(last) else self._torn_last(place, last)
            if torn := self._torn(place, stop):
                return Tail(place, torn=torn)
            sound = next_sound(self.queues, self.file, place, self.file.end)
            if sound is None:
                return Tail(place, fault=self._fault(place, stop))
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

    def _tail(self, end: int) -> Tail:
        ahead = sum(q.last.offset + 1 - q.first_from(end) for q in self.queues if q.last.physical >= end)
        return Tail(end, queue_ahead=ahead, fault=self._beyond(end))

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

    def _torn_last(self, end: int, last: Records) -> Tail:
        place = int(last.head["physical_offset"][0])
        return Tail(place, torn=end - place)

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
