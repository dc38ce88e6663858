"""The contents of a store when it is opened: its end, its queues, and which half messages are open.

The log alone counts. Consume queues are written again from the checkpoint on; the state comes from all of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np

from halfop.frame.errors import InputRefused
from halfop.frame.trouble import named
from halfop.gateway.core.messages import OPPOSED, Half, State
from halfop.gateway.log.files import LogFiles
from halfop.gateway.log.queues import LogQueue, Queues
from halfop.gateway.log.records import Codes, ends_of, halves_of, tags_code
from halfop.gateway.log.store import Checkpoint
from halfop.rocketmq import names
from halfop.rocketmq.batches import by_queue
from halfop.rocketmq.buffers import Longs
from halfop.rocketmq.names import WHOLE_CRC
from halfop.rocketmq.properties import Properties
from halfop.rocketmq.record import PROPERTY_CRC_TAIL, ChainStop, Records, chain
from halfop.rocketmq.store.commitlog import StoreFile, closes, store_files, windows
from halfop.rocketmq.store.consumequeue import UNIT

# the bytes of a CRC property that are the same in every record: its name, and the marks before and after the digits
_MARKS = np.array([*range(9), PROPERTY_CRC_TAIL - 1])
_MARKED = np.frombuffer(WHOLE_CRC.encode() + b"\x01\x02", np.uint8)
_MOST_TORN = 128 << 20  # bytes that one flush may have had under way; a gateway appends nothing more before it is done

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recovered:
    """The log's end, its newest store time, the state, and committed half messages that lack their ops."""

    end: int
    newest_ms: int
    state: State
    lacking_ops: list[Half]


def recover(files: LogFiles, queues: Queues, checkpoint: Checkpoint) -> Recovered:
    """Reads the log, cuts it at its first bad record, and writes log and queues again from the checkpoint on."""
    checked = checkpoint.checked if any(queues) else 0
    scan, found, ends = Scan(files.folder, checked), _Found(), dict[tuple[str, int], int]()
    for queue in queues:
        queue.recover(scan.first, checked)
    for records in scan.stretches():
        fresh = records.select(records.longs("physical_offset") >= checked)
        _refuse_out_of_order(files.folder, fresh, queues, rebuilt=not checked)
        _dispatch(fresh, queues)
        found.add(records)
        ends |= _ends(records)
    _refuse_short(files.folder, ends, queues)
    end = scan.end
    if end.damaged:
        _log.warning("the log is cut at physical offset %s, where a crash left something: %s", end.at, end.why)
        files.cut(end.at)
    files.write_again(checkpoint.checked, end.at)
    return found.recovered(files, end.at, queues.get(names.HALF_TOPIC, 0), checkpoint.newest_ms)


# ---- consume queues ----


