"""Many millions of rows of half_messages and op_messages, made by Spark's Python workers with Arrow.

The same shape as those of `generate`: 20 topics, 7 groups, bodies that do not compress, 500 offsets an op message.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from generate import BORN, PER_OP, TOPICS
from halfop.warehouse.disk import DataFile, Disk
from halfop.warehouse.parquet import arrow_schema, searched
from halfop.warehouse.schema import table
from halfop.warehouse.splits import PartWriter
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.workers import in_workers

BODY = 150  # bytes
PER_SECOND = 10_000  # messages
_FILE, _BATCH = 1_000_000, 50_000
_BROKER = "broker-a"
_MADE = {column.name for column in table("half_messages").columns if column.made}
_MADE_BY_LANDING = _MADE | {"landed_at", "source", "physical_offset", "record_size"}
_INSTANT = pa.timestamp("us", tz="UTC")
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
Numbers = npt.NDArray[np.int64]
Cells = tuple[dict[str, pa.Array], int]  # columns that are given, and the number of rows


class Stretch(NamedTuple):
    """The messages at offsets `first` to `first + count`, of so many groups; of a hundred, `open` have no op."""

    first: int
    count: int
    open: int = 2
    landed_at: int = BORN * 1000
    groups: int = 7


class _Part(NamedTuple):
    """The work of one task: a file of a table."""

    name: str
    folder: str
    schema: pa.Schema
    searched: Sequence[str]
    stretch: Stretch


def land(warehouse: Warehouse, stretch: Stretch) -> None:
    """Adds the rows to the warehouse's tables, as a landing leaves them."""
    for name in ("half_messages", "op_messages"):
        warehouse.make(name)
        files = _made(warehouse, name, warehouse.path(name), stretch)
        if files:
            warehouse.commit_files(name, files)


def write_inputs(warehouse: Warehouse, stretch: Stretch, half: str, op: str) -> None:
    """Writes the rows to folders of Parquet files for `land files`."""
    for name, folder in (("half_messages", half), ("op_messages", op)):
        _made(warehouse, name, folder, stretch, _MADE_BY_LANDING)


def _made(
    warehouse: Warehouse, name: str, folder: str, stretch: Stretch, without: Collection[str] = ()
) -> list[DataFile]:
    spec, last = table(name), stretch.first + stretch.count
    schema = pa.schema([field for field in arrow_schema(spec.struct) if field.name not in without])
    whole = _Part(name, warehouse.files.qualified(folder), schema, searched(spec), stretch)
    parts = [
        whole._replace(stretch=stretch._replace(first=first, count=min(_FILE, last - first)))
        for first in range(stretch.first, last, _FILE)
    ]
    return [file for each in in_workers(warehouse, parts, _write) for file in each]


def _write(part: _Part, disk: Disk) -> list[DataFile]:
    out = PartWriter(disk, {part.name: part.folder}, {part.name: part.searched})
    make = {"half_messages": half_messages, "op_messages": op_messages}[part.name]
    last = part.stretch.first + part.stretch.count
    for first in range(part.stretch.first, last, _BATCH):
        cells, size = make(part.stretch._replace(first=first, count=min(_BATCH, last - first)))
        columns = [cells[f.name].cast(f.type) if f.name in cells else pa.nulls(size, f.type) for f in part.schema]
        out.write(part.name, pa.RecordBatch.from_arrays(columns, names=part.schema.names))
    return out.close().get(part.name, [])


def half_messages(stretch: Stretch) -> Cells:
    offsets = _offsets(stretch)
    rng = np.random.default_rng(stretch.first)
    topic, queue = _drawn(offsets, "topic", TOPICS), _drawn(offsets, "queue", 8)
    topics, groups = _names("Topic", topic), _names("group", _drawn(offsets, "group", stretch.groups))
    keys = _hex(rng.integers(0, 256, (len(offsets), 16), np.uint8))
    born = _born(offsets)
    cells = {
        "broker_name": _same(_BROKER, len(offsets)),
        "queue_id": _same(0, len(offsets)),
        "queue_offset": pa.array(offsets),
        "commit_log_offset": pa.array(offsets * 512),
        "offset_msg_id": _hex(_bytes_of(offsets * 512)),
        "uniq_key": keys,
        "producer_group": groups,
        "real_topic": topics,
        "real_queue_id": pa.array(queue, pa.int32()),
        "flag": _same(0, len(offsets)),
        "sys_flag": _same(0, len(offsets)),
        "reconsume_times": _same(0, len(offsets)),
        "born_timestamp": _instants(born),
        "store_timestamp": _instants(born + 1_000),
        "born_host": _same("127.0.0.1:10911", len(offsets)),
        "store_host": _same("127.0.0.1:10911", len(offsets)),
        "body": _texts(pa.binary(), np.frombuffer(rng.bytes(BODY * len(offsets)), np.uint8), BODY),
        "properties": _properties(topics, pa.array(queue).cast(pa.string()), groups, keys),
        "landed_at": _instants(np.full(len(offsets), stretch.landed_at)),
    }
    return cells, len(offsets)


