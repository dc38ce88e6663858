"""Rows of the tables that messages land in, as Arrow: what a broker wrote, and what a landing adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfop.landing.tables import UNSETTLED
from halfop.rocketmq.batches import OP
from halfop.warehouse.maps import entries
from halfop.warehouse.parquet import arrow_schema, cast_to
from halfop.warehouse.progress import GATEWAY
from halfop.warehouse.schema import table
from halfop.warehouse.splits import PartWriter

_HALF_TEXTS = {"broker_name", "producer_group", "real_topic", "born_host", "store_host"}
_REPEATING = {*_HALF_TEXTS, "topic", "tag", "outcome", "source"}
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


class Form(NamedTuple):
    """A table's columns, those that are made of properties, and the values that all rows of a landing share."""

    schema: pa.Schema
    made: Mapping[str, str]
    shared: Mapping[str, pa.Scalar]


def form_of(name: str, broker_name: str, source: str, landed_at: int) -> Form:
    """`landed_at` is in epoch microseconds."""
    spec = table(name)
    schema = arrow_schema(spec.struct)
    fields = [pa.field(f.name, _DICTIONARY if f.name in _REPEATING else f.type) for f in schema]
    given = {"broker_name": broker_name, "source": source, "landed_at": landed_at}
    shared = {f.name: pa.scalar(given[f.name]).cast(f.type) for f in schema if f.name in given}
    return Form(pa.schema(fields), {c.name: c.made.entry for c in spec.columns if c.made}, shared)


def in_form(rows: pa.RecordBatch, form: Form) -> pa.RecordBatch:
    """The rows with the table's columns; texts that repeat are dictionaries."""
    made = entries(rows["properties"], list(form.made.values())) if form.made else {}
    columns = [_column(rows, made, field, form) for field in form.schema]
    return pa.RecordBatch.from_arrays(columns, schema=form.schema)


def _column(rows: pa.RecordBatch, made: Mapping[str, pa.Array], field: pa.Field, form: Form) -> pa.Array:
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


def write_items(out: PartWriter, items: pa.RecordBatch, form: Form) -> None:
    """Writes op items; those without an outcome go to files of their own. A gateway's show it by END_TRANSACTION."""
    by_gateway = pc.is_valid(items["producer_group"])
    items = items.append_column("source", pc.if_else(by_gateway, GATEWAY, form.shared["source"].as_py()))
    settled = pc.is_valid(items["outcome"])
    out.write(OP, in_form(items.filter(settled), form))
    out.write(UNSETTLED, in_form(items.filter(pc.invert(settled)), form))
