"""A stretch of a broker's commit log, read by one worker as checked Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from halfop.rocketmq.batches import BATCH, Build, by_queue, kinds_of, numbered, wrong_times
from halfop.rocketmq.buffers import Longs, Mask
from halfop.rocketmq.names import (
    DISCARD_TOPIC,
    HALF_TOPICS,
    OP_TOPICS,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    TRANSACTION_TYPE_MASK,
)
from halfop.rocketmq.record import Chain, Records
from halfop.rocketmq.store.commitlog import Fault, StoreFile, closes, windows
from halfop.rocketmq.store.consumequeue import NOTHING, ConsumeQueue, ConsumeQueues, next_sound, present

_CLOCK_STEP_MS = 3_600_000


@dataclass(frozen=True)
class Stretch:
    """A part of one log file, from a record's beginning to another's, or to the file's end, or the log's.

    `dispatched`: the end of what consume queues named when the stretch was cut. `fault`: the corrupt place at its end.
    `sound`: it has been checked, and nothing was wrong. `back`: a few MiB of the log right before it.
    """

    root: str
    file: StoreFile
    start: int
    end: int
    dispatched: int
    fault: Fault | None = None
    sound: bool = False
    back: Stretch | None = None


@dataclass(frozen=True)
class LogPiece:
    """A few MiB of the log. The newest store time is that of all records, not only of those in batches.

    `kept` are the records of the batches.
    """

    start: int
    end: int
    records: int = 0
    newest_store_ms: int | None = None
    batches: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    faults: Sequence[Fault] = ()
    kept: Mapping[str, Records] = field(default_factory=dict)


def read(stretch: Stretch, build: Mapping[str, Build] = BATCH, skip_corrupt: bool = False) -> Iterator[LogPiece]:
    """The stretch's pieces in order, with batches of the kinds that are to be built, none of them empty.

    The first fault ends the reading, after the good rows before it; with `skip_corrupt` reading goes on after the bytes
    that each fault loses. Rows have passed all checks: inner lengths, physical offset, and, unless the stretch is known
    to be sound, consume queue and CRCs.
    """
    reader, at = _Reader(stretch, build, skip_corrupt), stretch.start
    while at < stretch.end:
        for piece in reader.pieces(at):
            yield piece
            if piece.faults and not skip_corrupt:
                return
            at = piece.end
    if stretch.fault:
        yield LogPiece(stretch.end, stretch.fault.lost_until, faults=(stretch.fault,))


class _Reader:
    def __init__(self, stretch: Stretch, build: Mapping[str, Build], skip_corrupt: bool) -> None:
        self._stretch, self._build, self._skip = stretch, build, skip_corrupt
        self._queues = ConsumeQueues(stretch.root)

    def pieces(self, start: int) -> Iterator[LogPiece]:
        """The pieces from a record's beginning to the stretch's end, or to the first thing that is no record."""
        check = CrossCheck(self._queues, start, self._stretch.dispatched)
        for at, found in windows(self._stretch.file, start, self._stretch.end):
            piece = self._piece(at, found, check)
            stop = self._stop(at, found)
            if stop and (self._skip or not piece.faults):
                piece = replace(piece, end=stop.lost_until, faults=(*piece.faults, stop))
            yield replace(piece, end=self._stretch.end) if found.stop and not stop else piece

    def _piece(self, at: int, found: Chain, check: CrossCheck) -> LogPiece:
        topics = found.records.topics()
        records = numbered(found.records, topics)
        rows = {kind: np.flatnonzero(mask) for kind, mask in kinds_of(records, topics).items()}
        wanted = {kind: records.select(rows[kind]) for kind in self._build if len(rows[kind])}
        faults: dict[int, Fault] = {}
        if not self._stretch.sound:
            in_batches = np.isin(np.arange(len(records)), np.concatenate(list(rows.values())))
            for fault in (*check.check(records, topics, in_batches), *self._by_content(wanted)):
                faults.setdefault(fault.physical, fault)
        shown = sorted(faults.values(), key=lambda fault: fault.physical)
        end, before = at + found.end, records
        if shown and not self._skip:
            shown, end = shown[:1], shown[0].physical
            before = records.select(records.longs("physical_offset") < end)
        good = {kind: _without(some, faults, end) for kind, some in wanted.items()}
        kept = {kind: some for kind, some in good.items() if len(some)}
        batches = {kind: self._build[kind](some) for kind, some in kept.items()}
        return LogPiece(at, end, len(before), _newest(before.store_ms), batches, tuple(shown), kept)

    def _by_content(self, wanted: Mapping[str, Records]) -> Iterator[Fault]:
        for records in wanted.values():
            for code, wrong, text in (
                ("crc", records.wrong_body_crc(), "the body does not match its CRC"),
                ("crc", records.wrong_property_crc(), "the record does not match the CRC in its properties"),
                ("time", wrong_times(records.store_ms), "the store time is not in the years 1 to 9999"),
            ):
                for row in np.flatnonzero(wrong):
                    place = int(records.head["physical_offset"][row])
                    yield self._in_log(code, place, place + int(records.head["size"][row]), text)

    def _stop(self, at: int, found: Chain) -> Fault | None:
        """The fault that ends the chain before the stretch's end; None if none does."""
        stop, file = found.stop, self._stretch.file
        if stop is None or (closes(stop, at + stop.position, file) and self._stretch.end == file.end):
            return None
        place = at + stop.position
        sound = next_sound(self._queues.all(), file, place, self._stretch.end)
        return self._in_log(stop.code, place, self._stretch.end if sound is None else sound, stop.text)

    def _in_log(self, code: str, physical: int, lost_until: int, text: str) -> Fault:
        file = self._stretch.file
        return Fault(code, file.path, physical - file.first, physical, lost_until, text)


