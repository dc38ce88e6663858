"""Outcomes of op items from one stretch of the log alone, over Arrow batches in a worker.

The half message, its final message and its op mostly stand close together, so that nothing else need be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfop.frame.errors import InputRefused
from halfop.landing.columns.op_items import items
from halfop.rocketmq.batches import FINAL, HALF, HEADS, OP
from halfop.rocketmq.buffers import Longs, Mask
from halfop.rocketmq.store.stretch import Stretch, read

_ENDABLE = (HALF, FINAL)
NEEDED = {kind: HEADS[kind] for kind in (HALF, FINAL, OP)}
# A final message has the body and the born time of its half message.
_SAME_AS_HALF = ("body_crc", "born_timestamp")


class StretchOutcomes:
    """Gathers a stretch's batches, then gives its op items with their outcomes.

    `committed_later` are half messages whose final messages stand in later stretches. If these are not known (None), no
    rollback is either. `rolled_back` are half messages that items name, once these are made.
    """

    def __init__(self, start: int, committed_later: Longs | None) -> None:
        self._start, self._committed_later = start, committed_later
        self._seen: dict[str, list[pa.RecordBatch]] = {kind: [] for kind in _ENDABLE}
        self._ops: list[pa.RecordBatch] = []
        self._gap = False
        self.rolled_back = np.zeros(0, np.int64)

    def see(self, batches: Mapping[str, pa.RecordBatch], gap: bool) -> None:
        """Adds a piece's batches. `gap`: whether a part could not be read, which may have held a final message."""
        self._gap |= gap
        for kind, seen in self._seen.items():
            if kind in batches:
                seen.append(batches[kind])
        if OP in batches:
            self._ops.append(batches[OP])

    def look_back(self, stretch: Stretch) -> None:
        """Adds the log right before the stretch, first of all: the stretch's first ops end half messages there."""
        if stretch.back is None:
            return
        try:
            pieces = list(read(stretch.back, {kind: HEADS[kind] for kind in _ENDABLE}))
        except InputRefused:  # it may have been deleted by now, and has landed long since
            return
        if pieces and pieces[-1].end == stretch.start and not any(piece.faults for piece in pieces):
            for piece in pieces:
                self.see(piece.batches, False)

    @property
    def reaching_back(self) -> Longs:
        """Half messages of earlier stretches whose final messages stand here."""
        prepared, places = (self._longs(FINAL, of) for of in ("prepared_transaction_offset", "physical_offset"))
        return np.unique(prepared[(places >= self._start) & (prepared < self._start)])

    def items(self) -> Iterator[pa.RecordBatch]:
        """Op messages split into items, each with its outcome if the op itself or this stretch alone settles it."""
        committed, rolled_back = self._ends()
        queues, offsets, halves = (self._longs(HALF, of) for of in ("queue_id", "queue_offset", "physical_offset"))
        for batch in self._ops:
            rows = items(batch)
            at = _places(rows, queues, offsets)
            found = (at >= 0) & pc.is_null(rows["outcome"]).to_numpy(zero_copy_only=False)
            outcome = np.where(found & committed[at], 0, 1)
            known = found & (committed[at] | rolled_back[at])
            self.rolled_back = np.union1d(self.rolled_back, halves[at[found & rolled_back[at]]])
            words = pa.array(["COMMIT", "ROLLBACK"]).take(pa.array(outcome, mask=~known))
            given = rows.schema.get_field_index("outcome")
            yield rows.set_column(given, "outcome", pc.coalesce(rows["outcome"], words))

    def _ends(self) -> tuple[Mask, Mask]:
        """Marks half messages that were committed, and those that were rolled back; the last entry stands for none."""
        places = self._longs(HALF, "physical_offset")
        committed, rolled_back = (np.zeros(len(places) + 1, np.bool_) for _ in range(2))
        prepared = self._longs(FINAL, "prepared_transaction_offset")
        at = np.searchsorted(places, prepared)
        finals = np.flatnonzero((at < len(places)) & (np.append(places, -1)[at] == prepared))
        named = at[finals]
        same = [self._longs(HALF, name)[named] == self._longs(FINAL, name)[finals] for name in _SAME_AS_HALF]
        # copies of final messages that a broker makes for a retry name place 0
        committed[named[np.logical_and.reduce(same) & (prepared[finals] > 0)]] = True
        if not self._gap and self._committed_later is not None:
            rolled_back[:-1] = ~np.isin(places, self._committed_later)
            rolled_back[named] = False  # a final message names it: unlike ones are left to the join
        return committed, rolled_back

    def _longs(self, kind: str, column: str) -> Longs:
        parts = [pc.cast(batch[column], pa.int64()).to_numpy() for batch in self._seen[kind]]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _places(rows: pa.RecordBatch, queues: Longs, offsets: Longs) -> Longs:
    """The index of the half message that each item names; -1: none."""
    asked_queues = rows["queue_id"].to_numpy()
    asked = rows["half_offset"].fill_null(-1).to_numpy()
    places = np.full(len(asked), -1, np.int64)
    for queue in np.unique(asked_queues):
        mine, asking = np.flatnonzero(queues == queue), asked_queues == queue
        in_order = mine[np.argsort(offsets[mine], kind="stable")]
        at = np.searchsorted(offsets[in_order], asked[asking])
        there = (asked[asking] >= 0) & (np.append(offsets[in_order], -1)[at] == asked[asking])
        places[asking] = np.where(there, np.append(in_order, -1)[at], -1)
    return places
