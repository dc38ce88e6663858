"""Survey of a store: what each stretch of its commit log holds, checked before any of it lands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from halfop.frame.errors import InputRefused
from halfop.landing.outcomes.within_stretch import StretchOutcomes
from halfop.landing.queues import OffsetSpan, Queue
from halfop.rocketmq.batches import HEADS, KINDS
from halfop.rocketmq.buffers import Longs
from halfop.rocketmq.store.fault import Fault
from halfop.rocketmq.store.stretch import Stretch, read

_MOST_FAULTS = 10_000
_MOST_REACHING_BACK, _MOST_REACHING_BACK_OF_ONE = 500_000, 20_000
_FAULT = pa.struct(
    {"code": pa.string(), "file": pa.string(), "offset": pa.int64(), "physical": pa.int64()}
    | {"lost_until": pa.int64(), "text": pa.string()}
)
_LONGS = dict.fromkeys(("low", "high", "rows", "newest"), pa.int64())
_SPAN = pa.struct({"kind": pa.string(), "queue_id": pa.int32()} | _LONGS)
SURVEY = pa.schema(
    dict.fromkeys(("start", "end", "records", "newest", "items", "unsettled"), pa.int64())
    | {"faults": pa.list_(_FAULT), "spans": pa.list_(_SPAN), "reaching_back": pa.binary()}
)


def surveyed(stretch: Stretch, skip_corrupt: bool) -> pa.RecordBatch:
    """A stretch's survey in one row, after everything in the stretch has been checked."""
    records, newest, end = 0, None, stretch.start
    faults: list[Fault] = []
    spans: list[dict[str, object]] = []
    found = StretchOutcomes(stretch.start, np.zeros(0, np.int64))
    found.look_back(stretch)
    for piece in read(stretch, HEADS, skip_corrupt):
        found.see(piece.batches, bool(piece.faults))
        records, end = records + piece.records, piece.end
        newest = max((n for n in (newest, piece.newest_store_ms) if n is not None), default=None)
        faults += piece.faults
        spans += [span for kind, batch in piece.batches.items() for span in _spans(kind, batch)]
        if len(faults) > _MOST_FAULTS:
            break
    row: dict[str, object] = {"start": stretch.start, "end": end, "records": records, "newest": newest}
    row |= {"faults": [asdict(fault) for fault in faults], "spans": _joined(spans)}
    reaching_back = found.reaching_back
    row["reaching_back"] = reaching_back.tobytes() if len(reaching_back) <= _MOST_REACHING_BACK_OF_ONE else None
    outcomes = [items["outcome"] for items in found.items()]
    row |= {"items": sum(map(len, outcomes)), "unsettled": sum(each.null_count for each in outcomes)}
    return pa.RecordBatch.from_pylist([row], schema=SURVEY)


def _spans(kind: str, batch: pa.RecordBatch) -> list[dict[str, object]]:
    of_queue = [("queue_offset", "min"), ("queue_offset", "max"), ("queue_offset", "count"), ("store_timestamp", "max")]
    found = pa.Table.from_batches([batch]).group_by("queue_id").aggregate(of_queue)
    newest = pc.cast(found["store_timestamp_max"], pa.int64())
    columns = [found[f"queue_offset_{of}"].to_pylist() for of in ("min", "max", "count")]
    rows = zip(found["queue_id"].to_pylist(), *columns, newest.to_pylist(), strict=True)
    return [{"kind": kind} | dict(zip(_SPAN_VALUES, row, strict=True)) for row in rows]


_SPAN_VALUES = ("queue_id", "low", "high", "rows", "newest")


def _joined(spans: list[dict[str, object]]) -> list[dict[str, object]]:
    """One span a kind and queue."""
    if not spans:
        return []
    table = pa.Table.from_pylist(spans, schema=pa.schema(list(_SPAN)))
    of = [("low", "min"), ("high", "max"), ("rows", "sum"), ("newest", "max")]
    found = table.group_by(["kind", "queue_id"]).aggregate(of)
    names = {"low_min": "low", "high_max": "high", "rows_sum": "rows", "newest_max": "newest"}
    return found.rename_columns([names.get(name, name) for name in found.column_names]).to_pylist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Survey:
    """Everything that the stretches hold, up to the first fault: only that is a consistent beginning of the log.

    If faults are skipped, `faults` are all of them, else the first one. `committed_later`: half messages whose final
    messages stand in a later stretch, None if these are too many. `items`: number of op items; `unsettled`: those
    whose outcome neither their own stretch nor the log right before it settles.
    """

    end: int
    records: int
    newest: int | None
    faults: tuple[Fault, ...]
    spans: dict[str, dict[Queue, OffsetSpan]]
    rows: dict[str, int]
    committed_later: Longs | None
    items: int
    unsettled: int

    @property
    def settled(self) -> bool:
        """Returns whether each item's outcome follows from its own stretch.

        An op that comes stretches before its final message, which no broker writes, lands without an outcome then, and
        again with it.
        """
        return not self.unsettled and not self.faults and self.committed_later is not None


def whole_survey(rows: Iterable[Row], broker_name: str, start: int, skip_corrupt: bool) -> Survey:
    """The survey of a store from its stretches' rows; rows after the first fault count only if faults are skipped."""
    ordered: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.start, row.end)):
        ordered.append(row)
        if row.faults and not skip_corrupt:
            break
    faults = tuple(Fault(**fault.asDict()) for row in ordered for fault in row.faults)
    spans: dict[str, dict[Queue, OffsetSpan]] = {kind: {} for kind in KINDS}
    counts = dict.fromkeys(KINDS, 0)
    for found in (span for row in ordered for span in row.spans):
        queue, span = Queue(broker_name, found.queue_id), OffsetSpan(found.low, found.high, found.newest)
        spans[found.kind][queue] = span.joined(spans[found.kind].get(queue, span))
        counts[found.kind] += found.rows
    end = faults[0].physical if faults and not skip_corrupt else ordered[-1].end if ordered else start
    newest = max((row.newest for row in ordered if row.newest is not None), default=None)
    later = _committed_later(ordered)
    records, items, unsettled = (sum(row[of] for row in ordered) for of in ("records", "items", "unsettled"))
    return Survey(end, records, newest, faults, spans, counts, later, items, unsettled)


def _committed_later(rows: Sequence[Row]) -> Longs | None:
    parts = [row.reaching_back for row in rows]
    if None in parts or sum(map(len, parts)) > _MOST_REACHING_BACK * 8:
        return None
    return np.unique(np.frombuffer(b"".join(parts), np.int64))


def refuse_too_many(rows: Iterable[Row]) -> None:
    """Raises InputRefused for a store of which nearly nothing is sound: skipping its faults would lose nearly all."""
    for row in rows:
        if len(row.faults) > _MOST_FAULTS:
            problem = f"more than {_MOST_FAULTS} corrupt places one after the other, the first: {row.faults[0].text}"
            hint = "its consume queues or its log are damaged as a whole: repair the store, or land a sound copy"
            raise InputRefused(row.faults[0].file, row.faults[0].offset, problem, hint)
