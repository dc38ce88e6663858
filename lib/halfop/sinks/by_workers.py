"""Whole messages of a large run, written by Spark's Python workers straight from files to files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfop.columns.keys import ByKey
from halfop.planning.counts import covers
from halfop.sinks.messages import trimmed_before_those
from halfop.sinks.projections import HALF, About, Form, in_pieces, projected
from halfop.sinks.targets import Target, WholeMessages
from halfop.warehouse.disk import DataFile, Disk
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.parquet import arrow_schema, searched
from halfop.warehouse.schema import table
from halfop.warehouse.splits import ParquetPart, PartWriter, Split, repeating, span
from halfop.warehouse.table_files import listed_files
from halfop.warehouse.where import equal
from halfop.warehouse.workers import in_workers, ordered_parts

_MOST_FILES = 4_000


def writing_tasks(store: KernelWarehouse, whole: WholeMessages) -> int:
    """Returns the number of tasks that write: each may write a file of each table."""
    return max(1, min(store.tasks(whole.rows), _MOST_FILES // len(whole.due)))


def written_by_workers(store: KernelWarehouse, whole: WholeMessages) -> dict[int, list[DataFile]] | None:
    """Writes the messages that landed once into their tables' folders; None if Spark must read or write them."""
    if trimmed_before_those(store, whole.run, whole.digest.ranges(whole.decisions)) is not None:
        return None
    shares = _shares(store, whole)
    if shares is None:
        return None
    found: dict[int, list[DataFile]] = {}
    for written in in_workers(store, shares, write_share):
        for target, files in written.items():
            found.setdefault(target, []).extend(files)
    return found


def _shares(store: KernelWarehouse, whole: WholeMessages) -> list[BodyShare] | None:
    run, near = whole.run, covers(whole.digest.ranges(whole.decisions), "queue_offset")
    halves = listed_files(store, "half_messages", run.inputs["half_messages"], near)
    decided = listed_files(store, "decisions", None, equal("run_id", run.run_id))
    if not halves or decided is None:
        return None
    parts = ordered_parts(store, halves, writing_tasks(store, whole), "broker_name", "queue_offset")
    decisions = [Split(file.path, 0, file.size) for file in decided]
    return [_share(store, whole, part, decisions) for part in parts]


def _share(
    store: KernelWarehouse, whole: WholeMessages, halves: Sequence[Split], decisions: Sequence[Split]
) -> BodyShare:
    landed, decided = (arrow_schema(table(name).struct) for name in ("half_messages", "decisions"))
    payload = [decided.field(name) for name in whole.payload]
    places = {n: _place(store, whole, target) for n, target in whole.due.items()}
    return BodyShare(halves, decisions, pa.schema([landed.field(name) for name in HALF]), payload, places, whole.about)


def _place(store: KernelWarehouse, whole: WholeMessages, target: Target) -> TablePlace:
    topic = target.topic if target.decision == "COMMIT" and whole.a_table_a_topic else None
    folder = store.uri(target.path)
    return TablePlace(Form(target.decision, target.reading), topic, folder, target.spec.names, searched(target.spec))


_REPEATING = ["broker_name", "producer_group", "real_topic", "born_host", "store_host"]
_DECIDED = [
    pa.field("run_id", pa.int64()),
    pa.field("broker_name", pa.string()),
    pa.field("queue_id", pa.int32()),
    pa.field("queue_offset", pa.int64()),
    pa.field("decision", pa.string()),
    pa.field("repeated", pa.bool_()),
    pa.field("copy_offset", pa.int64()),
]


class TablePlace(NamedTuple):
    """A table that rows go to: its folder, its columns, and those whose bounds are kept."""

    form: Form
    topic: str | None  # None: of all topics
    folder: str
    columns: Sequence[str]
    searched: Sequence[str]


class BodyShare(NamedTuple):
    """The work of one task."""

    halves: Sequence[Split]
    decisions: Sequence[Split]
    half_schema: pa.Schema
    payload: Sequence[pa.Field]
    places: Mapping[int, TablePlace]
    about: About


