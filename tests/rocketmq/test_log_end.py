"""Where a log ends: torn, ahead, half copied, still written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from halfop.rocketmq.message import blank
from halfop.rocketmq.store import commitlog
from halfop.rocketmq.store.layout import layout
from support.brokers.store_reader import filled, read_all
from support.brokers.store_writer import HALF_QUEUE, Store, final, half, patch


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that even these stores are read in several."""
    monkeypatch.setattr(commitlog, "WINDOW", 1500)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return filled(tmp_path / "store")


# ---- the log's end ----


def test_an_empty_log(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    (store.root / "commitlog" / ("0" * 20)).write_bytes(bytes(8192))
    assert (layout(store.root).stretches, layout(store.root).end) == ((), 0)


def test_files_made_before_they_are_needed(store: Store) -> None:
    for n in (3, 4):
        (store.root / "commitlog" / f"{8192 * n:020d}").write_bytes(bytes(8192))
    found = read_all(store.root)
    assert (found.faults, found.plan.end, found.places("half")) == ([], store.end, store.places("half"))


def test_a_log_that_ends_with_its_file(store: Store) -> None:
    left = 8192 - store.end % 8192
    store.tear(blank(left))
    assert layout(store.root).end == store.end + left
    assert not read_all(store.root).faults


def test_records_not_dispatched_yet(store: Store) -> None:
    place = store.append(half(40), dispatch=False)
    store.append(final(40, place), dispatch=False)
    found = read_all(store.root)
    assert (found.faults, found.places("half")[-1], found.plan.end) == ([], place, store.end)


@pytest.mark.parametrize(
    "torn",
    [
        lambda whole: whole[:5],
        lambda whole: whole[:60],
        lambda whole: whole[:-1],
        lambda whole: whole[:88] + bytes(len(whole) - 88),
        lambda whole: bytes(88) + whole[88:],
        lambda whole: whole[:88] + bytes(3) + whole[91:],
        lambda whole: bytes(4) + whole[4:],
    ],
)
@pytest.mark.parametrize("queues", [True, False])
def test_a_half_written_record(tmp_path: Path, torn: Callable[[bytes], bytes], queues: bool) -> None:
    store = filled(tmp_path / "s", queues=queues)
    content = torn(half(40, queue_offset=40).at(store.end))
    store.tear(content)
    found = read_all(store.root)
    assert (found.faults, found.plan.end) == ([], store.end)
    assert found.plan.torn >= len(content.rstrip(b"\0")) > 0
    assert found.places("half") == store.places("half")


def test_what_is_torn_is_no_end_where_records_follow(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", queues=False)
    patch(*store.log_file(store.places("half")[-2]), bytes(4))
    found = read_all(store.root)
    assert (found.codes, found.faults[0].physical) == (["size"], store.places("half")[-2])


def test_what_a_queue_names_is_not_torn(store: Store) -> None:
    place = store.records[-1][0]
    patch(*store.log_file(place), bytes(4))
    found = read_all(store.root)
    assert (found.codes, found.faults[0].physical) == (["size"], place)


@pytest.mark.parametrize("ahead", [1, 7])
def test_a_copy_whose_queues_are_newer_than_its_log(store: Store, ahead: int) -> None:
    end = store.records[-ahead][0]
    path, position = store.log_file(end)
    patch(path, position, bytes(8192 - position))
    found = read_all(store.root)
    assert (found.faults, found.plan.end, found.plan.queue_ahead) == ([], end, ahead)
    assert found.places("half") == [place for place in store.places("half") if place < end]
    assert layout(store.root, end).end == end


def test_zeros_are_no_end_where_a_queue_names_a_record_far_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commitlog.StoreFile.zeros, "__defaults__", (64,))
    place = store.places("half")[-3]
    patch(*store.log_file(place), bytes(200))
    found = read_all(store.root, size=1 << 30)
    assert (found.codes, found.faults[0].physical) == (["zeros"], place)


def test_a_queue_that_names_what_is_behind_the_last_file(store: Store) -> None:
    store.unit(HALF_QUEUE, 40, 8192 * 3 + 50, 200)
    found = read_all(store.root)
    assert (found.codes, found.plan.end) == (["beyond"], store.end)
    assert (found.faults[0].file, found.faults[0].offset) == (str(store.queue_file(HALF_QUEUE, 40)[0]), 800)
    assert found.places("half") == store.places("half")


def test_a_last_file_that_is_cut(store: Store) -> None:
    path, position = store.log_file(store.records[-1][0])
    with path.open("r+b") as file:
        file.truncate(position + 50)
    found = read_all(store.root)
    assert (found.codes, found.faults[0].physical) == (["cut"], store.records[-1][0])


@pytest.mark.long
@pytest.mark.parametrize("seen", [None, 0, 8, 100, 300])
@pytest.mark.parametrize("looks", [range(1), range(1, 2), range(2, 3), range(3, 4), range(4, 5), range(50)])
def test_a_broker_that_goes_on_writing(
    store: Store, monkeypatch: pytest.MonkeyPatch, looks: range, seen: int | None
) -> None:
    """A record more whenever somebody looks at the log's end, who may already see what is written far after it."""
    end, look, n = store.end, commitlog.StoreFile.read, -1

    def read_while_writing(file: commitlog.StoreFile, at: int, length: int) -> Any:
        nonlocal n
        content = look(file, at, length)
        n += at <= end < at + length
        if at <= end < at + length and n in looks:
            store.extend([half(1000 + 2 * n), half(1001 + 2 * n)])
            if seen is not None:
                content = np.append(content[: end - at + seen], look(file, at, length)[end - at + seen :])
        return content

    monkeypatch.setattr(commitlog.StoreFile, "read", read_while_writing)
    found = read_all(store.root)
    assert not found.faults
    assert found.places("half") == [place for place in store.places("half") if place < found.plan.end]
    assert found.plan.end >= end


def test_a_large_record(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", file_size=32 << 20)
    places = store.extend([half(0), half(1, body=b"x" * (9 << 20)), half(2), half(3, body=b"y" * (8 << 20)), half(4)])
    found = read_all(store.root)
    assert (found.places("half"), found.faults) == (places, [])
    assert [len(row["body"]) for row in found.rows["half"]] == [6, 9 << 20, 6, 8 << 20, 6]
