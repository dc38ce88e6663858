"""Sets and values of millions of half keys in few bytes: 64 neighbouring offsets of a queue in one word or row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from halfop.columns.keys import QUEUE

BLOCK_BITS = 6  # one bit each in a long
Offsets = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True)
class OffsetSet:
    """Offsets of one group: blocks in their order, none empty, and a bit for each place of a block that is taken."""

    blocks: Offsets
    bits: Bits

    def __len__(self) -> int:
        return int(np.bitwise_count(self.bits).sum())

    def holds(self, offsets: Offsets) -> Mask:
        """Returns for each offset whether it is here."""
        found: Mask = (self._at(offsets >> BLOCK_BITS) & _bit(offsets)) != 0
        return found

    def both(self, other: OffsetSet) -> OffsetSet:
        if self._lies_apart(other):
            return NOWHERE
        return _taken(self.blocks, self.bits & other._at(self.blocks))

    def without(self, other: OffsetSet) -> OffsetSet:
        return _taken(self.blocks, self.bits & ~other._at(self.blocks))

    def below(self, offset: int) -> OffsetSet:
        """Those that are less than the offset."""
        at = int(np.searchsorted(self.blocks, offset >> BLOCK_BITS, "right"))
        blocks, bits = self.blocks[:at], self.bits[:at].copy()
        if at and blocks[-1] == offset >> BLOCK_BITS:
            bits[-1] &= np.uint64((1 << (offset & 63)) - 1)
        return _taken(blocks, bits)

    @property
    def span(self) -> tuple[int, int]:
        """The lowest and the highest offset, of a set that is not empty."""
        low, high = int(self.bits[0]), int(self.bits[-1])
        first, last = int(self.blocks[0]), int(self.blocks[-1])
        return (first << BLOCK_BITS) + (low & -low).bit_length() - 1, (last << BLOCK_BITS) + high.bit_length() - 1

    def _lies_apart(self, other: OffsetSet) -> bool:
        ones, others = self.blocks, other.blocks
        return not (len(ones) and len(others)) or bool(ones[0] > others[-1] or ones[-1] < others[0])

    def _at(self, blocks: Offsets) -> Bits:
        if not len(self.blocks):
            return np.zeros(len(blocks), np.uint64)
        at = np.minimum(np.searchsorted(self.blocks, blocks), len(self.blocks) - 1)
        return np.where(self.blocks[at] == blocks, self.bits[at], np.uint64(0))


NOWHERE = OffsetSet(np.empty(0, np.int64), np.empty(0, np.uint64))


def offset_set(offsets: Offsets) -> tuple[OffsetSet, OffsetSet]:
    """The offsets as a set, and the set of those that come more than once."""
    if not len(offsets):
        return NOWHERE, NOWHERE
    steps = np.diff(offsets)
    if np.any(steps < 0):
        offsets = np.sort(offsets)
        steps = np.diff(offsets)
    return _set(offsets), _set(offsets[1:][steps == 0])


def _set(ordered: Offsets) -> OffsetSet:
    if not len(ordered):
        return NOWHERE
    blocks = ordered >> BLOCK_BITS
    starts = _starts(blocks)
    return OffsetSet(blocks[starts], np.bitwise_or.reduceat(_bit(ordered), starts))


def together(parts: Sequence[OffsetSet]) -> tuple[OffsetSet, OffsetSet]:
    """All offsets of several sets, and those that are in more than one of them."""
    filled = [part for part in parts if len(part.blocks)]
    if len(filled) < 2:
        return (filled[0] if filled else NOWHERE), NOWHERE
    blocks, bits = np.concatenate([p.blocks for p in filled]), np.concatenate([p.bits for p in filled])
    order = np.argsort(blocks, kind="stable")
    blocks, bits = blocks[order], bits[order]
    starts = _starts(blocks)
    union = OffsetSet(blocks[starts], np.bitwise_or.reduceat(bits, starts))
    return union, _repeated(union, bits, starts)


def _repeated(union: OffsetSet, bits: Bits, starts: npt.NDArray[np.int64]) -> OffsetSet:
    counts = np.add.reduceat(np.bitwise_count(bits).astype(np.int64), starts)
    twice = np.zeros(len(union.bits), np.uint64)
    ends = np.append(starts[1:], len(bits))
    for at in np.flatnonzero(counts != np.bitwise_count(union.bits)):
        seen = np.uint64(0)
        for each in bits[starts[at] : ends[at]]:
            twice[at] |= seen & each
            seen |= each
    return _taken(union.blocks, twice)


def _starts(ordered: Offsets) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1]).astype(np.int64)


def _bit(offsets: Offsets) -> Bits:
    bits: Bits = np.uint64(1) << (offsets & 63).astype(np.uint64)
    return bits


def _taken(blocks: Offsets, bits: Bits) -> OffsetSet:
    some = bits != 0
    return OffsetSet(blocks[some], bits[some])


# ---- sets of several groups ----


def all_of(parts: Iterable[Mapping[Group, OffsetSet]]) -> tuple[dict[Group, OffsetSet], dict[Group, OffsetSet]]:
    """Joins the sets of each group as `together` does."""
    by_group: dict[Group, list[OffsetSet]] = {}
    for part in parts:
        for group, offsets in part.items():
            by_group.setdefault(group, []).append(offsets)
    found = {group: together(each) for group, each in by_group.items()}
    return {g: union for g, (union, _) in found.items()}, {g: twice for g, (_, twice) in found.items() if len(twice)}


def combined(
    ones: Mapping[Group, OffsetSet], others: Mapping[Group, OffsetSet], how: Callable[[OffsetSet, OffsetSet], OffsetSet]
) -> dict[Group, OffsetSet]:
    """The two sets combined, group by group of the first; groups without an offset are left out."""
    found = {group: how(offsets, others.get(group, NOWHERE)) for group, offsets in ones.items()}
    return {group: offsets for group, offsets in found.items() if len(offsets.blocks)}


def number(sets: Mapping[Group, OffsetSet]) -> int:
    return sum(map(len, sets.values()))


_BROADCAST_ROWS = 50_000_000


def block(offset: str = "queue_offset") -> Column:
    return F.shiftright(offset, BLOCK_BITS)


def packed(rows: DataFrame, number: int, values: Sequence[str]) -> DataFrame:
    """`number` rows as one a block, with an array of the places that are taken and one of each value there."""
    entry = F.struct(_place().alias("place"), *values)
    blocks = rows.groupBy(*QUEUE, block().alias("block")).agg(F.collect_list(entry).alias("entries"))
    arrays = [F.col("entries")[c].alias(_packed(c)) for c in ("place", *values)]
    blocks = blocks.select(*QUEUE, "block", *arrays)
    return F.broadcast(blocks) if number <= _BROADCAST_ROWS else blocks


def look_up(rows: DataFrame, found: DataFrame, values: Sequence[str], how: str) -> DataFrame:
    """Joins packed values by half key; `how` is `inner` or `left`."""
    near = rows.withColumn("block", block()).join(found, [*QUEUE, "block"], how)
    near = near.withColumn("at", (F.array_position(_packed("place"), _place()) - 1).cast("int"))
    near = near.where(F.col("at") >= 0) if how == "inner" else near
    return near.select(*rows.columns, *[F.get(_packed(value), F.col("at")).alias(value) for value in values])


def _place() -> Column:
    return F.col("queue_offset").bitwiseAND(F.lit((1 << BLOCK_BITS) - 1)).cast("tinyint")


def _packed(value: str) -> str:
    return f"packed_{value}"
