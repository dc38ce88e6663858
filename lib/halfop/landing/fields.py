"""The columns that half and op rows may have, typed strictly: null if a value is not exactly what it should be.

Also the columns that a half message's properties hold, and bodies of op messages, split into items as RocketMQ wrote
them. All of it is over Arrow columns, so it runs in workers, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfop.landing.table_rows import TABLES
from halfop.rocketmq import names
from halfop.rocketmq.batches import FIRST_MS, LAST_MS
from halfop.rocketmq.buffers import parse_int, parse_long
from halfop.rocketmq.names import END_TAG
from halfop.warehouse.maps import entries
from halfop.warehouse.schema import table

_INSTANT = pa.timestamp("us", "UTC")


def numbers(given: pa.Array, field: Field) -> pa.Array:
    """Whole numbers of a column of INT or BIGINT."""
    return _between(given, *field.bounds).cast(field.arrow)


def instants(given: pa.Array) -> pa.Array:
    """Timestamps, or epoch milliseconds, as the instants that they are: in the years 1 to 9999."""
    if pa.types.is_timestamp(given.type) and given.type.unit == "us":
        micros = _between(given.cast(pa.int64()), FIRST_MS * 1000, LAST_MS * 1000 + 999)
    else:
        micros = pc.multiply(_between(given.cast(pa.int64()), FIRST_MS, LAST_MS), 1000)
    return micros.cast(_INSTANT)


def _between(given: pa.Array, low: int, high: int) -> pa.Array:
    """The numbers as they are, null outside of these bounds."""
    given = given.cast(pa.int64())
    found = pc.min_max(given).as_py()
    if found["min"] is None or (found["min"] >= low and found["max"] <= high):
        return given
    fits = pc.and_(pc.greater_equal(given, low), pc.less_equal(given, high))
    return pc.if_else(fits, given, pa.scalar(None, pa.int64()))


STRINGS = "MAP<STRING,STRING>"
LONG_MAX = 2**63 - 1
_LOWEST = {"INT": -(2**31), "BIGINT": -(2**63)}
# How like a column a name must be for the hint that the column was meant.
NEAR = 0.75

_MADE_HERE = {"landed_at", "source"}
_KEY = {"broker_name", "queue_id", "queue_offset", "born_timestamp", "store_timestamp"}
_REQUIRED = {"half": _KEY | {"commit_log_offset", "body", "properties"}, "op": _KEY}
_NOT_NEGATIVE = {"queue_offset", "item"}

_EXPECTED = {
    "STRING": "a string",
    "TIMESTAMP": "epoch milliseconds or ISO-8601 as 2025-06-15T15:06:40.123Z, in the years 1 to 9999",
    "BINARY": "base64 text",
    "BOOLEAN": "true or false",
    STRINGS: "an object whose values are strings",
}
_ARROW = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    STRINGS: pa.map_(pa.string(), pa.string()),
}


@dataclass(frozen=True)
class Field:
    """A column of the input: its name, its type, and whether each row must have it."""

    name: str
    type: str
    required: bool = False

    @property
    def not_negative(self) -> bool:
        return self.name in _NOT_NEGATIVE

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest whole number that it may be."""
        lowest = _LOWEST[self.type]
        return 0 if self.not_negative else lowest, -lowest - 1

    @property
    def arrow(self) -> pa.DataType:
        return _ARROW[self.type]

    @property
    def expected(self) -> str:
        if self.type in _LOWEST:
            return "a whole number from {} to {}".format(*self.bounds)
        return _EXPECTED[self.type]


@cache
def fields(kind: str) -> tuple[Field, ...]:
    """The columns that are read from half or op rows."""
    spec = table(TABLES[kind])
    columns = [c for c in spec.columns if c.made is None and c.name not in _MADE_HERE]
    own = [Field(c.name, c.type, c.name in _REQUIRED[kind]) for c in columns]
    return (*own, Field("outcomes", STRINGS)) if kind == "op" else tuple(own)


def known_names(kind: str) -> list[str]:
    """Names that raise no warning: those that are read, and the others of an export of the table itself."""
    return sorted({f.name for f in fields(kind)} | set(table(TABLES[kind]).names))


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


