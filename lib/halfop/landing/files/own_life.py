"""Rows of files in the lives of their brokers: they have the broker's own name, and offsets show the life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from halfop.columns.lives import Lives, owners
from halfop.landing.again import Again, kind_of
from halfop.landing.files.typed import Mask, Typed


class LandingContext(NamedTuple):
    """A landing's instant in epoch microseconds, which all rows get, and the lives of brokers that have several.

    `again`: the only ranges that land; none: all rows do.
    """

    landed_at: int
    lives: Mapping[str, Lives]
    again: Sequence[Again] = ()


def in_own_life(typed: Typed, context: LandingContext) -> Typed:
    """Rows under the names of their lives; op rows of a later one with its number."""
    typed = replace(typed, rows=_each(typed.rows, typed.kind, context)) if context.lives else typed
    return typed.only(_in_ranges(typed, context.again)) if context.again else typed


def _in_ranges(typed: Typed, ranges: Sequence[Again]) -> Mask:
    """Marks the rows of these ranges; of bad rows, all."""
    kept = np.zeros(len(typed.rows), np.bool_)
    for each in ranges:
        kept |= _in_range(typed, each)
    kept[list(typed.problems)] = True
    return kept


def _in_range(typed: Typed, wanted: Again) -> Mask:
    rows = typed.rows
    if typed.kind not in map(kind_of, wanted.topics):
        return np.zeros(len(rows), np.bool_)
    offsets = pc.fill_null(rows["queue_offset"], -1).to_numpy()
    near = (_queues(rows) == wanted.queue_id) & (offsets >= wanted.since) & (offsets < wanted.upto)
    of_life: Mask = near & _of(rows, wanted.broker_name)
    return of_life


def found_ranges(typed: Typed, ranges: Sequence[Again]) -> set[Again]:
    """The ranges that have a row among these."""
    return {each for each in ranges if _in_range(typed, each).any()}


def _each(rows: pa.RecordBatch, kind: str, context: LandingContext) -> pa.RecordBatch:
    for lives in context.lives.values():
        mine = _of(rows, lives.broker_name)
        if mine.any():
            offsets = pc.fill_null(rows["queue_offset"], 0).to_numpy()
            found = owners(lives.half_cuts if kind == "half" else lives.op_cuts, _queues(rows), offsets)
            rows = _renamed(rows, mine, np.array(lives.names, object)[found])
            if kind == "op":
                rows = _numbered(rows, mine & (found > 0), found + 1)
    return rows


def by_half(items: pa.RecordBatch, context: LandingContext) -> pa.RecordBatch:
    """Op items under the name of the life that their half message is of; `life` is their own if that is another."""
    for lives in context.lives.values():
        for life in lives.later:
            own = _of(items, life.name) & pc.fill_null(pc.equal(items["life"], life.number), False).to_numpy(False)
            offsets = pc.fill_null(items["half_offset"], 2**63 - 1).to_numpy()
            found = owners(lives.half_cuts[: life.number - 1], _queues(items), offsets)
            items = _renamed(items, own, np.array(lives.names, object)[found])
            items = _numbered(items, own & (found == life.number - 1), None)
    return items


def _of(rows: pa.RecordBatch, name: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    mine: np.ndarray[tuple[int], np.dtype[np.bool_]] = pc.fill_null(
        pc.equal(rows["broker_name"].cast(pa.string()), name), False
    ).to_numpy(False)
    return mine


def _queues(rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    found: np.ndarray[tuple[int], np.dtype[np.int32]] = pc.fill_null(rows["queue_id"], 0).to_numpy()
    return found


def _renamed(rows: pa.RecordBatch, mine: np.ndarray, names: np.ndarray) -> pa.RecordBatch:
    column = rows["broker_name"]
    made = pc.if_else(pa.array(mine), pa.array(names, pa.string()), column.cast(pa.string())).cast(column.type)
    return rows.set_column(rows.schema.get_field_index("broker_name"), "broker_name", made)


def _numbered(rows: pa.RecordBatch, mine: np.ndarray, numbers: np.ndarray | None) -> pa.RecordBatch:
    life = pa.nulls(len(rows), pa.int32()) if numbers is None else pa.array(numbers.astype(np.int32))
    made = pc.if_else(pa.array(mine), life, rows["life"])
    return rows.set_column(rows.schema.get_field_index("life"), "life", made)