def write_share(share: BodyShare, disk: Disk) -> dict[int, list[DataFile]]:
    """Writes the messages of these files that the run decided so, each table's to files of their own."""
    pa.set_cpu_count(1)
    places = share.places
    out = PartWriter(disk, {n: p.folder for n, p in places.items()}, {n: p.searched for n, p in places.items()})
    schema = repeating(share.half_schema, *_REPEATING)
    decided = _decided(share, disk, *span(disk, share.halves, "queue_offset"))
    for split in share.halves if len(decided.rows) else ():
        for batch in ParquetPart(disk, split, schema).batches():
            for place, rows in _chosen(batch, decided, places):
                for piece in _as_table(rows, places[place], share.about):
                    out.write(place, piece)
    return out.close()


# ---- the run's decisions ----


def _decided(share: BodyShare, disk: Disk, low: int, high: int) -> ByKey:
    schema = pa.schema([*_DECIDED, *share.payload])
    found = [
        batch.filter(_mine(batch, share, low, high))
        for split in share.decisions
        for batch in ParquetPart(disk, split, schema).between("queue_offset", low, high).batches()
    ]
    return ByKey(pa.Table.from_batches(found, schema))


def _mine(batch: pa.RecordBatch, share: BodyShare, low: int, high: int) -> pa.Array:
    """The decisions of this run, for one of these tables, about messages that landed once."""
    wanted = pa.array(sorted({place.form.decision for place in share.places.values()}))
    offsets = batch["queue_offset"]
    near = pc.and_(pc.greater_equal(offsets, low), pc.less_equal(offsets, high))
    plain = pc.and_(pc.invert(batch["repeated"]), pc.is_null(batch["copy_offset"]))
    mine = pc.and_(pc.equal(batch["run_id"], share.about.run_id), pc.is_in(batch["decision"], value_set=wanted))
    return pc.fill_null(pc.and_(pc.and_(near, plain), mine), False)


# ---- half messages ----


def _chosen(
    batch: pa.RecordBatch, decided: ByKey, places: Mapping[int, TablePlace]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The half messages of each place, with what was decided about them."""
    hit, found = decided.find(batch)
    goes_to = _places(decided.rows["decision"].take(pa.array(found)), batch["real_topic"].take(pa.array(hit)), places)
    order = np.argsort(goes_to, kind="stable")
    order = order[goes_to[order] >= 0]
    numbers, starts = np.unique(goes_to[order], return_index=True)
    rows = _with_decisions(batch.take(pa.array(hit[order])), decided.rows.take(pa.array(found[order])))
    for number, (start, end) in zip(numbers, pairwise([*starts, len(order)]), strict=True):
        yield int(number), rows.slice(start, end - start)


def _with_decisions(rows: pa.RecordBatch, decisions: pa.RecordBatch) -> pa.RecordBatch:
    given = ["decision", *decisions.schema.names[len(_DECIDED) :]]
    columns = [*rows.columns, *(decisions[name] for name in given)]
    return pa.RecordBatch.from_arrays(columns, names=[*rows.schema.names, *given])


def _places(decisions: pa.Array, topics: pa.DictionaryArray, places: Mapping[int, TablePlace]) -> npt.NDArray[np.int64]:
    """The number of the place that each row goes to; -1 if its table has it already."""
    found = np.full(len(decisions), -1)
    for decision in {place.form.decision for place in places.values()}:
        mine = pc.equal(decisions, decision).to_numpy(zero_copy_only=False)
        of_topic = {p.topic: n for n, p in places.items() if p.form.decision == decision}
        if None in of_topic:
            found[mine] = of_topic[None]
        else:
            by_code = np.array([*(of_topic.get(name, -1) for name in topics.dictionary.to_pylist()), -1])
            found[mine] = by_code[pc.fill_null(topics.indices, -1).to_numpy()[mine]]
    return found


def _as_table(rows: pa.RecordBatch, place: TablePlace, about: About) -> Iterator[pa.RecordBatch]:
    """The table's columns; texts that repeat stay dictionaries."""
    for piece in in_pieces(rows, place.form, about):
        columns = projected(piece, place.form, about)
        yield pa.RecordBatch.from_arrays([columns[name] for name in place.columns], names=list(place.columns))
