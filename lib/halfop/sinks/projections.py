"""Rows of the tables that get whole messages, made of Arrow columns.

So a worker that reads files, a query of Spark's and this process write the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfop.planning.run import Run, counts_delivered_at
from halfop.rocketmq import names
from halfop.rocketmq.message import COMPRESSED, FLAGS, decompressed
from halfop.values.reading import Reading
from halfop.warehouse.maps import without
from halfop.warehouse.schema import VALUE, VALUE_ERROR

# The columns that each takes from the decision, besides the half message.
PAYLOAD = {"COMMIT": ["op_queue_offset"], "DISCARD": ["check_times", "reason"], "CHECK": ["check_times"]}

_SHARED = ["broker_name", "body", "commit_log_offset", "offset_msg_id", "uniq_key", "producer_group", "real_topic"]
_AS_STORED = ["born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times", "flag"]
_AS_LANDED = [*_AS_STORED, "tags", "keys"]
_PLACE = ["queue_id", "queue_offset", "real_queue_id", "sys_flag", "properties"]
HALF = [*_SHARED, *_AS_LANDED, *_PLACE, "landed_at"]
_KEPT_BACK = pa.array(names.NOT_DELIVERED)
_INSTANT = pa.timestamp("us", tz="UTC")

Columns = Mapping[str, pa.Array]


class About(NamedTuple):
    """The values of a run in its rows; `now` in epoch microseconds. `delivered`: see `Run`, and the rule for others."""

    run_id: int
    now: int
    decompress: bool
    delivered: Mapping[str, bool]
    others_delivered: bool

    @staticmethod
    def of(run: Run) -> About:
        others = counts_delivered_at(run.settings.rules.count)
        return About(run.run_id, run.now_micros, run.settings.topics.decompress, dict(run.delivered), others)

    def counts_later(self, brokers: pa.Array) -> pa.Array:
        """Returns 1 if a question does not count yet, 0 if the decision has counted it."""
        found = [self.delivered.get(broker, self.others_delivered) for broker in brokers.to_pylist()]
        return pa.array(found, pa.bool_()).cast(pa.int32())


class Form(NamedTuple):
    """The form of rows: what was decided, and of a topic how its bodies become values, in a column of this name."""

    decision: str
    reading: Reading | None = None
    value: str = VALUE


def projected(rows: pa.RecordBatch, form: Form, about: About) -> dict[str, pa.Array]:
    """The columns of the table that gets messages decided so, from half messages with what the decision adds."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    made = _PROJECTIONS[form.decision](columns, about)
    if form.reading is None:
        return made
    plain = made["body"] if about.decompress else _plain(columns)[0]
    values, reasons = form.reading.values(plain)
    return made | {form.value: values, VALUE_ERROR: reasons}


def projected_each(
    rows: pa.RecordBatch, numbers: pa.Array, kind: pa.StructType, forms: Mapping[int, Form], about: About
) -> pa.StructArray:
    """The columns for rows whose forms have these numbers, in their order; columns that a form lacks are null."""
    same: dict[Form, list[int]] = {}
    for number, form in forms.items():
        same.setdefault(form, []).append(number)
    parts, places = [], []
    for form, of_form in same.items():
        mine = np.flatnonzero(np.isin(numbers.to_numpy(), of_form))
        if not len(mine):
            continue
        columns = projected(rows.take(pa.array(mine)), form, about)
        nulls = {field.name: pa.nulls(len(mine), field.type) for field in kind}
        cells = [(nulls | columns)[field.name].cast(field.type) for field in kind]
        parts.append(pa.StructArray.from_arrays(cells, fields=list(kind)))
        places.append(mine)
    if not parts:
        return pa.array([], kind)
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_arrays(parts).take(pa.array(order))


# ---- each table's columns ----


def _committed(rows: Columns, about: About) -> dict[str, pa.Array]:
    body, flag = _plain(rows) if about.decompress else (rows["body"], pc.fill_null(rows["sys_flag"], 0))
    flag = pc.bit_wise_and(flag, pa.scalar(~names.TRANSACTION_TYPE_MASK, pa.int32()))
    return _same(rows, "broker_name", *_AS_LANDED, "op_queue_offset") | {
        "body": body,
        "topic": rows["real_topic"],
        "queue_id": rows["real_queue_id"],
        "sys_flag": pc.bit_wise_or(flag, pa.scalar(names.TRANSACTION_COMMIT, pa.int32())),
        "prepared_transaction_offset": rows["commit_log_offset"],
        "transaction_id": rows["uniq_key"],
        "properties": without(rows["properties"], _KEPT_BACK),
        "half_queue_id": rows["queue_id"],
        "half_queue_offset": rows["queue_offset"],
        **_by_run(len(body), about, "committed_at"),
    }


def _discarded(rows: Columns, about: About) -> dict[str, pa.Array]:
    as_landed = _same(rows, *HALF, "reason", "check_times")
    return as_landed | _by_run(len(rows["body"]), about, "discarded_at")


def _requested(rows: Columns, about: About) -> dict[str, pa.Array]:
    has_key = pc.not_equal(pc.fill_null(rows["uniq_key"], ""), "")
    return _same(rows, *_SHARED, *_AS_STORED, "real_queue_id", "sys_flag", "properties") | {
        "check_times": pc.add(rows["check_times"], about.counts_later(rows["broker_name"])),
        "request_id": _request_ids(rows, about.run_id),
        "msg_id": pc.if_else(has_key, rows["uniq_key"], rows["offset_msg_id"]),
        "half_queue_id": rows["queue_id"],
        "tran_state_table_offset": rows["queue_offset"],
        **_by_run(len(rows["body"]), about, "requested_at"),
    }


_PROJECTIONS = {"COMMIT": _committed, "DISCARD": _discarded, "CHECK": _requested}


def _same(rows: Columns, *columns: str) -> dict[str, pa.Array]:
    return {column: rows[column] for column in columns}


def _by_run(number: int, about: About, at: str) -> dict[str, pa.Array]:
    return {
        "run_id": pa.repeat(pa.scalar(about.run_id, pa.int64()), number),
        at: pa.repeat(pa.scalar(about.now, pa.int64()), number).cast(_INSTANT),
    }


def _request_ids(rows: Columns, run_id: int) -> pa.Array:
    """Returns the requests' ids, which are equal however often the run is replayed."""
    keys = zip(*(rows[c].to_pylist() for c in ("broker_name", "queue_id", "queue_offset")), strict=True)
    texts = ("/".join(map(str, (run_id, *key))) for key in keys)
    return pa.array([hashlib.sha256(text.encode()).hexdigest() for text in texts], pa.string())


# ---- cells ----


def _plain(rows: Columns) -> tuple[pa.Array, pa.Array]:
    """Bodies and flags without compression; both unchanged if there is none, or if it cannot be undone."""
    return without_compression(rows["body"], pc.fill_null(rows["sys_flag"], 0))


def without_compression(bodies: pa.Array, flags: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns bodies without compression, and the flags that say so."""
    is_compressed = pc.not_equal(pc.bit_wise_and(flags, COMPRESSED), 0)
    if not pc.any(is_compressed).as_py():
        return bodies, flags
    undone = [
        decompressed(body.as_py(), flag.as_py()) if mine and body.is_valid else None
        for body, flag, mine in zip(bodies, flags, is_compressed.to_pylist(), strict=True)
    ]
    found = pa.array(undone, pa.binary())
    plain = pc.bit_wise_and(flags, pa.scalar(~FLAGS, pa.int32()))
    return pc.coalesce(found, bodies), pc.if_else(pc.is_valid(found), plain, flags)
