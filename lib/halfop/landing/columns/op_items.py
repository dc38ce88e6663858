"""Bodies of op messages, split into items as RocketMQ wrote them; over Arrow columns, so in workers too."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfop.rocketmq.names import END_TAG
from halfop.rocketmq.numbers import parse_long

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
    for entries, offset, text in zip(
        *(c.to_pylist() for c in (of_items["outcomes"], half_offsets, texts)), strict=True
    ):
        by_text = dict(reversed(entries)) if entries else {}  # of a name that is there twice, the first
        found.append(by_text.get(str(offset), by_text.get(text)))
    own = pa.array(found, pa.string())
    if pa.types.is_dictionary(given.type):
        return pc.coalesce(own, given.cast(pa.string())).dictionary_encode()
    return pc.coalesce(own, given)
