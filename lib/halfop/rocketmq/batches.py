"""Records as Arrow batches, one schema for each kind that reconciliation reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfop.rocketmq import names
from halfop.rocketmq.buffers import Longs, Mask, gather
from halfop.rocketmq.message import host_text
from halfop.rocketmq.properties import Properties, decoded, strings
from halfop.rocketmq.record import Records

HALF, OP, FINAL, DISCARD = KINDS = ("half", "op", "final", "discard")
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
END_TRANSACTION = {
    "outcome": pa.string(),
    "from_check": pa.bool_(),
    "producer_group": pa.string(),
    "tran_state_table_offset": pa.int64(),
    "commit_log_offset": pa.int64(),
    "uniq_key": pa.string(),
}
_TIMESTAMP = pa.timestamp("us", "UTC")
_TOPICS = {
    **dict.fromkeys(names.HALF_TOPICS, HALF),
    **dict.fromkeys(names.OP_TOPICS, OP),
    names.DISCARD_TOPIC: DISCARD,
}
_HEX = np.frombuffer("".join(f"{n:02X}" for n in range(256)).encode(), np.uint16)


def kinds_of(records: Records, topics: pa.DictionaryArray) -> dict[str, Mask]:
    """Marks the records of each kind; most of a log is of none."""
    of_topic = [_TOPICS.get(decoded(topic)) for topic in topics.dictionary.to_pylist()]
    code = np.array([KINDS.index(kind) if kind else -1 for kind in of_topic], np.int8)[topics.indices.to_numpy()]
    committed = (records.head["sys_flag"] & names.TRANSACTION_TYPE_MASK) == names.TRANSACTION_COMMIT
    code = np.where((code < 0) & committed, KINDS.index(FINAL), code)
    return {kind: code == n for n, kind in enumerate(KINDS)}


def by_queue(
    records: Records, topics: pa.DictionaryArray, wanted: Mask | None = None
) -> Iterator[tuple[str, int, Longs]]:
    """Topic, queue and rows, in the log's order, of each queue's records; only of queues that hold a wanted one."""
    numbers = records.head["queue_id"]
    keys = topics.indices.to_numpy().astype(np.int64) << 32 | numbers.astype(np.uint32)
    rows = np.arange(len(keys)) if wanted is None else np.flatnonzero(np.isin(keys, np.unique(keys[wanted])))
    order = rows[np.argsort(keys[rows], kind="stable")]
    for mine in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(order) else ():
        yield decoded(topics.dictionary[int(keys[mine[0]]) >> 32].as_py()), int(numbers[mine[0]]), mine


def numbered(records: Records, topics: pa.DictionaryArray) -> Records:
    """The records of these topics, with the queue numbers under which they land."""
    apart = [decoded(topic) in names.ROCKSDB_TOPICS for topic in topics.dictionary.to_pylist()]
    if not any(apart):
        return records
    head = records.head.copy()
    head["queue_id"][np.array(apart)[topics.indices.to_numpy()]] += names.ROCKSDB_QUEUES
    return replace(records, head=head)


def half_batch(records: Records) -> pa.RecordBatch:
    """Rows of the half topic."""
    properties = Properties(records)
    return pa.RecordBatch.from_pydict(
        {
            "queue_id": _ints(records, "queue_id"),
            "queue_offset": _longs(records, "queue_offset"),
            "commit_log_offset": _longs(records, "physical_offset"),
            "offset_msg_id": _offset_msg_ids(records),
            "uniq_key": properties.strings(names.UNIQ_KEY),
            "producer_group": properties.strings(names.PRODUCER_GROUP),
            "real_topic": properties.strings(names.REAL_TOPIC),
            "real_queue_id": properties.ints(names.REAL_QUEUE_ID),
            "tags": properties.strings(names.TAGS),
            "keys": properties.strings(names.KEYS),
            "flag": _ints(records, "flag"),
            "sys_flag": _ints(records, "sys_flag"),
            "born_timestamp": _times(records.longs("born_ms")),
            "born_host": _host_texts(records.born_hosts()),
            "store_timestamp": _times(records.store_ms),
            "store_host": _host_texts(records.store_hosts()),
            "reconsume_times": _ints(records, "reconsume_times"),
            "body": records.bodies,
            "properties": properties.map(),
            "record_size": _ints(records, "size"),
        }
    )


def op_batch(records: Records) -> pa.RecordBatch:
    """Rows of the op topic; what END_TRANSACTION said is known only of a gateway's ops.

    The text of an op of a transaction in RocksDB is the place of its half message in the log.
    """
    properties = Properties(records)
    return pa.RecordBatch.from_pydict(
        {
            "queue_id": _ints(records, "queue_id"),
            "queue_offset": _longs(records, "queue_offset"),
            "physical_offset": _longs(records, "physical_offset"),
            "tag": properties.strings(names.TAGS),
            "body": _texts(records, properties),
            "born_timestamp": _times(records.longs("born_ms")),
            "store_timestamp": _times(records.store_ms),
            **_end_transaction(properties),
        }
    )


def _texts(records: Records, properties: Properties) -> pa.StringArray:
    by_place = records.head["queue_id"] >= names.ROCKSDB_QUEUES
    bodies = strings(records.bodies)
    return pc.if_else(by_place, properties.strings(names.TRANS_OFFSET), bodies) if by_place.any() else bodies


def _end_transaction(properties: Properties) -> dict[str, pa.Array]:
    """Columns of END_TRANSACTION as ops carry it; `outcome` is COMMIT, ROLLBACK or null."""
    said = properties.strings(names.END_OUTCOME)
    if said.null_count == len(said):
        return {name: pa.nulls(len(said), kind) for name, kind in END_TRANSACTION.items()}
    from_check = properties.strings(names.END_FROM_CHECK)
    found = {
        "outcome": pc.if_else(pc.is_in(said, pa.array(["COMMIT", "ROLLBACK"])), said, pa.scalar(None, pa.string())),
        "from_check": pc.if_else(pc.is_valid(from_check), pc.equal(from_check, "true"), None),
        "producer_group": properties.strings(names.END_GROUP),
        "tran_state_table_offset": properties.longs(names.END_STATE_TABLE_OFFSET),
        "commit_log_offset": properties.longs(names.END_COMMIT_LOG_OFFSET),
        "uniq_key": properties.strings(names.END_TRANSACTION_ID),
    }
    of_gateways = pc.is_valid(said)  # another's op may have some of these names by chance
    return {name: pc.if_else(of_gateways, each, pa.scalar(None, each.type)) for name, each in found.items()}


def final_batch(records: Records) -> pa.RecordBatch:
    """Rows of committed messages in their own topics."""
    return pa.RecordBatch.from_pydict(
        {
            "physical_offset": _longs(records, "physical_offset"),
            "prepared_transaction_offset": _longs(records, "prepared_offset"),
            "topic": strings(records.topics().dictionary_decode()),
            "queue_id": _ints(records, "queue_id"),
            "queue_offset": _longs(records, "queue_offset"),
            "uniq_key": Properties(records).strings(names.UNIQ_KEY),
            "store_timestamp": _times(records.store_ms),
        }
    )


def discard_batch(records: Records) -> pa.RecordBatch:
    """Rows of the topic of messages that the broker discarded after the last check."""
    properties = Properties(records)
    return pa.RecordBatch.from_pydict(
        {
            "physical_offset": _longs(records, "physical_offset"),
            "queue_id": _ints(records, "queue_id"),
            "queue_offset": _longs(records, "queue_offset"),
            "uniq_key": properties.strings(names.UNIQ_KEY),
            "producer_group": properties.strings(names.PRODUCER_GROUP),
            "born_timestamp": _times(records.longs("born_ms")),
            "check_times": properties.ints(names.CHECK_TIMES),
            "store_timestamp": _times(records.store_ms),
        }
    )


def head_batch(records: Records) -> pa.RecordBatch:
    """Rows with what any record shows without its properties."""
    return pa.RecordBatch.from_pydict(
        {
            "queue_id": _ints(records, "queue_id"),
            "queue_offset": _longs(records, "queue_offset"),
            "physical_offset": _longs(records, "physical_offset"),
            "prepared_transaction_offset": _longs(records, "prepared_offset"),
            "body_crc": _ints(records, "body_crc"),
            "born_timestamp": _times(records.longs("born_ms")),
            "store_timestamp": _times(records.store_ms),
        }
    )


Build = Callable[[Records], pa.RecordBatch]
BATCH: dict[str, Build] = {
    HALF: half_batch,
    OP: op_batch,
    FINAL: final_batch,
    DISCARD: discard_batch,
}
# For a first look over a log: the bodies of ops, and the places of the other kinds.
HEADS: dict[str, Build] = {**dict.fromkeys(KINDS, head_batch), OP: op_batch}


def _fixed(records: Records, name: str, dtype: Any) -> pa.Array:
    return pa.array(records.longs(name).astype(dtype))


def _ints(records: Records, name: str) -> pa.Array:
    return _fixed(records, name, np.int32)


def _longs(records: Records, name: str) -> pa.Array:
    return _fixed(records, name, np.int64)


def wrong_times(ms: Longs) -> Mask:
    """Marks milliseconds that are no time that a table can hold."""
    return (ms < FIRST_MS) | (ms > LAST_MS)


def _times(ms: Longs) -> pa.Array:
    """Timestamps; a time outside of the years 1 to 9999 is put at their end: a client may send any born time."""
    return pa.array(np.clip(ms, FIRST_MS, LAST_MS) * 1000).view(_TIMESTAMP)


def _host_texts(hosts: pa.DictionaryArray) -> pa.StringArray:
    return pa.array([host_text(host) for host in hosts.dictionary.to_pylist()], pa.string()).take(hosts.indices)


def _offset_msg_ids(records: Records) -> pa.StringArray:
    """Ids as MessageDecoder.createMessageId makes them: address, port and physical offset in hex."""
    v6 = records.store_host_length == 20
    if not v6.any() or v6.all():
        return _ids_of_length(records)
    ids = pa.concat_arrays([_ids_of_length(records.select(~v6)), _ids_of_length(records.select(v6))])
    return ids.take(pa.array(np.argsort(np.argsort(v6, kind="stable"), kind="stable")))


def _ids_of_length(records: Records) -> pa.StringArray:
    """The ids of records whose store hosts are all of one address family."""
    length = int(records.store_host_length.max(initial=8))
    host = gather(records.buffer, records.store_host_at, f"V{length}").view(np.uint8).reshape(-1, length)
    offset = np.ascontiguousarray(records.head["physical_offset"]).view(np.uint8).reshape(-1, 8)
    text = pa.py_buffer(_HEX.take(np.hstack([host, offset])))
    width = 2 * (length + 8)
    offsets = pa.py_buffer(np.arange(0, (len(records) + 1) * width, width, dtype=np.int32))
    return pa.StringArray.from_buffers(len(records), offsets, text)
