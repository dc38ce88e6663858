"""Columns of a half message that its properties hold too."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from halfop.rocketmq import names
from halfop.rocketmq.numbers import parse_int
from halfop.warehouse.maps import entries

_IN_PROPERTIES = {
    "uniq_key": names.UNIQ_KEY,
    "producer_group": names.PRODUCER_GROUP,
    "real_topic": names.REAL_TOPIC,
    "real_queue_id": names.REAL_QUEUE_ID,
    "tags": names.TAGS,
    "keys": names.KEYS,
}


def completed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with columns that were null taken from their properties."""
    lacking = {column: name for column, name in _IN_PROPERTIES.items() if rows[column].null_count}
    found = entries(rows["properties"], list(lacking.values())) if lacking else {}
    for column, name in lacking.items():
        given, texts = rows[column], found[name]
        if pa.types.is_dictionary(given.type):
            made = pc.coalesce(given.cast(pa.string()), texts).dictionary_encode()
        else:
            made = pc.coalesce(given, _ints(texts) if pa.types.is_integer(given.type) else texts)
        rows = rows.set_column(rows.schema.get_field_index(column), column, made)
    return rows


def _ints(texts: pa.Array) -> pa.Array:
    """Few numbers, each many times."""
    encoded = texts.dictionary_encode()
    return pa.array(map(parse_int, encoded.dictionary.to_pylist()), pa.int32()).take(encoded.indices)
