"""Store directories: what is read, and what is refused."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from halfop.frame.errors import InputRefused
from halfop.rocketmq.batches import BATCH
from halfop.rocketmq.store import commitlog
from halfop.rocketmq.store.layout import layout
from halfop.rocketmq.store.stretch import read
from support.brokers.store_reader import SMALL, filled, read_all
from support.brokers.store_writer import BORN_MS, HALF_QUEUE, Store, half


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that even these stores are read in several."""
    monkeypatch.setattr(commitlog, "WINDOW", 1500)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return filled(tmp_path / "store")


@pytest.mark.long
@pytest.mark.parametrize("size", [1, SMALL, 1 << 30])
def test_everything_is_read_once(store: Store, size: int) -> None:
    found = read_all(store.root, size=size)
    assert not found.faults
    assert {kind: found.places(kind) for kind in found.rows} == {
        kind: store.places(kind) for kind in ("half", "op", "final", "discard")
    }
    assert (found.records, found.newest) == (len(store.records), BORN_MS + 39)
    assert (found.plan.first, found.plan.end) == (0, store.end)
    assert (found.plan.cross_checked, found.plan.queue_ahead, found.plan.torn) == (True, 0, 0)


def test_stretches_are_about_as_long_as_asked(store: Store) -> None:
    stretches = layout(store.root, size=SMALL).stretches
    assert {each.end for each in stretches[:-1]} == {each.start for each in stretches[1:]}
    assert all(SMALL <= each.end - each.start < SMALL + 1000 or each.end == each.file.end for each in stretches[:-1])
    assert len(layout(store.root, size=1 << 30).stretches) == 3


def test_only_the_asked_kinds(store: Store) -> None:
    batches = [piece.batches for each in layout(store.root).stretches for piece in read(each, {"op": BATCH["op"]})]
    bodies = [row["body"] for each in batches if each for row in each["op"].to_pylist()]
    assert bodies == [f"{n}," for n in range(0, 40, 5)]
    assert {kind for each in batches for kind in each} == {"op"}


def test_the_next_landing_begins_where_the_last_ended(store: Store) -> None:
    end = layout(store.root).end
    assert layout(store.root, end).stretches == ()
    places = store.extend([half(100 + n) for n in range(80)])
    found = read_all(store.root, start=end)
    assert found.places("half") == places
    assert not found.faults


@pytest.mark.parametrize("at", [-1, 1 << 40])
def test_a_start_outside_the_log(tmp_path: Path, at: int) -> None:
    with pytest.raises(InputRefused, match="without"):
        layout(filled(tmp_path / "s", first=8192).root, 8191 if at < 0 else at)


@pytest.mark.parametrize("folder", ["consumequeue", "consumequeue_rocksdb"])
def test_consume_queues_in_rocksdb_are_none_and_are_noticed(tmp_path: Path, folder: str) -> None:
    """RocketMQ 5.3 has them in the folder of the files, 5.5 in one of their own."""
    filled(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "CURRENT").write_text("MANIFEST-000001\n")
    found = read_all(tmp_path)
    assert (found.plan.cross_checked, found.plan.in_rocksdb, found.faults) == (False, True, [])


def test_without_consume_queues_nothing_is_cross_checked(tmp_path: Path) -> None:
    store = filled(tmp_path / "s", queues=False)
    found = read_all(store.root)
    assert found.places("half") == store.places("half")
    assert not found.plan.cross_checked


def test_a_log_that_retention_has_cut(store: Store) -> None:
    first = min((store.root / "commitlog").iterdir())
    first.unlink()
    found = read_all(store.root)
    assert not found.faults
    assert found.places("half") == [place for place in store.places("half") if place >= 8192]


def test_a_queue_that_begins_with_pre_blanked_units(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", first=8192, file_size=8192)
    store.next_offsets[HALF_QUEUE] = 130
    places = [store.append(half(n)) for n in range(3)]
    found = read_all(store.root)
    assert (found.places("half"), found.faults) == (places, [])


# ---- directories that are no store ----


def _rename(store: Store) -> None:
    path = store.log_file(8192)[0]
    path.rename(path.with_name("8192"))


def _queue_rename(store: Store) -> None:
    path = store.queue_file(HALF_QUEUE, 0)[0]
    path.rename(path.with_name("x"))


def _dledger_entries(store: Store) -> None:
    """The log as DLedger has it: each record in an entry, which holds its own place."""
    (first, *_) = sorted((store.root / "commitlog").iterdir())
    entry = struct.pack(">iiqqqiiii", 1, 52 + 100, 0, 1, int(first.name), 0, 0, 0, 100)
    first.write_bytes(entry + first.read_bytes()[len(entry) :])


def _dledger_folder(store: Store) -> None:
    (store.root / "dledger-n0" / "data").mkdir(parents=True)


def _dledger_alone(store: Store) -> None:
    shutil.rmtree(store.root / "commitlog")
    _dledger_folder(store)


@pytest.mark.parametrize("harm", [_dledger_folder, _dledger_alone, _dledger_entries])
def test_a_log_of_dledger_is_refused_by_name(store: Store, harm: Callable[[Store], object]) -> None:
    harm(store)
    with pytest.raises(InputRefused, match=r"DLedger's log .*\nland from the running broker: land broker") as refused:
        read_all(store.root)
    assert refused.value.exit_status == 3


def test_a_folder_of_dledger_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    with pytest.raises(InputRefused, match="DLedger's log"):
        read_all(tmp_path / "dledger-n0")


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda store: shutil.rmtree(store.root / "commitlog"), "commitlog: no such folder"),
        (
            lambda store: [path.unlink() for path in (store.root / "commitlog").iterdir()],
            "commitlog: the commit log has",
        ),
        (lambda store: store.log_file(8192)[0].unlink(), "0{20}: ends at 8192, the next file 0{15}16384 begins at"),
        (lambda store: os.truncate(store.log_file(8192)[0], 8000), "0{16}8192: ends at 16192"),
        (_rename, "8192: no file of a store"),
        (_queue_rename, "x: no file of a store"),
        (lambda store: (store.root / "commitlog" / ("0" * 19 + "7")).mkdir(), "7: no file of a store"),
    ],
)
def test_no_store(store: Store, harm: Callable[[Store], object], problem: str) -> None:
    harm(store)
    with pytest.raises(InputRefused, match=problem):
        read_all(store.root)
