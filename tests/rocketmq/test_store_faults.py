"""Corrupt records and consume queues: found, named, and skipped at the cost of what is lost."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from halfop.frame.errors import InputRefused
from halfop.rocketmq.store import commitlog
from halfop.rocketmq.store.layout import layout
from halfop.rocketmq.store.stretch import read
from support.brokers.store_reader import SMALL, filled, read_all
from support.brokers.store_writer import BORN_MS, HALF, HALF_QUEUE, Record, Store, final, half, patch


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that even these stores are read in several."""
    monkeypatch.setattr(commitlog, "WINDOW", 1500)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return filled(tmp_path / "store")


# ---- corrupt records: place is a half record in the second file, with records of all kinds around it ----


def in_log(position: int, content: bytes) -> Callable[[Store, int], None]:
    def harm(store: Store, place: int) -> None:
        path, start = store.log_file(place)
        patch(path, start + position, content)

    return harm


def in_queue(content: bytes, at: int = 0) -> Callable[[Store, int], None]:
    def harm(store: Store, place: int) -> None:
        path, position = store.queue_file(HALF_QUEUE, half_offset(store, place))
        patch(path, position + at, content)

    return harm


def half_offset(store: Store, place: int) -> int:
    return next(record.queue_offset for at, record in store.records if at == place)


BROKEN_CHAIN = [
    ("zeros", in_log(0, bytes(8))),
    ("zeros", in_log(0, bytes(120))),
    ("size", in_log(0, bytes(4))),
    ("size", in_log(0, struct.pack(">i", -5))),
    ("lengths", in_log(0, struct.pack(">i", 100))),
    ("cut", in_log(0, struct.pack(">i", 60_000))),
    ("size", in_log(0, struct.pack(">i", 1 << 30))),
    ("magic", in_log(4, b"\0")),
    ("blank", in_log(4, struct.pack(">I", 0xCBD43194))),
    ("offset", in_log(35, b"\xff")),
    ("lengths", in_log(84, struct.pack(">i", 3))),
    ("lengths", in_log(39, b"\x10")),
]
ONE_RECORD = [
    ("crc", in_log(88, b"X")),
    ("crc", in_log(8, b"\x7f\1\2\3")),
    ("queue", in_log(20, struct.pack(">q", 3))),
    ("queue", in_log(20, struct.pack(">q", 1 << 60))),
    ("queue", in_log(20, struct.pack(">q", -1))),
    ("unit", in_log(12, struct.pack(">i", 1))),
    ("unit", in_log(12, struct.pack(">i", -1))),
    ("unit", in_log(12, struct.pack(">i", 7 << 20))),
    ("time", in_log(56, b"\x7f")),
    ("queue", in_queue(struct.pack(">q", 77))),
    ("queue", in_queue(struct.pack(">q", 1 << 50))),
    ("queue", in_queue(struct.pack(">i", 77), 8)),
    ("queue", in_queue(bytes(20))),
    ("queue", in_queue(struct.pack(">qi", 0, 0x7FFFFFFF))),
    ("queue", in_queue(struct.pack(">qi", 0, -1))),
]


SIZES = [pytest.param(SMALL, marks=pytest.mark.long), 1 << 30]  # of what is read at once


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("code", "harm"), BROKEN_CHAIN + ONE_RECORD)
def test_a_corrupt_record(store: Store, code: str, harm: Callable[[Store, int], None], size: int) -> None:
    place = next(place for place in store.places("half") if place > 8192 + 1000)
    harm(store, place)
    found = read_all(store.root, size=size)
    assert (found.codes, [fault.physical for fault in found.faults]) == ([code], [place])
    assert found.places("half") == [each for each in store.places("half") if each < place]
    assert found.places("final") == [each for each in store.places("final") if each < place]
    fault = found.faults[0]
    if code in ("queue", "unit"):
        assert f"consumequeue/{HALF}/0" in fault.file
    else:
        assert (Path(fault.file), fault.offset) == store.log_file(place)
    assert fault.lost_until == place + store.size(place)


def test_a_fault_in_a_queue_names_the_unit(store: Store) -> None:
    place = store.places("half")[20]
    for content in (bytes(20), struct.pack(">q", 77)):
        in_queue(content)(store, place)
        fault = read_all(store.root).faults[0]
        assert (Path(fault.file), fault.offset) == store.queue_file(HALF_QUEUE, 20)


@pytest.mark.long
@pytest.mark.parametrize("size", [SMALL, 1 << 30])
@pytest.mark.parametrize(("code", "harm"), BROKEN_CHAIN + ONE_RECORD)
def test_skipping_loses_just_the_record(store: Store, code: str, harm: Callable[[Store, int], None], size: int) -> None:
    place = next(place for place in store.places("half") if place > 8192 + 1000)
    harm(store, place)
    found = read_all(store.root, skip=True, size=size)
    assert found.codes == [code]
    assert found.places("half") == [each for each in store.places("half") if each != place]
    assert found.places("final") == store.places("final")
    assert found.plan.end == store.end