def _ends(records: Records) -> dict[tuple[str, int], int]:
    """The offset after the last record of each queue, by topic and queue id."""
    topics, numbers = records.topics(), records.longs("queue_id")
    width = int(numbers.max(initial=0)) + 1
    following = np.zeros(len(topics.dictionary) * width, np.int64)
    following[topics.indices.to_numpy() * width + numbers] = records.longs("queue_offset") + 1
    known = [topic.decode() for topic in topics.dictionary.to_pylist()]
    return {(known[at // width], at % width): int(following[at]) for at in np.flatnonzero(following).tolist()}


def _refuse_short(folder: Path, ends: Mapping[tuple[str, int], int], queues: Queues) -> None:
    """Raises InputRefused if a queue lacks its last units: the next message would get an offset that it has had."""
    for (topic, number), end in ends.items():
        if (queue := queues.get(topic, number)).next < end:
            problem = f"the log has offsets up to {end - 1} of queue {number} of {topic}"
            raise InputRefused(folder, None, problem, _hint(queue))


def _hint(queue: LogQueue) -> str:
    return f"the queue's files end at {queue.next}: remove the folder consumequeue, it is written again"


def _refuse_out_of_order(folder: Path, records: Records, queues: Queues, rebuilt: bool) -> None:
    """Raises InputRefused if a sound record has not the next offset of its queue.

    `rebuilt`: no unit was kept, so that a queue may begin with any offset.
    """
    offsets = records.longs("queue_offset")
    for topic, number, rows in by_queue(records, records.topics()):
        queue = queues.get(topic, number)
        begin = int(offsets[rows[0]]) if rebuilt and not queue.next else queue.next
        wrong = offsets[rows] != np.arange(begin, begin + len(rows))
        if wrong.any():
            row = rows[np.argmax(wrong)]
            place, offset = int(records.longs("physical_offset")[row]), int(offsets[row])
            problem = f"the record at physical offset {place} has offset {offset} of queue {number} of {topic}"
            raise InputRefused(folder, None, problem, _hint(queue))


def _dispatch(fresh: Records, queues: Queues) -> None:
    """Writes the units of records that no unit names yet."""
    if not len(fresh):
        return
    tags = Properties(fresh).strings(names.TAGS).dictionary_encode()
    codes = np.array([*(tags_code(tag.encode()) for tag in tags.dictionary.to_pylist()), 0], np.int64)
    units = np.zeros(len(fresh), UNIT)
    units["physical"], units["size"] = fresh.longs("physical_offset"), fresh.sizes
    units["tags"] = codes[tags.indices.fill_null(len(codes) - 1).to_numpy()]
    for topic, number, rows in by_queue(fresh, fresh.topics()):
        _write(queues.get(topic, number), int(fresh.longs("queue_offset")[rows[0]]), units[rows].tobytes())


def _write(queue: LogQueue, offset: int, units: bytes) -> None:
    with named(queue.folder):
        if not queue.next:
            queue.begin(offset)
        queue.write(offset, units)
    queue.next = queue.flushed = offset + len(units) // UNIT.itemsize


# ---- state ----


class _Found:
    """Half messages, ends and final messages of the log, stretch by stretch, as numbers only."""

    def __init__(self) -> None:
        self._halves: list[tuple[Longs, Longs, Longs]] = []
        self._ends: list[tuple[Longs, Codes]] = []
        self._finals: list[Longs] = []
        self._newest_ms = 0

    def add(self, records: Records) -> None:
        topics = records.topics()
        kinds = [{names.HALF_TOPIC: 1, names.OP_TOPIC: 2}.get(t.decode(), 0) for t in topics.dictionary.to_pylist()]
        kind = np.array([*kinds, 0], np.int8)[topics.indices.to_numpy()]
        halves, ops = records.select(kind == 1), records.select(kind == 2)
        finals = records.select(
            (kind == 0) & (records.longs("sys_flag") & names.TRANSACTION_TYPE_MASK == names.TRANSACTION_COMMIT)
        )
        self._halves.append((halves.longs("queue_offset"), halves.longs("physical_offset"), halves.sizes))
        self._ends.append(ends_of(ops))
        self._finals.append(finals.longs("prepared_offset"))
        self._newest_ms = max(self._newest_ms, int(records.store_ms.max(initial=0)))

    def recovered(self, files: LogFiles, end: int, half_queue: LogQueue, newest_ms: int) -> Recovered:
        offsets, places, sizes = (
            (np.concatenate([_NONE, *parts]) for parts in zip(*self._halves, strict=True))
            if self._halves
            else (_NONE,) * 3
        )
        first = int(offsets[0]) if len(offsets) else half_queue.next
        codes = self._codes(first, len(offsets))
        open_rows = codes == 0
        halves = _read(files, places[open_rows], sizes[open_rows])
        finals = np.isin(places[open_rows], np.concatenate([_NONE, *self._finals]))
        state = State(first, codes.tobytes(), halves)
        return Recovered(end, max(self._newest_ms, newest_ms), state, list(compress(halves, finals)))

    def _codes(self, first: int, number: int) -> Codes:
        """The codes of State: of several ops, the first one says the outcome, and another one may oppose it."""
        named = np.concatenate([_NONE, *(offsets for offsets, _ in self._ends)]) - first
        said = np.concatenate([np.zeros(0, np.uint8), *(codes for _, codes in self._ends)])
        there = (named >= 0) & (named < number)
        named, said = named[there], said[there]
        codes = np.zeros(number, np.uint8)
        codes[named[::-1]] = said[::-1]
        codes[named[said != codes[named]]] |= OPPOSED
        return codes


_NONE = np.zeros(0, np.int64)
_NEAR = 8 << 20


def _read(files: LogFiles, places: Longs, sizes: Longs) -> list[Half]:
    """The half messages at these places, which ascend; neighbours are read in one go."""
    found: list[Half] = []
    at = 0
    while at < len(places):
        begin = int(places[at])
        near = min(begin + _NEAR, files.begin_of(begin) + files.size)
        end = max(int(np.searchsorted(places, near)), at + 1)
        length = int(places[end - 1] + sizes[end - 1]) - begin
        content = memoryview(files.read(begin, length))
        parts = [
            content[p : p + s] for p, s in zip((places[at:end] - begin).tolist(), sizes[at:end].tolist(), strict=True)
        ]
        found += halves_of(chain(b"".join(parts)).records)
        at = end
    return found


# ---- the log, from its first file to its end ----


@dataclass(frozen=True)
class LogEnd:
    """The place after the last sound record, and why there is no other; `damaged`: something was written there."""

    at: int
    why: str
    damaged: bool


class Scan:
    """The log's stretches of sound records in their order; after the last one, `end` is set.

    Records from physical offset `checked` on must match their CRCs. Before that the log is known to be sound: anything
    else there is damage that no crash makes, and is refused.
    """

    def __init__(self, folder: Path, checked: int) -> None:
        self._files, self._checked = store_files(folder), checked
        self._folder = folder
        self.end = LogEnd(self._files[0].first if self._files else 0, "the log is empty", False)

    @property
    def first(self) -> int:
        """The log's first physical offset."""
        return self._files[0].first if self._files else 0

    def stretches(self) -> Iterator[Records]:
        for file in self._files:
            self.end = LogEnd(file.first, "the file ends", False)
            for base, found in windows(file, file.first, file.end):
                records, bad = self._sound(found.records)
                if len(records):
                    yield records
                if bad is not None:
                    self.end = LogEnd(*bad, damaged=True)
                    self._refuse_before_checked()
                    return
                self.end = LogEnd(base + found.end, "the file ends", False)
                if found.stop and not closes(found.stop, self.end.at, file):
                    self._stopped(file, found.stop)
                    return
                if found.stop:  # what comes next is in the next file, also if a crash has left none
                    self.end = LogEnd(file.end, "the file ends", False)
        self._refuse_before_checked()

    def _stopped(self, file: StoreFile, stop: ChainStop) -> None:
        at = self.end.at
        later = any(not each.zeros(each.first) for each in self._files if each.first > at)
        self.end = LogEnd(at, stop.text, later or not file.zeros(at, _MOST_TORN))
        self._refuse_before_checked()

    def _refuse_before_checked(self) -> None:
        if self.end.at < self._checked:
            problem = (
                f"the log ends at physical offset {self.end.at} ({self.end.why}), but was sound up to {self._checked}"
            )
            raise InputRefused(self._folder, None, problem, "the disk or a person has changed it: restore the store")

    def _sound(self, records: Records) -> tuple[Records, tuple[int, str] | None]:
        """The records before the first that does not match its CRCs, and what is wrong with that one."""
        lacks = ~records.has_property_crc()
        self._refuse_foreign(records.select(lacks))
        fresh = records.longs("physical_offset") >= self._checked
        if not fresh.any():
            return records, None
        wrong = fresh & (lacks | records.wrong_body_crc() | records.wrong_property_crc())
        if not wrong.any():
            return records, None
        first = int(np.argmax(wrong))
        return records.select(slice(first)), (int(records.longs("physical_offset")[first]), "a record fails its CRC")

    def _refuse_foreign(self, lacking: Records) -> None:
        """Raises InputRefused if a whole record has nothing like our CRC at its end: no crash leaves that."""
        for end, at in zip(lacking.ends.tolist(), lacking.longs("physical_offset").tolist(), strict=True):
            tail = lacking.buffer[end - PROPERTY_CRC_TAIL : end]
            like = int((tail[_MARKS] == _MARKED).sum())
            if tail[-1] and like < len(_MARKED) - 2:
                problem = f"the record at physical offset {at} has no CRC of its own: another program has written it"
                raise InputRefused(self._folder, None, problem, "a broker has run over this store; take a new folder")