def _without(records: Records, faults: Mapping[int, Fault], end: int) -> Records:
    places = records.longs("physical_offset")
    if not faults:
        return records
    return records.select((places < end) & ~np.isin(places, list(faults)))


def _newest(store_ms: Longs) -> int | None:
    """The newest store time. No checksum covers it: a time much later than the following record's is passed over."""
    likely = np.append(store_ms[:-1] <= store_ms[1:] + _CLOCK_STEP_MS, True)[: len(store_ms)] & ~wrong_times(store_ms)
    return int(store_ms[likely].max()) if likely.any() else None


_READ_WHOLE = (*HALF_TOPICS, *OP_TOPICS, DISCARD_TOPIC)
# CommitLog gives records of these types queue offset 0, and no unit; half messages and ops are of neither.
_NOT_DISPATCHED = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)
_QUEUE = "queue"
_AHEAD = "unit"


Queued = tuple[str, int, Longs]  # topic, queue and rows of a queue's records among the checked ones


class CrossCheck:
    """Checks pieces of the log, one after the other, from physical offset `start` on.

    A unit names each record below `dispatched`, unless its topic was deleted, or it is of a type that gets none.
    """

    def __init__(self, queues: ConsumeQueues, start: int, dispatched: int) -> None:
        self._queues, self._dispatched, self._at = queues, dispatched, start
        self._next: dict[ConsumeQueue, int] = {}
        self._without_queue: set[tuple[str, int]] = set()

    def check(self, records: Records, topics: pa.DictionaryArray, wanted: Mask) -> Iterator[Fault]:
        """The piece's faults; of several about a record, the first one counts."""
        if not self._queues.exist or not len(records):
            return
        offsets, places = records.longs("queue_offset"), records.longs("physical_offset")
        piece, lost = _PieceCheck(records, offsets, places, self._at), list[int]()
        dispatched = ~np.isin(records.head["sys_flag"] & TRANSACTION_TYPE_MASK, _NOT_DISPATCHED)
        queued = [
            (topic, queue_id, rows if topic in _READ_WHOLE else rows[dispatched[rows]])
            for topic, queue_id, rows in by_queue(records, topics, wanted)
        ]
        for topic, queue_id, rows in queued:
            queue = self._queues.get(topic, queue_id)
            wrong, absent = piece.against_units(queue, rows)
            yield from wrong
            if (topic, queue_id) not in self._without_queue:
                lost += [row for row in absent if places[row] < self._dispatched]
                self._without_queue.add((topic, queue_id)) if absent and queue is None else None
        yield from piece.named_elsewhere(self._queues, np.array(sorted(lost), np.int64))
        yield from self._units_without_record(piece, queued)
        yield from self._of_no_queue(piece, queued)
        self._at = piece.end

    def _of_no_queue(self, piece: _PieceCheck, queued: list[Queued]) -> Iterator[Fault]:
        """Records of a queue that is not there, though another of its topic is: no broker removes one alone."""
        for topic, queue_id, rows in queued:
            if topic not in _READ_WHOLE or self._queues.get(topic, queue_id):
                continue
            if other := next(self._queues.of(topic), None):
                yield from piece.of_no_queue(other, queue_id, rows[piece.places[rows] < self._dispatched])

    def _units_without_record(self, piece: _PieceCheck, queued: list[Queued]) -> Iterator[Fault]:
        rows = {(topic, queue_id): mine for topic, queue_id, mine in queued}
        for topic in _READ_WHOLE:
            for queue in self._queues.of(topic):
                following = self._next.get(queue)
                if following is None:
                    following = queue.first_from(piece.start)
                mine = rows.pop((queue.topic, queue.queue_id), np.zeros(0, np.int64))
                known = np.concatenate([[following - 1], piece.offsets[mine]])
                yield from piece.unmatched(queue, known)
                self._next[queue] = int(known[-1]) + 1
        for (topic, queue_id), mine in rows.items():
            if some := self._queues.get(topic, queue_id):
                yield from piece.unmatched(some, piece.offsets[mine])


