"""Records against consume queues: each record's unit must name it, and each unit a record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from halfop.rocketmq.batches import by_queue
from halfop.rocketmq.buffers import Longs, Mask
from halfop.rocketmq.names import DISCARD_TOPIC, HALF_TOPICS, OP_TOPICS
from halfop.rocketmq.record import Records
from halfop.rocketmq.store.commitlog import Fault
from halfop.rocketmq.store.consumequeue import NOTHING, ConsumeQueue, ConsumeQueues, present

_READ_WHOLE = (*HALF_TOPICS, *OP_TOPICS, DISCARD_TOPIC)
_QUEUE = "queue"
_AHEAD = "unit"


Queued = tuple[str, int, Longs]  # topic, queue and rows of a queue's records among the checked ones


class CrossCheck:
    """Checks pieces of the log, one after the other, from physical offset `start` on.

    A unit names each record below `dispatched`, unless its topic was deleted.
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
        queued = list(by_queue(records, topics, wanted))
        for topic, queue_id, rows in queued:
            queue = self._queues.get(topic, queue_id)
            wrong, absent = piece.against_units(queue, rows)
            yield from wrong
            if (topic, queue_id) not in self._without_queue:
                lost += [row for row in absent if places[row] < self._dispatched]
                self._without_queue.add((topic, queue_id)) if absent and queue is None else None
        yield from piece.named_elsewhere(self._queues, np.array(sorted(lost), np.int64))
        yield from self._units_without_record(piece, queued)
        self._at = piece.end

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