def op_messages(stretch: Stretch) -> Cells:
    """90 % of the messages are committed, if 2 % are open."""
    offsets = _offsets(stretch)
    luck = _drawn(offsets, "fate", 100)
    ended = luck >= stretch.open
    offsets, committed = offsets[ended], luck[ended] < stretch.open + 90
    at = _instants(_born(offsets) + 1_000_000)
    cells = {
        "broker_name": _same(_BROKER, len(offsets)),
        "queue_id": _same(0, len(offsets)),
        "queue_offset": pa.array(offsets // PER_OP),
        "item": pa.array(offsets % PER_OP, pa.int32()),
        "tag": _same("d", len(offsets)),
        "body": pa.array(offsets).cast(pa.string()),
        "half_offset": pa.array(offsets),
        "outcome": pa.array(np.where(committed, "COMMIT", "ROLLBACK"), pa.string()),
        "from_check": _same(False, len(offsets)),
        "born_timestamp": at,
        "store_timestamp": at,
        "source": _same("FILES", len(offsets)),
        "landed_at": _instants(np.full(len(offsets), stretch.landed_at)),
    }
    return cells, len(offsets)


def _offsets(stretch: Stretch) -> Numbers:
    return np.arange(stretch.first, stretch.first + stretch.count, dtype=np.int64)


def _born(offsets: Numbers) -> Numbers:
    """Microseconds."""
    found: Numbers = BORN * 1000 + offsets * (1_000_000 // PER_SECOND)
    return found


def _drawn(offsets: Numbers, salt: str, of: int) -> Numbers:
    """A number below `of` for each offset, always the same: the offsets mixed as SplitMix64 does."""
    mixed = offsets.astype(np.uint64) + np.uint64(int.from_bytes(salt.encode()[:8], "big"))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    found: Numbers = ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(of)).astype(np.int64)
    return found


def _names(prefix: str, numbers: Numbers) -> pa.Array:
    names = pa.array([f"{prefix}{n}" for n in range(int(numbers.max(initial=0)) + 1)])
    return names.take(pa.array(numbers))


def _same(value: Any, size: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), size)


def _instants(micros: Numbers) -> pa.Array:
    return pa.array(micros).cast(_INSTANT)


def _bytes_of(numbers: Numbers) -> npt.NDArray[np.uint8]:
    wide = np.zeros((len(numbers), 16), np.uint8)
    wide[:, 8:] = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
    return wide


def _hex(rows: npt.NDArray[np.uint8]) -> pa.Array:
    digits = np.stack([_HEX[rows >> 4], _HEX[rows & 15]], axis=-1)
    return _texts(pa.string(), digits.reshape(-1), 2 * rows.shape[1])


def _texts(kind: pa.DataType, content: npt.NDArray[np.uint8], length: int) -> pa.Array:
    """Texts of one length, from their bytes one after the other."""
    size = len(content) // length
    ends = np.arange(size + 1, dtype=np.int32) * length
    return pa.Array.from_buffers(kind, size, [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(content))])


def _properties(topics: pa.Array, queues: pa.Array, groups: pa.Array, uniq_keys: pa.Array) -> pa.Array:
    size, yes = len(topics), pa.repeat(pa.scalar("true"), len(topics))
    values = {"REAL_TOPIC": topics, "REAL_QID": queues, "PGROUP": groups, "UNIQ_KEY": uniq_keys}
    values |= {"TRAN_MSG": yes, "WAIT": yes}
    names = pa.array(list(values)).take(pa.array(np.tile(np.arange(len(values)), size)))
    by_row = np.arange(len(values) * size).reshape(len(values), size).T.reshape(-1)
    cells = pa.concat_arrays(list(values.values())).take(pa.array(by_row))
    return pa.MapArray.from_arrays(pa.array(np.arange(size + 1, dtype=np.int32) * len(values)), names, cells)