@dataclass(frozen=True)
class _PieceCheck:
    records: Records
    offsets: Longs
    places: Longs
    start: int

    @property
    def end(self) -> int:
        return int(self.places[-1] + self.records.sizes[-1])

    def against_units(self, queue: ConsumeQueue | None, rows: Longs) -> tuple[list[Fault], list[int]]:
        """Records that their unit contradicts, and rows of records that may be without a unit yet."""
        if queue is None:
            return [], rows.tolist()
        units, last = queue.at(self.offsets[rows]), NOTHING
        if not present(units).all():  # again, because more may have been dispatched meanwhile
            last, units = queue.surely_last, queue.at(self.offsets[rows])
        there = present(units)
        agrees = (units["physical"] == self.places[rows]) & (units["size"] == self.records.head["size"][rows])
        after_last = (self.offsets[rows] > last.offset) & (self.places[rows] > last.physical)
        wrong = [self._contradiction(queue, int(rows[n]), units[n]) for n in np.flatnonzero(there & ~agrees)]
        wrong += [self._missing(queue, int(row), last.offset) for row in rows[~there & ~after_last]]
        return wrong, rows[~there & after_last].tolist()

    def of_no_queue(self, other: ConsumeQueue, queue_id: int, rows: Longs) -> Iterator[Fault]:
        """Records of a queue that is not there; the faults name another of its topic."""
        for row in rows.tolist():
            text = f"the record is of queue {queue_id}, of which there is no consume queue"
            yield self._fault(other, int(self.offsets[row]), row, _QUEUE, text)

    def unmatched(self, queue: ConsumeQueue, known: Longs) -> Iterator[Fault]:
        """Units right after a known offset that name a place in the piece, though the next known offset is another."""
        ends = np.append(known[1:] != known[:-1] + 1, True)
        offsets = known[ends] + 1
        units = queue.at(offsets)
        inside = present(units) & (units["physical"] >= self.start) & (units["physical"] < self.end)
        for offset, unit in zip(offsets[inside].tolist(), units[inside], strict=True):
            text = f"the unit names physical offset {unit['physical']}, where no record of queue offset {offset} is"
            yield self._fault(queue, offset, self._row(int(unit["physical"])), _AHEAD, text)

    def named_elsewhere(self, queues: ConsumeQueues, rows: Longs) -> Iterator[Fault]:
        """Records that a unit of another queue names, though their own queue has none."""
        if not len(rows):
            return
        places = self.places[rows]
        for queue in queues.all():
            low, high = queue.first_from(int(places[0])), queue.first_from(int(places[-1]) + 1)
            units = queue.upto(low, min(high - low, len(self.places)))
            for n in np.flatnonzero(np.isin(units["physical"], places)):
                place = int(units["physical"][n])
                text = f"the unit names physical offset {place}, where a record of another queue is"
                yield self._fault(queue, low + int(n), self._row(place), _AHEAD, text)

    def _row(self, place: int) -> int:
        return max(int(np.searchsorted(self.places, place, side="right")) - 1, 0)

    def _contradiction(self, queue: ConsumeQueue, row: int, unit: np.void) -> Fault:
        found = f"the unit names physical offset {unit['physical']} and {unit['size']} bytes"
        text = f"{found}, the record is at {self.places[row]} with {self.records.head['size'][row]}"
        return self._fault(queue, int(self.offsets[row]), row, _QUEUE, text)

    def _missing(self, queue: ConsumeQueue, row: int, last: int) -> Fault:
        found = f"no unit of queue offset {self.offsets[row]}, but the queue reaches to {last}"
        return self._fault(queue, int(self.offsets[row]), row, _QUEUE, found)

    def _fault(self, queue: ConsumeQueue, offset: int, row: int, code: str, text: str) -> Fault:
        place = int(self.places[row])
        return Fault(code, *queue.place(offset), place, place + int(self.records.sizes[row]), text)
