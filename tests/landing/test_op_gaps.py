"""Files whose ops have a gap: time passes only up to the op before it, in whatever order they land."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest
from halfop.frame.summary import Summary
from halfop.landing.files.land import FilesRequest, land_files
from halfop.landing.progress import OffsetSpan, Queue, of_ops
from halfop.warehouse.kernel import KernelWarehouse
from support.json_lines import T0, half, lines, op
from support.rows import instant

LOG = logging.getLogger("halfop.test")
Q = Queue("b", 0)


def land(warehouse: KernelWarehouse, folder: Path, offsets: Sequence[int], queue: int = 0) -> Summary:
    """Ops that were stored a second apart."""
    rows = [op(n, str(n), store_timestamp=T0 + n * 1000, queue_id=queue) for n in offsets]
    file = lines(folder / f"{queue}-{offsets[0]}.jsonl", *rows)
    return land_files(warehouse, FilesRequest([], [file]), LOG)


def known(warehouse: KernelWarehouse, queue: Queue = Q) -> tuple[int | None, int | None]:
    """The first op that is missing, and the seconds after T0 that the queue is known."""
    row = of_ops(warehouse)[queue]
    return row.next_offset, None if row.known_until is None else (row.known_until // 1000 - T0) // 1000


def test_time_passes_up_to_the_op_before_the_gap(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    assert land(warehouse, tmp_path, [0, 1, 2, 3]).notes == []
    assert known(warehouse) == (4, 3)
    (note,) = land(warehouse, tmp_path, [6, 7]).notes
    assert "op 4 of b/0 has not landed" in note
    assert known(warehouse) == (4, 3)
    (note,) = land(warehouse, tmp_path, [4]).notes
    assert "op 5 of b/0 has not landed" in note
    assert known(warehouse) == (5, 4)
    assert land(warehouse, tmp_path, [5]).notes == []
    assert known(warehouse) == (8, 7)


def test_a_gap_within_a_file(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    assert len(land(warehouse, tmp_path, [0, 1, 4, 5]).notes) == 1
    assert known(warehouse) == (2, 1)


def test_files_that_overlap_and_come_again_have_no_gap(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    for offsets in ([0, 1, 2], [2, 1, 3], [1, 2], [4, 4, 5]):
        assert land(warehouse, tmp_path, offsets).notes == []
    assert known(warehouse) == (6, 5)


@pytest.mark.parametrize("order", list(permutations([(1, 2), (3, 4), (5, 6)]))[1:])
def test_in_any_order_the_same_is_known_at_the_end(
    warehouse: KernelWarehouse, tmp_path: Path, order: Sequence[Sequence[int]]
) -> None:
    land(warehouse, tmp_path, [0])
    for offsets in order:
        land(warehouse, tmp_path, offsets)
    assert known(warehouse) == (7, 6)


def test_another_queue_s_ops_do_not_carry_a_queue_over_its_gap(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    land(warehouse, tmp_path, [0])
    land(warehouse, tmp_path, [2])
    land(warehouse, tmp_path, [9], queue=1)
    assert (known(warehouse), known(warehouse, Queue("b", 1))) == ((1, 0), (10, 9))
    both = lines(tmp_path / "h.jsonl", half(0), half(0, queue_id=1))
    ops = lines(tmp_path / "o.jsonl", op(10, "1", store_timestamp=T0 + 10_000, queue_id=1))
    land_files(warehouse, FilesRequest([both], [ops]), LOG)
    assert (known(warehouse), known(warehouse, Queue("b", 1))) == ((1, 0), (11, 10))


def test_given_known_until_counts_over_a_gap(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    file = lines(tmp_path / "o.jsonl", op(0, "0"), op(5, "5"))
    assert land_files(warehouse, FilesRequest([], [file], instant(T0 + 9_000)), LOG).notes == []
    assert known(warehouse) == (1, 9)


@pytest.mark.parametrize(
    ("spans", "whole"),
    [(((0, 3), (4, 5)), True), (((4, 5), (0, 3)), True), (((0, 3), (2, 9)), True), (((0, 3), (5, 6)), False)],
)
def test_spans_that_touch_are_whole(spans: tuple[tuple[int, int], tuple[int, int]], whole: bool) -> None:
    first, second = (OffsetSpan(low, high, 0, True) for low, high in spans)
    assert first.joined(second).whole == whole
