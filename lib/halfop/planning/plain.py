"""The plain half messages of a large run, decided by Spark's Python workers from files to files.

Plain is a deliverable half message without a mark that one op without a header names: it ends as the op says, whatever
else the rules hold (lines 2 and 3). All others are left to the rules' own Columns, as rows of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfop.columns.by_key import ByKey
from halfop.rocketmq import names
from halfop.rocketmq.names import END_TAG
from halfop.warehouse.actions import DataFile
from halfop.warehouse.disk import Disk
from halfop.warehouse.splits import ParquetPart, PartWriter, Split, repeating

ENDED, LEFT = "ended", "left"  # the two kinds of files that a task writes
NARROW = [
    "broker_name",
    "queue_id",
    "queue_offset",
    "commit_log_offset",
    "uniq_key",
    "producer_group",
    "real_topic",
    "real_queue_id",
    "born_timestamp",
    "store_timestamp",
    "check_immunity",
    "landed_check_times",
    "landed_prepared_offset",
    "landed_at",
    "properties",
]
_REPEATING = ["broker_name", "producer_group", "real_topic"]
_HEADER = ["producer_group", "tran_state_table_offset", "commit_log_offset", "uniq_key"]
OP = ["broker_name", "queue_id", "queue_offset", "half_offset", "tag", "outcome", "from_check", *_HEADER]
_MARKS = pa.array([names.CHECK_TIMES, names.PREPARED_QUEUE_OFFSET])
_IMMUNITY = pa.array([names.CHECK_IMMUNITY])
_INSTANT = pa.timestamp("us", tz="UTC")
_ANYWHERE = (-(2**63), 2**63 - 1)
Mask = npt.NDArray[np.bool_]


class Share(NamedTuple):
    """What one task does. Of a sliced backlog it decides offsets from `low` to `high`, both included."""

    halves: Sequence[Split]
    ops: Sequence[Split]
    half_schema: pa.Schema
    op_schema: pa.Schema
    decisions: pa.Schema
    deliverable: Sequence[str]
    run_id: int
    now: int
    low: int
    high: int
    folders: Mapping[str, str]
    searched: Sequence[str]


class Decided(NamedTuple):
    """The files that a task has written, by kind, and how many of the half messages that it left are named by an op."""

    files: Mapping[str, list[DataFile]]
    named: int


def decide_share(share: Share, disk: Disk) -> Decided:
    """Decides the plain half messages of these files, and writes them and the others to files of their own."""
    pa.set_cpu_count(1)
    out, named = PartWriter(disk, share.folders, {ENDED: share.searched, LEFT: ()}), 0
    for split in share.halves:
        part = ParquetPart(disk, split, repeating(share.half_schema, *_REPEATING))
        ops = _sound_ops(share, disk, *(part.span("queue_offset") or _ANYWHERE))
        for batch in part.batches():
            here = _in_slice(batch, share)
            hit, found = ops.find(here)
            plain = _plain(here, share.deliverable)[hit] & ops_without_header(ops.rows)[found]
            ended = here.take(pa.array(hit[plain]))
            out.write(ENDED, _decisions(ended, ops.rows.take(pa.array(found[plain])), share))
            left = np.ones(len(here), bool)
            left[hit[plain]] = False
            out.write(LEFT, here.take(pa.array(np.flatnonzero(left))))
            named += int(np.count_nonzero(~plain))
    return Decided(out.close(), named)


def _sound_ops(share: Share, disk: Disk, low: int, high: int) -> ByKey:
    """The ops that end what they name: no two of them name the same half message."""
    found = [
        batch.filter(_sound(batch, low, high))
        for split in share.ops
        for batch in ParquetPart(disk, split, share.op_schema).between("half_offset", low, high).batches()
    ]
    return ByKey(pa.Table.from_batches(found, share.op_schema), "half_offset")


def _sound(ops: pa.RecordBatch, low: int, high: int) -> pa.Array:
    offset = ops["half_offset"]
    near = pc.and_(pc.greater_equal(offset, max(low, 0)), pc.less_equal(offset, high))
    ends = pc.is_in(ops["outcome"], value_set=pa.array(["COMMIT", "ROLLBACK"]))
    return pc.fill_null(pc.and_(pc.and_(near, ends), pc.equal(ops["tag"], END_TAG)), False)


def ops_without_header(ops: pa.RecordBatch) -> Mask:
    bare = np.ones(len(ops), bool)
    for name in _HEADER:
        bare &= _true(pc.is_null(ops[name]))
    return bare


def _in_slice(batch: pa.RecordBatch, share: Share) -> pa.RecordBatch:
    """Rows without an offset belong to the first slice."""
    if (share.low, share.high) == _ANYWHERE:
        return batch
    offset = batch["queue_offset"]
    mine = pc.and_(pc.greater_equal(offset, share.low), pc.less_equal(offset, share.high))
    return batch.filter(pc.fill_null(mine, share.low == _ANYWHERE[0]))


def _plain(halves: pa.RecordBatch, deliverable: Sequence[str]) -> Mask:
    """Whether each half message is deliverable and carries no mark of a check, in columns or properties."""
    plain = _true(pc.is_in(halves["real_topic"].cast(pa.string()), value_set=pa.array(deliverable, pa.string())))
    plain &= _true(pc.is_valid(halves["real_queue_id"]))
    for name in ("landed_check_times", "landed_prepared_offset"):
        plain &= _true(pc.is_null(_present(halves[name])))
    plain &= ~has_key(halves["properties"], _MARKS)
    unread = _true(pc.is_null(halves["check_immunity"])) & has_key(halves["properties"], _IMMUNITY)
    return plain & ~unread


def has_key(maps: pa.MapArray, keys: pa.Array) -> Mask:
    """Returns for each map whether it has one of these keys."""
    ends = maps.offsets.to_numpy()
    first, size = int(ends[0]), int(ends[-1] - ends[0])
    numbers = np.zeros(size + 1, np.int64)
    np.cumsum(_true(pc.is_in(maps.keys.slice(first, size), value_set=keys)), out=numbers[1:])
    found: Mask = numbers[ends[1:] - first] > numbers[ends[:-1] - first]
    return found


def _decisions(halves: pa.RecordBatch, ops: pa.RecordBatch, share: Share) -> pa.RecordBatch:
    """Rows of `decisions`: COMMIT or ROLLBACK, never asked, nothing else known."""
    size = len(halves)
    copied = ("queue_id", "queue_offset", "commit_log_offset", "real_queue_id", "born_timestamp", "store_timestamp")
    asked = pc.fill_null(ops["from_check"], False)
    cells: dict[str, pa.Array] = {name: halves[name] for name in ("broker_name", *copied)}
    cells |= {name: _present(halves[name]) for name in ("uniq_key", "producer_group", "real_topic", "check_immunity")}
    cells |= {
        "run_id": pa.repeat(pa.scalar(share.run_id, pa.int64()), size),
        "decision": ops["outcome"].dictionary_encode(),
        "reason": pc.if_else(asked, "CHECK", "PRODUCER").dictionary_encode(),
        "check_times": pa.repeat(pa.scalar(0, pa.int32()), size),
        "op_queue_offset": ops["queue_offset"],
        "decided_at": pa.repeat(pa.scalar(share.now, pa.int64()), size).cast(_INSTANT),
        "half_landed_at": halves["landed_at"],
        "repeated": pa.repeat(pa.scalar(False), size),
    }
    columns = [cells[f.name] if f.name in cells else pa.nulls(size, f.type) for f in share.decisions]
    return pa.RecordBatch.from_arrays(columns, names=share.decisions.names)


def _present(texts: pa.Array) -> pa.Array:
    """As `columns.values.present`: a broker's store loses empty values."""
    if pa.types.is_dictionary(texts.type):
        if "" not in texts.dictionary.to_pylist():
            return texts
        texts = texts.cast(pa.string())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _true(column: pa.Array) -> Mask:
    """Null is False."""
    found: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return found
