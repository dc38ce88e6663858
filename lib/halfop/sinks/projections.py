"""Rows of the tables that get whole messages, made of Arrow columns.

So a worker that reads files, a query of Spark's and this process write the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from halfop.planning.run import Run, counts_delivered_at
from halfop.rocketmq import names
from halfop.sinks.pieces import PLAIN, PLAIN_FLAG, Columns, plain_pieces, whole_piece
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


def in_pieces(rows: pa.RecordBatch, form: Form, about: About) -> Iterator[Columns]:
    """Half messages with what the decision adds, as `projected` takes them."""
    is_undone = form.decision == "COMMIT" and (about.decompress or form.reading is not None)
    return plain_pieces(rows) if is_undone else iter([whole_piece(rows)])


def projected(rows: Columns, form: Form, about: About) -> dict[str, pa.Array]:
    """The columns of the table that gets messages decided so, from a piece of half messages."""
    made = _PROJECTIONS[form.decision](rows, about)
    if form.reading is None:
        return made
    values, reasons = form.reading.values(rows[PLAIN])
    return made | {form.value: values, VALUE_ERROR: reasons}


def projected_each(
    rows: pa.RecordBatch, number: str, kind: pa.StructType, forms: Mapping[int, Form], about: About
) -> Iterator[pa.RecordBatch]:
    """The rows in the forms that the column `number` names, with that column; columns that a form lacks are null."""
    same: dict[Form, list[int]] = {}
    for of_table, form in forms.items():
        same.setdefault(form, []).append(of_table)
    for form, of_form in same.items():
        mine = rows.filter(pc.is_in(rows[number], value_set=pa.array(of_form, pa.int32())))
        for piece in in_pieces(mine, form, about) if len(mine) else ():
            columns = projected(piece, form, about)
            nulls = {field.name: pa.nulls(len(piece[number]), field.type) for field in kind}
            cells = [(nulls | columns)[field.name].cast(field.type) for field in kind]
            yield pa.RecordBatch.from_arrays([piece[number], *cells], names=[number, *kind.names])


# ---- each table's columns ----


def _committed(rows: Columns, about: About) -> dict[str, pa.Array]:
    body, flag = (PLAIN, PLAIN_FLAG) if about.decompress else ("body", "sys_flag")
    flags = pc.bit_wise_and(pc.fill_null(rows[flag], 0), pa.scalar(~names.TRANSACTION_TYPE_MASK, pa.int32()))
    return _same(rows, "broker_name", *_AS_LANDED, "op_queue_offset") | {
        "body": rows[body],
        "topic": rows["real_topic"],
        "queue_id": rows["real_queue_id"],
        "sys_flag": pc.bit_wise_or(flags, pa.scalar(names.TRANSACTION_COMMIT, pa.int32())),
        "prepared_transaction_offset": rows["commit_log_offset"],
        "transaction_id": rows["uniq_key"],
        "properties": without(rows["properties"], _KEPT_BACK),
        "half_queue_id": rows["queue_id"],
        "half_queue_offset": rows["queue_offset"],
        **_by_run(len(rows["body"]), about, "committed_at"),
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
