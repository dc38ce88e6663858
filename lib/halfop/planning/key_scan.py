"""Tasks that count a large run's half messages and ops: which keys there are, which come twice, which may be plain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from halfop.columns.key_sets import OffsetSet, all_of, offset_set
from halfop.columns.keys import Queue, by_queue, numbers
from halfop.planning.decide_plain import (
    HEADER,
    Halves,
    Keys,
    Ops,
    fit,
    in_slice,
    marked,
    only_in_properties,
    some_columns,
    sound,
    true,
    without_header,
)
from halfop.warehouse.disk import Disk
from halfop.warehouse.splits import ParquetPart, Split, repeating

_OF_HALVES = ["real_topic", "real_queue_id", "uniq_key", "check_immunity", "properties"]
_OF_HALVES += ["broker_name", "queue_id", "queue_offset", "landed_check_times", "landed_prepared_offset"]
_OF_HALVES += ["landed_wait"]
_OF_OPS = [
    "broker_name",
    "queue_id",
    "queue_offset",
    "half_offset",
    "tag",
    "outcome",
    *HEADER,
    "item",
    "source",
    "life",
]
_KEY = [("broker_name", pa.string()), ("queue_id", pa.int32()), ("queue_offset", pa.int64())]
_DECIDED = repeating(pa.schema([*_KEY, ("decision", pa.string())]), "broker_name")
_MOST_ITEMS, _MOST_LONG_OPS = 1 << 21, 1 << 41


# Op rows have the same place only within one of these: a queue, a source, and whether by op offsets or by items.
OpPlace = tuple[str, int, str | None, bool]


@dataclass(frozen=True)
class Decisions:
    """Files of decisions that one task reads."""

    splits: Sequence[Split]


class Decided(NamedTuple):
    """Half keys for which ops waited, and those of half messages that were decided about."""

    waiting: Keys
    others: Keys


class HalvesSeen(NamedTuple):
    """The keys of half messages, those of several rows, those that may be plain; and whether copies.

    `properties`: only the properties say what columns should have, of a row at least.
    """

    keys: Keys
    twice: Keys
    fit: Keys
    copies: bool
    properties: bool


class OpsSeen(NamedTuple):
    """Op rows of one split, with the half keys that they name.

    `barred` are those that an op with a header names, or several. `rows_twice`: two rows have one key of an op.
    `unsound`: a row can end nothing.
    """

    unsound: bool
    named: Keys
    barred: Keys
    places: Mapping[OpPlace, OffsetSet]
    rows_twice: bool


def topics(share: Halves, disk: Disk) -> set[str | None]:
    """The real topics of all half messages."""
    schema = repeating(some_columns(share.about.half_schema, ["real_topic"]), "real_topic")
    found: set[str | None] = set()
    for split in share.splits:
        for batch in ParquetPart(disk, split, schema).batches():
            found.update(batch["real_topic"].dictionary.to_pylist())
    return found


def ops_seen(share: Ops, disk: Disk) -> list[OpsSeen]:
    """Counts the ops of each split."""
    return [_ops_seen(share, split, disk) for split in share.splits]


def halves_seen(share: Halves, disk: Disk) -> HalvesSeen:
    """Counts the half messages of all files together."""
    schema = repeating(some_columns(share.about.half_schema, _OF_HALVES), "broker_name", "real_topic")
    copies = properties = False
    keys, twice, plain = list[Keys](), list[Keys](), list[Keys]()
    for split in share.splits:
        for batch in ParquetPart(disk, split, schema).batches():
            here = in_slice(batch, share.about)
            only = only_in_properties(here)
            properties |= any(np.any(rows) for rows in only.values())
            marks = marked(here, only)
            copies |= bool(np.any(marks & true(pc.not_equal(here["uniq_key"], ""))))
            mine, repeated = _keys(here, "queue_offset")
            keys.append(mine)
            twice.append(repeated)
            may = fit(here, share.about.deliverable) & ~marks & ~only["check_immunity"]
            plain.append(_keys(here.filter(pa.array(may)), "queue_offset")[0])
    every, met = all_of(keys)
    return HalvesSeen(every, all_of([*twice, met])[0], all_of(plain)[0], copies, properties)


def _ops_seen(share: Ops, split: Split, disk: Disk) -> OpsSeen:
    schema = repeating(some_columns(share.about.op_schema, _OF_OPS), "broker_name", "source", "tag", "outcome")
    unsound, sure = False, True
    named, barred, places, again = list[Keys](), list[Keys](), list[Mapping[OpPlace, OffsetSet]](), False
    for batch in ParquetPart(disk, split, schema).batches():
        here = in_slice(batch, share.about, "half_offset")
        may_end = sound(here)
        unsound |= not np.all(may_end)
        ending = here.filter(pa.array(may_end))
        mine, repeated = _keys(ending, "half_offset")
        named.append(mine)
        barred += [repeated, _keys(ending.filter(pa.array(~without_header(ending))), "half_offset")[0]]
        for found, twice in _op_places(here):
            places.append(found)
            again |= bool(twice)
        sure &= _fits_a_place(here)
    every, met = all_of(named)
    all_places, met_places = all_of(places)
    return OpsSeen(unsound, every, all_of([*barred, met])[0], all_places, again or bool(met_places) or not sure)


def _keys(rows: pa.RecordBatch, offset: str) -> tuple[Keys, Keys]:
    """The half keys of the rows, and those that come more than once."""
    return _sets((queue, numbers(rows[offset])[places]) for queue, places in by_queue(rows, offset))


def _sets(groups: Iterator[tuple[Any, npt.NDArray[np.int64]]]) -> tuple[dict[Any, OffsetSet], dict[Any, OffsetSet]]:
    found = {group: offset_set(offsets) for group, offsets in groups}
    return {g: each for g, (each, _) in found.items()}, {g: twice for g, (_, twice) in found.items() if len(twice)}


def _op_places(ops: pa.RecordBatch) -> Iterator[tuple[dict[OpPlace, OffsetSet], dict[OpPlace, OffsetSet]]]:
    """The rows by what is their key: first items run along the op offsets, other items along the items."""
    item, sources = numbers(ops["item"]), ops["source"].cast(pa.string())
    for source in sources.unique().to_pylist():
        mine = true(pc.equal(sources, source)) if source is not None else true(pc.is_null(sources))
        for first, place in ((True, numbers(ops["queue_offset"])), (False, _along_items(ops))):
            chosen = mine & ((item == 0) == first)
            rows = ops.filter(pa.array(chosen))
            there = place[chosen]
            yield _sets(((*queue, source, first), there[at]) for queue, at in by_queue(rows, "queue_offset"))


def _along_items(ops: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return numbers(ops["queue_offset"]) * _MOST_ITEMS + numbers(ops["item"])


def _fits_a_place(ops: pa.RecordBatch) -> bool:
    """Returns whether `_op_places` gives each row a number of its own: no op log is too long, and no body.

    Ops that a later life of a broker wrote have places of their own.
    """
    item, offset = numbers(ops["item"]), numbers(ops["queue_offset"])
    long = (item != 0) & ((offset < 0) | (offset > _MOST_LONG_OPS) | (item < 0) | (item >= _MOST_ITEMS))
    whole = [ops[name].null_count == 0 for name in ("broker_name", "queue_id", "queue_offset", "item")]
    return all(whole) and not bool(np.any(long)) and ops["life"].null_count == len(ops)


def op_offsets(places: Mapping[OpPlace, OffsetSet]) -> Iterator[tuple[Queue, tuple[int, int]]]:
    """The lowest and the highest op offset by queue, more than once for some."""
    for (broker, queue, _, first), offsets in places.items():
        low, high = offsets.span
        yield (broker, queue), (low, high) if first else (low // _MOST_ITEMS, high // _MOST_ITEMS)


def decided_keys(share: Decisions, disk: Disk) -> Decided:
    """The half keys in the files."""
    waiting, others = list[Keys](), list[Keys]()
    for split in share.splits:
        for batch in ParquetPart(disk, split, _DECIDED).batches():
            waits = true(pc.equal(batch["decision"], "EARLY_OP"))
            waiting.append(_keys(batch.filter(pa.array(waits)), "queue_offset")[0])
            others.append(_keys(batch.filter(pa.array(~waits)), "queue_offset")[0])
    return Decided(all_of(waiting)[0], all_of(others)[0])