def test_a_record_that_has_become_one_of_another_topic(store: Store) -> None:
    place = store.places("half")[20]
    in_log(88 + len(b"body 20") + 1, b"X")(store, place)
    found = read_all(store.root)
    assert (found.codes, found.faults[0].physical) == (["unit"], place)
    assert found.faults[0].file == str(store.queue_file(HALF_QUEUE, 20)[0])


def test_a_final_in_a_topic_that_is_gone_is_read_but_not_one_that_another_queue_names(store: Store) -> None:
    shutil.rmtree(store.root / "consumequeue" / "orders")
    found = read_all(store.root)
    assert (found.places("final"), found.faults) == (store.places("final"), [])


def test_a_final_whose_topic_was_changed(store: Store) -> None:
    place = store.places("final")[20]
    in_log(88 + len(b"body 20") + 1, b"X")(store, place)
    found = read_all(store.root)
    assert (found.codes, found.faults[0].physical) == (["unit"], place)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [4, 0xC])
def test_prepared_and_rolled_back_records_of_a_real_queue_have_no_unit(tmp_path: Path, kind: int, size: int) -> None:
    """Old push consumers send back so, and any client may set the flag: queue offset 0, among final messages."""
    store = filled(tmp_path / "store", 0)
    for n in range(12):
        store.append(Record(properties={"UNIQ_KEY": f"{n:032X}"}, sys_flag=kind))
        store.append(final(n, store.append(half(n)), queue_id=0))
    found = read_all(store.root, size=size)
    assert (found.faults, found.places("half")) == ([], store.places("half"))
    assert found.places("final") == store.places("final")[1::2]


def test_a_unit_more_than_records(store: Store) -> None:
    """The second of two units that name one record is no record's."""
    place = store.places("half")[-1]
    store.unit(HALF_QUEUE, 40, place, store.size(place))
    found = read_all(store.root)
    assert (found.codes, found.faults[0].physical) == (["unit"], place)


def test_a_file_that_is_not_filled(store: Store) -> None:
    path, filler = next(
        (path, at) for path in [store.log_file(0)[0]] if (at := path.read_bytes().rfind(struct.pack(">I", 0xCBD43194)))
    )
    for content, code in ((struct.pack(">iI", 9, 0xCBD43194), "blank"), (bytes(8), "zeros")):
        patch(path, filler - 4, content)
        found = read_all(store.root)
        assert (found.codes, found.faults[0].offset, found.faults[0].lost_until) == ([code], filler - 4, 8192)
        assert read_all(store.root, skip=True).places("half") == store.places("half")


def test_faults_side_by_side_are_all_told(store: Store) -> None:
    places = store.places("half")[10:13]
    for place in places:
        in_log(88, b"X")(store, place)
    found = read_all(store.root, skip=True)
    assert [(fault.code, fault.physical) for fault in found.faults] == [("crc", place) for place in places]


def test_any_born_time_is_a_sound_record(store: Store) -> None:
    """A client sends it, and no broker looks at it."""
    in_log(40, b"\x7f")(store, store.places("half")[20])
    found = read_all(store.root)
    assert (found.codes, found.places("half")) == ([], store.places("half"))


def test_a_file_that_becomes_shorter_is_refused(store: Store) -> None:
    """This happens when a copy is made over another one."""
    stretch = layout(store.root, size=SMALL).stretches[2]
    for size in (store.places("half")[20] % 8192, 0):
        os.truncate(stretch.file.path, size)
        with pytest.raises(InputRefused, match="has become shorter while it was read"):
            list(read(stretch))


def test_a_name_beyond_all_offsets_is_refused(store: Store) -> None:
    (store.root / "commitlog" / ("9" * 20)).touch()
    with pytest.raises(InputRefused, match="no file of a store"):
        layout(store.root)


def test_a_folder_of_the_disk_itself_is_no_file_of_the_log(store: Store) -> None:
    before = layout(store.root)
    (store.root / "commitlog" / "lost+found").mkdir()
    assert layout(store.root) == before


@pytest.mark.parametrize(("start", "hint"), [(-1, "--skip-corrupt goes on behind it"), (1 << 40, "an older copy")])
def test_a_log_that_lacks_where_landing_goes_on_says_what_to_do(store: Store, start: int, hint: str) -> None:
    with pytest.raises(InputRefused) as refused:
        layout(store.root, start)
    assert hint in str(refused.value.hint)


def test_nothing_sound_behind_a_fault(store: Store) -> None:
    place = store.places("half")[-1]
    path, position = store.log_file(place)
    patch(path, position, b"\xff" * (store.end - place))
    found = read_all(store.root, skip=True)
    assert (found.codes, found.plan.end) == (["magic"], place)
    assert found.places("half") == store.places("half")[:-1]


def test_nothing_behind_a_fault_tells_how_far_the_log_is_known(tmp_path: Path) -> None:
    """Ops after it have not landed: a newest time of theirs would let time pass for half messages that they end."""
    store = Store(tmp_path / "store")
    places = [store.append(half(n, store_ms=BORN_MS + n * 86_400_000)) for n in range(6)]
    path, position = store.log_file(places[1])
    patch(path, position + 8, b"\xff\xff")
    found = read_all(store.root)
    assert (found.codes, found.places("half"), found.records, found.newest) == (["crc"], places[:1], 1, BORN_MS)
