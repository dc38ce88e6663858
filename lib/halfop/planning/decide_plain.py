"""Tasks that decide a large run's plain half messages, from files to files, and leave the others in files of their own.

Plain is a deliverable half message without a mark that lands once, and that one op without a header names: it ends as
the op says (lines 2 and 3 of the rules).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfop.columns.key_sets import NOWHERE, OffsetSet
from halfop.columns.keys import ByKey, Queue, by_queue, numbers
from halfop.rocketmq import names
from halfop.rocketmq.names import END_TAG
from halfop.rules.halves import AS_LANDED
from halfop.warehouse.disk import DataFile, Disk
from halfop.warehouse.maps import entries, owners
from halfop.warehouse.splits import ANYWHERE, ParquetPart, PartWriter, Split, repeating

ENDED, HALVES_LEFT, OPS_LEFT = "ended", "halves_left", "ops_left"  # the kinds of files that tasks write
HALF = [*AS_LANDED, "landed_check_times", "landed_prepared_offset", "landed_wait", "landed_at"]
HEADER = ["producer_group", "tran_state_table_offset", "commit_log_offset", "uniq_key"]
_MARKS = {"landed_check_times": names.CHECK_TIMES, "landed_prepared_offset": names.PREPARED_QUEUE_OFFSET}
_PROPERTIES = {"check_immunity": names.CHECK_IMMUNITY, "landed_wait": names.WAIT, **_MARKS}
Mask = npt.NDArray[np.bool_]
Keys = Mapping[Queue, OffsetSet]


class RunFacts(NamedTuple):
    """The facts about a run that its tasks need. A slice takes half offsets from `low` to `high`, both included."""

    run_id: int
    now: int
    low: int
    high: int
    half_schema: pa.Schema
    op_schema: pa.Schema
    decisions: pa.Schema
    deliverable: Sequence[str]
    folders: Mapping[str, str]
    searched: Sequence[str]  # columns of decisions whose bounds are kept


@dataclass(frozen=True)
class Halves:
    """Files of half messages that one task reads; `plain` are those that it decides, `ops` the files that name them."""

    about: RunFacts
    splits: Sequence[Split]
    plain: Keys = field(default_factory=dict)
    ops: Sequence[Split] = ()


@dataclass(frozen=True)
class Ops:
    """Files of ops that one task reads; it leaves those that do not end a half message of `plain`."""

    about: RunFacts
    splits: Sequence[Split]
    plain: Keys = field(default_factory=dict)


def sound(ops: pa.RecordBatch) -> Mask:
    """Whether each op names a half offset and has an outcome; only such ops end anything."""
    ends = pc.is_in(ops["outcome"].cast(pa.string()), value_set=pa.array(["COMMIT", "ROLLBACK"]))
    named = pc.greater_equal(ops["half_offset"], 0)
    return true(pc.and_(pc.and_(named, ends), pc.equal(ops["tag"].cast(pa.string()), END_TAG)))


def without_header(ops: pa.RecordBatch) -> Mask:
    """Whether each op has no header to check."""
    bare = np.ones(len(ops), bool)
    for name in HEADER:
        bare &= true(pc.is_null(ops[name]))
    return bare


def in_slice(batch: pa.RecordBatch, about: RunFacts, offset: str = "queue_offset") -> pa.RecordBatch:
    """Rows without an offset belong to the first slice."""
    if (about.low, about.high) == ANYWHERE:
        return batch
    mine = pc.and_(pc.greater_equal(batch[offset], about.low), pc.less_equal(batch[offset], about.high))
    return batch.filter(pc.fill_null(mine, about.low == ANYWHERE[0]))


def fit(halves: pa.RecordBatch, deliverable: Sequence[str]) -> Mask:
    """Whether each half message is deliverable."""
    fit = true(pc.is_in(halves["real_topic"].cast(pa.string()), value_set=pa.array(deliverable, pa.string())))
    return fit & true(pc.greater_equal(halves["real_queue_id"], 0))


def only_in_properties(halves: pa.RecordBatch) -> dict[str, Mask]:
    """For each column, the rows in which it is null though the properties have it: a user's pipeline filled them.

    For `landed_wait` only rows that escaped: nearly all producers send WAIT=true.
    """
    null = {column: true(pc.is_null(halves[column])) for column in _PROPERTIES}
    columns = {name: column for column, name in _PROPERTIES.items() if np.any(null[column])}
    found = {column: np.zeros(len(halves), bool) for column in _PROPERTIES}
    for name, rows in owners(halves["properties"], [*columns]).items():
        found[columns[name]][rows] = True
        found[columns[name]] &= null[columns[name]]
    waiting = np.flatnonzero(found["landed_wait"])
    wait = entries(halves["properties"].take(pa.array(waiting)), [names.WAIT])[names.WAIT]
    found["landed_wait"][waiting] = true(pc.equal(wait, "false"))
    return found


def marked(halves: pa.RecordBatch, only: Mapping[str, Mask]) -> Mask:
    """Whether each half message carries a mark of a check or of an escape, in columns or properties."""
    marked = only["landed_wait"] | true(pc.equal(halves["landed_wait"], "false"))
    for name in _MARKS:
        marked |= only[name] | true(pc.not_equal(halves[name], ""))
    return marked


def some_columns(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns])


def true(column: pa.Array) -> Mask:
    """Null is False."""
    found: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return found


_ENDING = ["broker_name", "queue_id", "queue_offset", "half_offset", "tag", "outcome", "from_check"]
_INSTANT = pa.timestamp("us", tz="UTC")


def decide(share: Halves, disk: Disk) -> Mapping[str, list[DataFile]]:
    """Writes files of decisions on the plain half messages, and files of the others, by kind."""
    pa.set_cpu_count(1)
    out = PartWriter(disk, share.about.folders, {ENDED: share.about.searched, HALVES_LEFT: ()})
    schema = repeating(share.about.half_schema, "broker_name", "producer_group", "real_topic")
    ops = ByKey(_ending(share, disk), "half_offset")
    for split in share.splits:
        for batch in ParquetPart(disk, split, schema).batches():
            here = in_slice(batch, share.about)
            plain = _in_keys(here, "queue_offset", share.plain)
            out.write(HALVES_LEFT, here.filter(pa.array(~plain)))
            ended = here.filter(pa.array(plain))
            _, found = ops.find(ended)
            out.write(ENDED, _decisions(ended, ops.rows.take(pa.array(found)), share.about))
    return out.close()


def leave(share: Ops, disk: Disk) -> list[DataFile]:
    """Writes files of the ops that end no plain half message."""
    pa.set_cpu_count(1)
    out = PartWriter(disk, share.about.folders, {OPS_LEFT: ()})
    for split in share.splits:
        for batch in ParquetPart(disk, split, share.about.op_schema).batches():
            here = in_slice(batch, share.about, "half_offset")
            out.write(OPS_LEFT, here.filter(pa.array(~_ends(here, share.plain))))
    return out.close().get(OPS_LEFT, [])


def _ending(share: Halves, disk: Disk) -> pa.Table:
    """The ops that end the plain half messages: exactly one each."""
    schema = some_columns(share.about.op_schema, _ENDING)
    low, high = _span(share.plain)
    found = [
        batch.filter(pa.array(_ends(batch, share.plain)))
        for split in share.ops
        for batch in ParquetPart(disk, split, schema).between("half_offset", low, high).batches()
    ]
    return pa.Table.from_batches(found, schema)


def _ends(ops: pa.RecordBatch, plain: Keys) -> Mask:
    return sound(ops) & _in_keys(ops, "half_offset", plain)


def _span(keys: Keys) -> tuple[int, int]:
    spans = [offsets.span for offsets in keys.values()]
    return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else (1, 0)


def _in_keys(rows: pa.RecordBatch, offset: str, keys: Keys) -> Mask:
    found = np.zeros(len(rows), bool)
    for queue, places in by_queue(rows, offset):
        found[places] = keys.get(queue, NOWHERE).holds(numbers(rows[offset])[places])
    return found


def _decisions(halves: pa.RecordBatch, ops: pa.RecordBatch, about: RunFacts) -> pa.RecordBatch:
    """Rows of `decisions`: COMMIT or ROLLBACK, never asked, nothing else known."""
    size = len(halves)
    copied = ("queue_id", "queue_offset", "commit_log_offset", "real_queue_id", "born_timestamp", "store_timestamp")
    asked = pc.fill_null(ops["from_check"], False)
    cells: dict[str, pa.Array] = {name: halves[name] for name in ("broker_name", *copied)}
    cells |= {name: _present(halves[name]) for name in ("uniq_key", "producer_group", "real_topic", "check_immunity")}
    cells |= {
        "run_id": pa.repeat(pa.scalar(about.run_id, pa.int64()), size),
        "decision": ops["outcome"].dictionary_encode(),
        "reason": pc.if_else(asked, "CHECK", "PRODUCER").dictionary_encode(),
        "check_times": pa.repeat(pa.scalar(0, pa.int32()), size),
        "op_queue_offset": ops["queue_offset"],
        "decided_at": pa.repeat(pa.scalar(about.now, pa.int64()), size).cast(_INSTANT),
        "half_landed_at": halves["landed_at"],
        "repeated": pa.repeat(pa.scalar(False), size),
    }
    columns = [cells[f.name] if f.name in cells else pa.nulls(size, f.type) for f in about.decisions]
    return pa.RecordBatch.from_arrays(columns, names=about.decisions.names)


def _present(texts: pa.Array) -> pa.Array:
    """Does the same as `columns.values.present`: a broker's store loses empty values."""
    if pa.types.is_dictionary(texts.type):
        if "" not in texts.dictionary.to_pylist():
            return texts
        texts = texts.cast(pa.string())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
