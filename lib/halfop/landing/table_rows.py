"""The tables that messages land in by kind of message, and rows in their form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfop.columns.lives import Cuts, Lives, owners
from halfop.rocketmq.batches import DISCARD, FINAL, HALF, OP
from halfop.warehouse.maps import entries
from halfop.warehouse.parquet import arrow_schema, cast_to
from halfop.warehouse.progress import GATEWAY
from halfop.warehouse.schema import table
from halfop.warehouse.splits import PartWriter

_HALF_TEXTS = {"broker_name", "producer_group", "real_topic", "born_host", "store_host"}
_REPEATING = {*_HALF_TEXTS, "topic", "tag", "outcome", "source"}
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


# The column that names a half message: by its offset, or by its place in the log.
NAMED_BY = {"op_messages": "half_offset", "final_messages": "prepared_transaction_offset"}


def cuts_by(lives: Lives, named_by: str) -> list[Cuts]:
    """The cuts that decide of which life a half message is that is named so."""
    return lives.half_cuts if named_by == "half_offset" else lives.log_cuts


class RowForm(NamedTuple):
    """A table's columns, those that are made of properties, and the values that all rows of a landing share.

    `lives` are the broker's: rows that name half messages of an earlier life get its name.
    """

    schema: pa.Schema
    made: Mapping[str, str]
    shared: Mapping[str, pa.Scalar]
    lives: Lives
    named_by: str | None


def form_of(name: str, lives: Lives, source: str, landed_at: int) -> RowForm:
    """`landed_at` is in epoch microseconds."""
    spec = table(name)
    schema = arrow_schema(spec.struct)
    fields = [pa.field(f.name, _DICTIONARY if f.name in _REPEATING else f.type) for f in schema]
    given = {"broker_name": lives.current, "source": source, "landed_at": landed_at}
    shared = {f.name: pa.scalar(given[f.name]).cast(f.type) for f in schema if f.name in given}
    made = {c.name: c.made.entry for c in spec.columns if c.made}
    return RowForm(pa.schema(fields), made, shared, lives, NAMED_BY.get(name) if lives.later else None)


def in_form(rows: pa.RecordBatch, form: RowForm) -> pa.RecordBatch:
    """The rows with the table's columns; texts that repeat are dictionaries."""
    made = entries(rows["properties"], list(form.made.values())) if form.made else {}
    owned = {} if form.named_by is None else _of_owners(rows, form.lives, form.named_by)
    columns = [owned[f.name] if f.name in owned else _column(rows, made, f, form) for f in form.schema]
    return pa.RecordBatch.from_arrays(columns, schema=form.schema)


def _of_owners(rows: pa.RecordBatch, lives: Lives, named_by: str) -> dict[str, pa.Array]:
    """The columns that say of which life the half message is that each row names."""
    column, cuts = rows[named_by], cuts_by(lives, named_by)
    offsets = pc.fill_null(column, 2**63 - 1).to_numpy()
    # a final message is in a queue of its own topic: brokers have one half queue
    queues = rows["queue_id"].to_numpy() if named_by == "half_offset" else np.zeros(len(rows), np.int32)
    found = owners(cuts, queues, offsets)
    elsewhere = found != lives.number - 1
    names = pa.DictionaryArray.from_arrays(pa.array(found), pa.array(lives.names))
    number = pa.array(np.full(len(rows), lives.number, np.int32), mask=~elsewhere)
    return {"broker_name": names, "life": number}


def _column(rows: pa.RecordBatch, made: Mapping[str, pa.Array], field: pa.Field, form: RowForm) -> pa.Array:
    repeats = pa.types.is_dictionary(field.type)
    if field.name in form.shared and field.name not in rows.schema.names:
        value = form.shared[field.name]
        if not repeats:
            return pa.repeat(value, len(rows))
        return pa.DictionaryArray.from_arrays(np.zeros(len(rows), np.int32), pa.array([value.as_py()], pa.string()))
    if field.name in form.made:
        return made[form.made[field.name]]
    if field.name not in rows.schema.names:
        return pa.nulls(len(rows), field.type)
    return rows[field.name].dictionary_encode() if repeats else cast_to(rows[field.name], field.type)


def write_items(out: PartWriter, items: pa.RecordBatch, form: RowForm) -> None:
    """Writes op items; those without an outcome go to files of their own. A gateway's show it by END_TRANSACTION."""
    by_gateway = pc.is_valid(items["producer_group"])
    items = items.append_column("source", pc.if_else(by_gateway, GATEWAY, form.shared["source"].as_py()))
    settled = pc.is_valid(items["outcome"])
    out.write(OP, in_form(items.filter(settled), form))
    out.write(UNSETTLED, in_form(items.filter(pc.invert(settled)), form))


# In the order of the commits: what refers to another row lands after it.
TABLES = {HALF: "half_messages", FINAL: "final_messages", DISCARD: "broker_discards", OP: "op_messages"}
# Op items whose outcome the messages that land with them do not settle.
UNSETTLED = "unsettled"
# The source of op rows that `end` has written for brokers which land by files: their offsets are no broker's.
RESOLVE = "RESOLVE"
