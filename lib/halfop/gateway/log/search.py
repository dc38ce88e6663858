"""The log searched for a text, as `mqadmin` asks for messages by key: a gateway has no index of keys.

The search goes from the newest record back, and stops after some gigabytes: whoever asks waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import time

from halfop.gateway.core.messages import FoundRecords
from halfop.gateway.log.files import LogFiles
from halfop.gateway.log.records import Readable, store_ms_at
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.rocketmq.record import MAGIC_V1, MAX_SIZE

_TOPICS = (HALF_TOPIC, OP_TOPIC)
_MOST_BYTES = 2 << 30  # that one search reads
_PIECE = 1 << 20  # small: nothing else of the process runs while one is searched
_NEAR = 64 << 10  # most records have their beginning so near
_MAGIC = MAGIC_V1.to_bytes(4, "big")
_CANDIDATE = 64 << 10  # what a try to read a record costs, in bytes of the search
Wanted = Callable[[bytes], bool]


class Searchable(Readable):
    """A log in which records can be found by what they contain."""

    def find(self, text: bytes, wanted: Wanted, since_ms: int, until_ms: int, most: int) -> FoundRecords:
        """The newest records that contain the text, were stored then, and are `wanted`; at most so many."""
        low, high = self._span(since_ms, until_ms)
        search = _Search(self, self._files, text)
        found = dict[int, bytes]()
        at = high
        while at > low and len(found) < most and search.left > 0:
            begin = max(low, self._files.begin_of(at - 1), at - _PIECE)
            newest = sorted(search.records(begin, at).items(), reverse=True)
            found |= {place: record for place, record in newest if place not in found and wanted(record)}
            at = begin
        return FoundRecords(list(found.values())[:most], self._searched_since(at, since_ms))

    def _span(self, since_ms: int, until_ms: int) -> tuple[int, int]:
        """Places between which all records of that time are, and few others."""
        low, high = self._files.first, self.flushed_to
        for topic in _TOPICS:
            first, after = (self.offset_at(topic, 0, each) for each in (since_ms, until_ms + 1))
            for unit in self.units(topic, 0, first - 1, 1):
                low = max(low, unit.physical)
            for unit in self.units(topic, 0, after, 1):
                high = min(high, unit.physical)
        return low, high

    def _searched_since(self, at: int, since_ms: int) -> int | None:
        """From when on all has been searched; None if nothing that is asked for was ever stored before."""
        if not at:
            return None
        known = [queue for queue in (self._queues.known(topic, 0) for topic in _TOPICS) if queue]
        units = [unit for queue in known for unit in queue.units(queue.first_from(at), 1)]
        stored = [store_ms_at(self._files, unit.physical) for unit in units]
        oldest = min((each for each in stored if each is not None), default=int(time() * 1000))
        return oldest if oldest > since_ms else None


class _Search:
    """Where a text is in a log's bytes, and the records that have it; `left` bytes may still be read."""

    def __init__(self, log: Readable, files: LogFiles, text: bytes) -> None:
        self._log, self._files, self._text, self.left = log, files, text, _MOST_BYTES

    def records(self, begin: int, end: int) -> dict[int, bytes]:
        """By place, the records that have the text in these bytes, which are of one file."""
        content = self._read(begin, end - begin + len(self._text) - 1)
        found, at = dict[int, bytes](), 0
        while (hit := content.find(self._text, at)) >= 0 and self.left > 0:
            place, record = self._around(begin + hit) or (begin + hit, b"")
            if record:
                found[place] = record
            at = max(place + len(record) - begin, hit + 1)
        return found

    def _around(self, at: int) -> tuple[int, bytes] | None:
        """The record that has the byte at this place, and its own place."""
        for back in (_NEAR, MAX_SIZE):
            for place in self._candidates(at, back):
                record = self._log.record(place)
                if record is not None:
                    return (place, record) if place + len(record) > at else None
        return None

    def _candidates(self, at: int, back: int) -> Iterator[int]:
        """Places before where a record may begin, the nearest first."""
        begin = max(at - back, self._files.begin_of(at))
        content = self._read(begin, at - begin)
        mark = len(content)
        while (mark := content.rfind(_MAGIC, 0, mark)) >= 4 and self.left > 0:
            self.left -= _CANDIDATE
            yield begin + mark - 4

    def _read(self, at: int, length: int) -> bytes:
        self.left -= length
        return self._files.read(at, length)