_SHORT_DIGITS = r"\A[0-9]{1,18}\z"
_SPLIT = ("item", "body", "half_offset", "outcome", "outcomes")
_NOTHING = pa.scalar(None, pa.int64())
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def items(rows: pa.RecordBatch) -> pa.RecordBatch:
    """One row for each item of a body, numbered from 0; one for a body that can't be split, or a row with `item`.

    Rows may lack `item` and what goes with it: `half_offset`, `outcome`, `outcomes`.
    """
    owners, texts = _texts(rows)
    of_items = rows if len(owners) == len(rows) else rows.take(pa.array(owners))
    columns = {name: of_items[name] for name in rows.schema.names if name not in _SPLIT}
    half_offset = _half_offsets(of_items, texts)
    columns |= {"item": _numbers(of_items, owners), "body": texts, "half_offset": half_offset}
    if "outcome" in rows.schema.names:
        columns["outcome"] = _outcomes(of_items, texts, half_offset)
    return pa.RecordBatch.from_pydict(columns)


def _texts(rows: pa.RecordBatch) -> tuple[Places, pa.Array]:
    """Each item's row and text, in the rows' order."""
    ending = _ending(rows)
    if "item" in rows.schema.names:
        ending = ending & pc.is_null(rows["item"]).to_numpy(zero_copy_only=False)
    if not ending.any():
        return np.arange(len(rows)), rows["body"]
    parts = pc.split_pattern(rows["body"], ",")
    texts, owners = parts.flatten(), pc.list_parent_indices(parts).to_numpy()
    some = pc.not_equal(texts, "").to_numpy(zero_copy_only=False) & ending[owners]
    whole = np.setdiff1d(np.arange(len(rows)), owners[some])
    texts = pa.concat_arrays([texts.filter(pa.array(some)), rows["body"].take(pa.array(whole))])
    owners = np.concatenate([owners[some], whole]).astype(np.int64)
    order = np.argsort(owners, kind="stable")
    return owners[order], texts.take(pa.array(order))


def _ending(rows: pa.RecordBatch) -> Mask:
    found: Mask = pc.fill_null(pc.equal(rows["tag"], END_TAG), False).to_numpy(zero_copy_only=False)
    return found


def _numbers(of_items: pa.RecordBatch, owners: Places) -> pa.Array:
    numbers = pa.array((np.arange(len(owners)) - np.searchsorted(owners, owners)).astype(np.int32))
    return pc.coalesce(of_items["item"], numbers) if "item" in of_items.schema.names else numbers


def _half_offsets(of_items: pa.RecordBatch, texts: pa.Array) -> pa.Array:
    """The half queue offsets: given with `item`, or the number that the text is."""
    ending = _ending(of_items)
    if "half_offset" not in of_items.schema.names:
        return pc.if_else(ending, half_offsets(texts), _NOTHING)
    given = pc.if_else(pc.is_valid(of_items["item"]), of_items["half_offset"], _NOTHING)
    if not given.null_count:
        return _from_zero(given)
    read = pc.and_(pc.is_null(given), pa.array(ending))
    parsed = half_offsets(pc.if_else(read, texts, pa.scalar(None, pa.string())))
    return pc.if_else(pc.is_valid(given), _from_zero(given), parsed)


def half_offsets(texts: pa.Array) -> pa.Array:
    """The half queue offsets that the texts are; null if a text is none."""
    plain = pc.fill_null(pc.match_substring_regex(texts, _SHORT_DIGITS), False)
    numbers = pc.if_else(plain, texts, pa.scalar("0")).cast(pa.int64())
    if pc.all(plain).as_py() in (True, None):
        return numbers
    others = [None if ok else parse_long(text) for ok, text in zip(plain.to_pylist(), texts.to_pylist(), strict=True)]
    return _from_zero(pc.if_else(plain, numbers, pa.array(others, pa.int64())))


def _from_zero(numbers: pa.Array) -> pa.Array:
    return pc.if_else(pc.greater_equal(numbers, 0), numbers, _NOTHING)


def _outcomes(of_items: pa.RecordBatch, texts: pa.Array, half_offsets: pa.Array) -> pa.Array:
    """The outcome that `outcomes` has for the offset, or for the text; else the row's."""
    given = of_items["outcome"]
    if "outcomes" not in of_items.schema.names or of_items["outcomes"].null_count == len(of_items):
        return given
    found = []
    for each, offset, text in zip(*(c.to_pylist() for c in (of_items["outcomes"], half_offsets, texts)), strict=True):
        by_text = dict(reversed(each)) if each else {}  # of a name that is there twice, the first
        found.append(by_text.get(str(offset), by_text.get(text)))
    own = pa.array(found, pa.string())
    if pa.types.is_dictionary(given.type):
        return pc.coalesce(own, given.cast(pa.string())).dictionary_encode()
    return pc.coalesce(own, given)
