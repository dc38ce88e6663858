"""The rows that a run writes about a half message with its body: committed, given up, asked about."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType

from halfop.planning.run import Run
from halfop.rocketmq import names
from halfop.rocketmq.compression import COMPRESSED, FLAGS, decompressed

# A column of half_messages or of the payload by name, or an expression over them.
Projection = Mapping[str, str | Column]

# What each takes from the decision beside the half message.
PAYLOAD = {"COMMIT": ["op_queue_offset"], "DISCARD": ["check_times", "reason"], "CHECK": ["check_times"]}

_SHARED = ["broker_name", "body", "commit_log_offset", "offset_msg_id", "uniq_key", "producer_group", "real_topic"]
_AS_LANDED = ["born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times", "flag", "tags", "keys"]


def projections(run: Run) -> dict[str, Projection]:
    """Columns by decision."""
    return {"COMMIT": _committed(run), "DISCARD": _discarded(run), "CHECK": _requested(run)}


def _committed(run: Run) -> Projection:
    undone = _decompressed() if run.settings.topics.decompress else None
    return _same("broker_name", *_AS_LANDED) | {
        "body": "body" if undone is None else F.coalesce(undone, "body"),
        "topic": "real_topic",
        "queue_id": "real_queue_id",
        "sys_flag": _committed_flag(undone),
        "prepared_transaction_offset": "commit_log_offset",
        "transaction_id": "uniq_key",
        "properties": _delivered_properties(),
        "half_queue_id": "queue_id",
        "half_queue_offset": "queue_offset",
        "op_queue_offset": "op_queue_offset",
        **_by_run(run, "committed_at"),
    }


def _discarded(run: Run) -> Projection:
    place = ("queue_id", "queue_offset", "real_queue_id", "sys_flag", "properties")
    return _same(*_SHARED, *_AS_LANDED, *place, "landed_at", "reason", "check_times") | _by_run(run, "discarded_at")


def _requested(run: Run) -> Projection:
    return _same(*_SHARED, "real_queue_id", "properties", "check_times") | {
        "request_id": F.sha2(F.concat_ws("/", F.lit(run.run_id), "broker_name", "queue_id", "queue_offset"), 256),
        "half_queue_id": "queue_id",
        "tran_state_table_offset": "queue_offset",
        **_by_run(run, "requested_at"),
    }


def _by_run(run: Run, at: str) -> dict[str, str | Column]:
    return {"run_id": F.lit(run.run_id).cast("bigint"), at: F.lit(run.now)}


def merged(parts: Mapping[str, Projection]) -> list[Column]:
    """One row shape for rows of several decisions: a column that a row's decision does not have is null."""
    found = {
        name: {d: part[name] for d, part in parts.items() if name in part} for part in parts.values() for name in part
    }
    return [_by_decision(values, len(parts)).alias(name) for name, values in found.items()]


def _by_decision(values: Mapping[str, str | Column], parts: int) -> Column:
    sources = list(values.values())
    if len(values) == parts and all(isinstance(s, str) and s == sources[0] for s in sources):
        return F.col(str(sources[0]))
    columns = {decision: F.col(s) if isinstance(s, str) else s for decision, s in values.items()}
    return F.coalesce(*[F.when(F.col("decision") == decision, column) for decision, column in columns.items()])


def _same(*columns: str) -> dict[str, str | Column]:
    return {column: column for column in columns}


def _decompressed() -> Column:
    """The body without its compression; null if it has none, or if it cannot be undone.

    Only if the user wants it, because each row passes through Python.
    """
    undo = arrow_udf(_undone, BinaryType())  # type: ignore[call-overload]
    column: Column = undo("body", F.coalesce("sys_flag", F.lit(0)))
    return column


def _undone(bodies: pa.Array, flags: pa.Array) -> pa.Array:
    rows = zip(bodies.to_pylist(), flags.to_pylist(), strict=True)
    return pa.array(
        [None if body is None or not flag & COMPRESSED else decompressed(body, flag) for body, flag in rows],
        pa.binary(),
    )


def _committed_flag(undone: Column | None) -> Column:
    flag = F.coalesce("sys_flag", F.lit(0)).bitwiseAND(F.lit(~names.TRANSACTION_TYPE_MASK))
    if undone is not None:
        flag = F.when(undone.isNotNull(), flag.bitwiseAND(F.lit(~FLAGS))).otherwise(flag)
    return flag.bitwiseOR(F.lit(names.TRANSACTION_COMMIT))


def _delivered_properties() -> Column:
    kept_back = (names.REAL_TOPIC, names.REAL_QUEUE_ID, names.TRAN_MSG)
    # map_concat of one map copies it into plain objects: each that map_filter reads from a packed row costs a look at
    # the session's settings
    return F.map_filter(F.map_concat("properties"), lambda name, _: ~name.isin(*kept_back))
