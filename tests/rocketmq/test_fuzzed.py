"""What was found stays found, and other bytes are decoded or refused: the targets of support/fuzzed, without a fuzzer.

`bench/run fuzz` plays the same targets with inputs that widen their coverage.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fuzzed.every import TARGETS
from support.fuzzed.target import Target

MEMORY = 64 << 20
KNOWN = {name: dict(target.corpus()) for name, target in TARGETS.items()}
EDITS = st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 40), st.binary(max_size=8))
of_each = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))


def edited(content: bytes, edits: Sequence[tuple[float, int, bytes]]) -> bytes:
    for place, length, noise in edits:
        at = int(place * (len(content) + 1))
        content = content[:at] + noise + content[at + length :]
    return content


@pytest.mark.parametrize(("target", "name"), [(target, name) for target, known in KNOWN.items() for name in known])
def test_what_is_known(target: str, name: str) -> None:
    TARGETS[target].play(KNOWN[target][name])


@of_each
@given(st.data(), st.lists(EDITS, min_size=1, max_size=3))
def test_other_bytes(target: Target, data: st.DataObject, edits: list[tuple[float, int, bytes]]) -> None:
    target.play(edited(data.draw(st.sampled_from([*KNOWN[target.name].values(), b""])), edits))


@of_each
@pytest.mark.long
def test_memory_is_bounded(target: Target) -> None:
    pool = pa.default_memory_pool()
    before = pool.max_memory()  # of all that this process has done
    tracemalloc.start()
    for content in KNOWN[target.name].values():
        target.play(content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY
    assert pool.max_memory() < max(before + 1, MEMORY)
