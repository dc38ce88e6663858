"""Survey of a store: what each stretch of its commit log holds, checked before any of it lands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfop.frame.errors import InputRefused
from halfop.landing.op_outcomes import StretchOutcomes
from halfop.landing.progress import OffsetSpan, Queue
from halfop.rocketmq.batches import HEADS, KINDS
from halfop.rocketmq.buffers import Longs
from halfop.rocketmq.store.commitlog import Fault
from halfop.rocketmq.store.stretch import LogPiece, Stretch, read

_MOST_FAULTS = 10_000
_MOST_REACHING_BACK, _MOST_REACHING_BACK_OF_ONE = 500_000, 20_000


class QueueRows(NamedTuple):
    """The rows of one kind in one queue."""

    kind: str
    queue_id: int
    span: OffsetSpan
    rows: int

    def joined(self, other: QueueRows) -> QueueRows:
        return self._replace(span=self.span.joined(other.span), rows=self.rows + other.rows)


class Surveyed(NamedTuple):
    """One stretch's part of a survey. `reaching_back` is None if these are too many."""

    start: int
    end: int
    records: int
    newest: int | None
    faults: Sequence[Fault]
    queues: Sequence[QueueRows]
    reaching_back: Longs | None
    items: int


class StretchSurvey:
    """Reads a stretch once, and checks all of it."""

    def __init__(self, stretch: Stretch) -> None:
        self._stretch = stretch
        self._records, self._newest, self._end = 0, list[int](), stretch.start
        self._faults, self._queues = list[Fault](), dict[tuple[str, int], QueueRows]()
        self.outcomes = StretchOutcomes(stretch.start, np.zeros(0, np.int64))

    def pieces(self, skip_corrupt: bool) -> Iterator[LogPiece]:
        """The stretch's pieces; the survey is whole when all have been taken."""
        self.outcomes.look_back(self._stretch)
        for piece in read(self._stretch, HEADS, skip_corrupt):
            self._note(piece)
            yield piece
            if len(self._faults) > _MOST_FAULTS:
                break

    def _note(self, piece: LogPiece) -> None:
        self.outcomes.see(piece.batches, bool(piece.faults))
        self._records, self._end = self._records + piece.records, piece.end
        self._newest += [] if piece.newest_store_ms is None else [piece.newest_store_ms]
        self._faults += piece.faults
        for found in (rows for kind, batch in piece.batches.items() for rows in _queues(kind, batch)):
            before = self._queues.get(found[:2])
            self._queues[found[:2]] = found if before is None else before.joined(found)

    @cached_property
    def items(self) -> list[pa.RecordBatch]:
        """The op items, with the outcomes that the stretch settles if no later one says otherwise."""
        return list(self.outcomes.items())

    def result(self) -> Surveyed:
        back = self.outcomes.reaching_back
        return Surveyed(
            self._stretch.start,
            self._end,
            self._records,
            max(self._newest, default=None),
            self._faults,
            list(self._queues.values()),
            back if len(back) <= _MOST_REACHING_BACK_OF_ONE else None,
            sum(map(len, self.items)),
        )


def _queues(kind: str, batch: pa.RecordBatch) -> Iterator[QueueRows]:
    of_queue = [("queue_offset", "min"), ("queue_offset", "max"), ("queue_offset", "count"), ("store_timestamp", "max")]
    found = pa.Table.from_batches([batch]).group_by("queue_id", use_threads=False).aggregate(of_queue)
    newest = pc.cast(found["store_timestamp_max"], pa.int64())
    columns = [found[f"queue_offset_{of}"].to_pylist() for of in ("min", "max", "count")]
    for queue, low, high, rows, at in zip(found["queue_id"].to_pylist(), *columns, newest.to_pylist(), strict=True):
        yield QueueRows(kind, queue, OffsetSpan(low, high, at), rows)


@dataclass(frozen=True)
class Survey:
    """Everything that the stretches hold, up to the first fault: only that is a consistent beginning of the log.

    If faults are skipped, `faults` are all of them, else the first one. `committed_later`: half messages whose final
    messages stand in a later stretch, None if these are too many. `items`: number of op items.
    """

    end: int
    records: int
    newest: int | None
    faults: tuple[Fault, ...]
    spans: dict[str, dict[Queue, OffsetSpan]]
    rows: dict[str, int]
    committed_later: Longs | None
    items: int


def whole_survey(found: Iterable[Surveyed], broker_name: str, start: int, skip_corrupt: bool) -> Survey:
    """The survey of a store from its stretches'; those after the first fault count only if faults are skipped."""
    ordered: list[Surveyed] = []
    for each in sorted(found, key=lambda each: (each.start, each.end)):
        ordered.append(each)
        if each.faults and not skip_corrupt:
            break
    faults = tuple(fault for each in ordered for fault in each.faults)
    spans: dict[str, dict[Queue, OffsetSpan]] = {kind: {} for kind in KINDS}
    counts = dict.fromkeys(KINDS, 0)
    for kind, queue_id, span, rows in (rows for each in ordered for rows in each.queues):
        queue = Queue(broker_name, queue_id)
        spans[kind][queue] = span.joined(spans[kind].get(queue, span))
        counts[kind] += rows
    end = faults[0].physical if faults and not skip_corrupt else ordered[-1].end if ordered else start
    newest = max((each.newest for each in ordered if each.newest is not None), default=None)
    records, items = sum(each.records for each in ordered), sum(each.items for each in ordered)
    return Survey(end, records, newest, faults, spans, counts, _committed_later(ordered), items)


def _committed_later(found: Iterable[Surveyed]) -> Longs | None:
    parts = [np.zeros(0, np.int64)]
    for each in found:
        if each.reaching_back is None:
            return None
        parts.append(each.reaching_back)
    return np.unique(np.concatenate(parts)) if sum(map(len, parts)) <= _MOST_REACHING_BACK else None


def refuse_too_many(found: Iterable[Surveyed]) -> None:
    """Raises InputRefused for a store of which nearly nothing is sound: skipping its faults would lose nearly all."""
    for each in found:
        if len(each.faults) > _MOST_FAULTS:
            problem = f"more than {_MOST_FAULTS} corrupt places one after the other, the first: {each.faults[0].text}"
            hint = "its consume queues or its log are damaged as a whole: repair the store, or land a sound copy"
            raise InputRefused(each.faults[0].file, each.faults[0].offset, problem, hint)
