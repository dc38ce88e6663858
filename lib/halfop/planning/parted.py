"""Tasks that decide a large run's plain half messages, from files to files, and write what is left to others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfop.columns.by_key import ByKey, by_queue, numbers
from halfop.columns.key_sets import NOWHERE
from halfop.planning.plain import (
    ENDED,
    HALVES_LEFT,
    OPS_LEFT,
    About,
    Halves,
    Keys,
    Mask,
    Ops,
    in_slice,
    some_columns,
    sound,
)
from halfop.warehouse.disk import DataFile, Disk
from halfop.warehouse.splits import ParquetPart, PartWriter, repeating

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


def _decisions(halves: pa.RecordBatch, ops: pa.RecordBatch, about: About) -> pa.RecordBatch:
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
