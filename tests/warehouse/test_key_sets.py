"""Sets of offsets, against Python's own sets."""

from __future__ import annotations

import numpy as np
from halfop.columns.key_sets import NOWHERE, OffsetSet, all_of, combined, number, offset_set, together
from hypothesis import given
from hypothesis import strategies as st

_LONG_MAX = 2**63 - 1
_OFFSETS = st.lists(
    st.one_of(st.integers(0, 200), st.integers(2**53 - 70, 2**53 + 70), st.integers(-70, _LONG_MAX)), max_size=40
)


def made(offsets: list[int]) -> OffsetSet:
    return offset_set(np.array(offsets, np.int64))[0]


def those_of(places: OffsetSet) -> set[int]:
    found = set()
    for block, bits in zip(places.blocks.tolist(), places.bits.tolist(), strict=True):
        assert bits, "no block is empty"
        found |= {block * 64 + place for place in range(64) if bits >> place & 1}
    return found


def several(offsets: list[int]) -> set[int]:
    return {each for each in offsets if offsets.count(each) > 1}


@given(_OFFSETS)
def test_a_set_and_what_comes_twice(offsets: list[int]) -> None:
    found, twice = offset_set(np.array(offsets, np.int64))
    assert (those_of(found), those_of(twice)) == (set(offsets), several(offsets))
    assert len(found) == len(set(offsets))
    if offsets:
        assert found.span == (min(offsets), max(offsets))


@given(_OFFSETS, _OFFSETS)
def test_two_sets(ones: list[int], others: list[int]) -> None:
    one, other = made(ones), made(others)
    assert those_of(one.both(other)) == set(ones) & set(others)
    assert those_of(one.without(other)) == set(ones) - set(others)
    if others:
        assert one.holds(np.array(others, np.int64)).tolist() == [each in ones for each in others]
        assert those_of(one.below(others[0])) == {each for each in ones if each < others[0]}


@given(st.lists(_OFFSETS, max_size=4))
def test_several_sets(lists: list[list[int]]) -> None:
    union, met = together([made(each) for each in lists])
    distinct = [each for offsets in lists for each in set(offsets)]
    assert (those_of(union), those_of(met)) == (set(distinct), several(distinct))


def test_sets_by_group() -> None:
    parts = [{"a": made([1, 2]), "b": made([7])}, {"a": made([2, 3])}]
    union, met = all_of(parts)
    assert {group: those_of(each) for group, each in union.items()} == {"a": {1, 2, 3}, "b": {7}}
    assert {group: those_of(each) for group, each in met.items()} == {"a": {2}}
    assert number(union) == 4
    assert combined(union, {"a": made([1, 2, 3])}, OffsetSet.without).keys() == {"b"}


def test_nothing() -> None:
    assert len(NOWHERE.both(made([1]))) == len(NOWHERE.below(5)) == 0
    assert those_of(made([1]).without(NOWHERE)) == {1}
