"""Files of a gateway's log go only when they have landed, and nobody can end a message in them any more."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from halfop.frame.errors import HalfopError
from halfop.gateway.core.messages import OUTCOMES, End, Half, QueueOffsets
from halfop.gateway.log.store import WHOLE_LOG
from halfop.gateway.tables import Tables
from halfop.gateway.upkeep import Deliveries, Upkeep
from halfop.gateway.whole_tables import LogLife, refuse_missing
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.warehouse.damage import DamagedTable
from support.brokers.store_reader import read_all
from support.gateway.gateway_log import BORN_MS, SMALL, Waiting

pytestmark = pytest.mark.long

FAR = 1 << 40
NEVER = 0  # nothing was stored before
SHORT = timedelta(milliseconds=20)


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    monkeypatch.setattr("halfop.gateway.log.log._now_ms", lambda: BORN_MS)
    opened = Waiting(tmp_path / "store")
    yield opened
    opened.close()


def ended(gateway: Waiting, first: int, count: int) -> list[Half]:
    halves = []
    for n in range(first, first + count):
        halves.append(gateway.half(n))
        gateway.end(halves[-1], OUTCOMES[n % 3 == 0])
    return halves


def all_landed(gateway: Waiting) -> dict[tuple[str, int], int]:
    queues = [(HALF_TOPIC, 0), (OP_TOPIC, 0), *(("orders", n) for n in range(4))]
    return {queue: gateway.log.offsets(*queue).next for queue in queues}


def log_files(gateway: Waiting) -> list[int]:
    return sorted(int(file.name) for file in (gateway.log.folder / "commitlog").iterdir())


def test_what_has_landed_and_ended_goes(gateway: Waiting) -> None:
    halves = ended(gateway, 0, 60)
    before = log_files(gateway)
    assert gateway.log.expire(all_landed(gateway), NEVER) == []
    assert (len(before) > 3, log_files(gateway)) == (True, before[-1:])
    first = gateway.log.offsets(HALF_TOPIC, 0).first
    assert gateway.log.half_at(halves[0].physical_offset) is None
    assert gateway.log.pull(HALF_TOPIC, 0, first - 1, 1).records == []
    for queue in all_landed(gateway):
        low, following = gateway.log.offsets(*queue)
        found = gateway.log.pull(*queue, low, 1000, FAR)
        assert len(found.records) == following - low
        assert all(record is not None for record in found.records)
    later = ended(gateway, 60, 5)
    assert [half.queue_offset for half in later] == list(range(60, 65))
    assert read_all(gateway.log.folder).faults == []


@pytest.mark.parametrize("lacking", [(HALF_TOPIC, 0), (OP_TOPIC, 0), ("orders", 1)])
def test_what_has_not_landed_stays(gateway: Waiting, lacking: tuple[str, int]) -> None:
    ended(gateway, 0, 60)
    before = log_files(gateway)
    landed = all_landed(gateway)
    for some in ({**landed, lacking: 0}, {queue: at for queue, at in landed.items() if queue != lacking}, {}):
        assert gateway.log.expire(some, NEVER) == []
        assert log_files(gateway) == before
    gateway.log.expire({**landed, lacking: landed[lacking] // 2}, NEVER)
    assert 1 < len(log_files(gateway)) < len(before)
    assert gateway.log.offsets(*lacking).first <= landed[lacking] // 2


def test_the_whole_log_can_have_landed(gateway: Waiting) -> None:
    ended(gateway, 0, 60)
    before = log_files(gateway)
    gateway.log.expire({WHOLE_LOG: before[2] - 1}, NEVER)
    assert log_files(gateway) == before[1:]
    gateway.log.expire({WHOLE_LOG: gateway.log.flushed_to}, NEVER)
    assert log_files(gateway) == before[-1:]


def test_the_newest_file_stays_though_it_is_full(gateway: Waiting, tmp_path: Path) -> None:
    """A cut has left a log that ends with a file; without that one the gateway would not start again."""
    for n in range(1000):
        files, last = log_files(gateway), gateway.half(n)
        if len(log_files(gateway)) > len(files) > 1:
            break
        gateway.end(last, OUTCOMES[0])
    folder = tmp_path / "cut"
    shutil.copytree(gateway.log.folder, folder, ignore=shutil.ignore_patterns(f"{last.physical_offset:020d}"))
    cut = Waiting(folder)
    assert cut.log.flushed_to == last.physical_offset
    cut.log.expire(all_landed(cut), NEVER)
    assert log_files(cut) == files[-1:]
    cut.close()
    again = Waiting(folder)
    half = again.half(0)
    again.close()
    assert (half.queue_offset, half.physical_offset) == (last.queue_offset, last.physical_offset)


def test_open_half_messages_stay_until_they_expire(gateway: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(gateway, 0, 30)
    still = gateway.half(30)
    ended(gateway, 31, 30)
    gateway.log.expire(all_landed(gateway), NEVER)
    kept = log_files(gateway)
    assert kept[0] <= still.physical_offset < kept[1]
    assert gateway.log.expire(all_landed(gateway), BORN_MS) == []
    assert gateway.end(still, "ROLLBACK").kind == "ENDED"
    late = gateway.half(70)
    monkeypatch.setattr("halfop.gateway.log.log._now_ms", lambda: BORN_MS + 10)
    ended(gateway, 71, 60)
    assert gateway.log.expire(all_landed(gateway), BORN_MS + 10) == []  # the file's last message is of that instant
    assert gateway.log.expire(all_landed(gateway), BORN_MS + 11) == [late]
    assert gateway.log.half_at(late.physical_offset) is None
    for outcome in OUTCOMES:
        assert gateway.end(late, outcome).kind == "GONE"
    assert list(gateway.log.open_halves) == []


def test_a_file_stays_until_the_end_of_its_half_message_is_durable(
    gateway: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(gateway, 0, 30)
    still = gateway.half(30)
    ended(gateway, 31, 30)
    gateway.log.expire(all_landed(gateway), NEVER)
    kept = log_files(gateway)
    with monkeypatch.context() as patched:
        patched.setattr(gateway.log._flusher, "wake", lambda: None)
        end = gateway.log.append_end(still, End("ROLLBACK", False, still.group, still.uniq_key)).end
        assert gateway.log.expire(all_landed(gateway), NEVER) == []
        assert log_files(gateway) == kept
    gateway.log._flusher.wake()
    gateway.until(end)
    assert gateway.log.expire(all_landed(gateway), NEVER) == []
    assert log_files(gateway) == kept[-1:]


def test_a_store_that_lost_files_opens_again(gateway: Waiting) -> None:
    halves = ended(gateway, 0, 250)  # consume queues of several files
    gateway.half(250)
    gateway.log.expire(all_landed(gateway), NEVER)
    assert len(list((gateway.log.folder / "consumequeue" / HALF_TOPIC / "0").iterdir())) == 1
    assert (gateway.log.folder / "consumequeue" / "orders" / "1").is_dir()
    offsets = {queue: gateway.log.offsets(*queue) for queue in all_landed(gateway)}
    assert offsets[HALF_TOPIC, 0] == QueueOffsets(offsets[HALF_TOPIC, 0].first, 251)
    gateway.close()
    again = Waiting(gateway.log.folder)
    assert {queue: again.log.offsets(*queue) for queue in offsets} == offsets
    assert [half.queue_offset for half in again.log.open_halves.values()] == [250]
    known = [half for half in halves if again.log.half_at(half.physical_offset)]
    assert [again.log.outcome(half) for half in known] == [OUTCOMES[half.queue_offset % 3 == 0] for half in known]
    assert again.half(251).queue_offset == 251
    again.close()
    gateway.log = Waiting(gateway.log.folder).log  # the fixture closes it
    assert gateway.log.offsets(HALF_TOPIC, 0).next == 252


def test_queues_that_begin_in_the_middle_are_written_again(gateway: Waiting) -> None:
    ended(gateway, 0, 150)
    gateway.log.expire(all_landed(gateway), NEVER)
    offsets = {queue: gateway.log.offsets(*queue) for queue in all_landed(gateway)}
    assert offsets[HALF_TOPIC, 0].first % 100
    gateway.close()
    shutil.rmtree(gateway.log.folder / "consumequeue")
    there = {queue: each for queue, each in offsets.items() if each.first < each.next}
    for _ in range(2):
        again = Waiting(gateway.log.folder)
        assert {queue: again.log.offsets(*queue) for queue in there} == there
        again.close()
        assert read_all(gateway.log.folder).faults == []
    gateway.log = Waiting(gateway.log.folder).log  # the fixture closes it


def test_the_disk_in_use(gateway: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    """As df has it, and with the log's next file as if it were there."""
    size = SMALL.file_size
    for used, free, found in ((30 * size, 71 * size, 31 / 101), (0, size, 1), (7 * size, size // 2, 1)):
        # some of the disk is for root alone
        usage = SimpleNamespace(total=200 * size, used=used, free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda folder, usage=usage: usage)
        assert gateway.log.disk_used() == pytest.approx(found)


# ---- landings of another log ----


def test_more_than_it_has_cannot_have_landed(gateway: Waiting) -> None:
    ended(gateway, 0, 10)
    landed = all_landed(gateway)
    assert not gateway.log.is_before({})
    assert not gateway.log.is_before({**landed, WHOLE_LOG: gateway.log.flushed_to})
    for queue in ((HALF_TOPIC, 0), (OP_TOPIC, 0)):
        assert gateway.log.is_before({**landed, queue: landed[queue] + 1})
    assert gateway.log.is_before({**landed, WHOLE_LOG: gateway.log.flushed_to + 1})


def test_what_landed_of_another_log_removes_nothing_until_a_new_life_has_landed(
    gateway: Waiting, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store was made again, or put back, under its old name: its first messages seem to have landed."""
    monkeypatch.setattr("halfop.gateway.upkeep._EXPIRE_EVERY", 0.0)
    caplog.set_level("DEBUG", "halfop.gateway")
    ended(gateway, 0, 60)
    before, landed = log_files(gateway), all_landed(gateway)
    landed_as(tmp_path, "gw", dict.fromkeys(landed, 100))
    with upkeep_of(gateway, tmp_path) as turns:
        wait_until(lambda: "--accept-rewind" in caplog.text)
        warned = (
            "old files: messages have landed under .* no landing takes them .* another store .* once: .* new life; "
        )
        assert re.search(warned, caplog.text), "what will happen, and both ways out"
        ended(gateway, 60, 60)  # it has as many now
        assert not gateway.log.is_before(dict.fromkeys(landed, 100))
        looked = len(turns)
        wait_until(lambda: len(turns) > looked + 3)
        assert log_files(gateway)[: len(before)] == before
        refused = [each.levelname for each in caplog.records if "--accept-rewind" in each.getMessage()]
        assert refused.count("WARNING") == 1, "other turns are counted alone"
        assert len(refused) > 3
        landed_as(tmp_path, "gw~2", all_landed(gateway))
        wait_until(lambda: "half_messages is not there" in caplog.text)
        assert log_files(gateway)[: len(before)] == before
        rows_landed_as(tmp_path, "gw~2", all_landed(gateway))
        wait_until(lambda: len(log_files(gateway)) == 1)


@contextmanager
def upkeep_of(gateway: Waiting, warehouse: Path) -> Iterator[list[None]]:
    """Works on the warehouse in a loop of its own; gives its turns that look for old files, as they come."""
    turns, stop = list[None](), Event()

    async def work() -> None:
        tables, deliveries = Tables(str(warehouse), "gw"), Deliveries()
        looked = lambda: turns.append(None)  # noqa: E731
        upkeep = Upkeep(tables, gateway.log, deliveries, lambda *new: None, looked, SHORT, timedelta(1), timedelta(3))
        while not stop.is_set():
            await asyncio.sleep(0.02)
        await upkeep.close()

    thread = Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        yield turns
    finally:
        stop.set()
        thread.join()


def test_what_landed_in_an_earlier_life_of_the_log_counts_up_to_the_cut(gateway: Waiting, tmp_path: Path) -> None:
    """A store was put back: its first messages stand as they had landed, and never land again."""
    ended(gateway, 0, 60)
    before, landed = log_files(gateway), all_landed(gateway)
    landed_as(tmp_path, "gw", landed)
    landed_as(tmp_path, "gw~2", landed, life=2, cut_offset=10)
    tables = Tables(str(tmp_path), "gw")
    rows_landed_as(tmp_path, "gw", landed, first=20)  # was lost with the first life
    rows_landed_as(tmp_path, "gw", dict.fromkeys(landed, 9))
    rows_landed_as(tmp_path, "gw~2", landed, first=10)
    # an op of the second life that names a half message of the first one has that one's name
    DeltaTable(tmp_path / "op_messages").delete("broker_name = 'gw~2' AND queue_offset = 30")
    rows = [{"broker_name": "gw", "queue_id": 0, "queue_offset": 30, "life": 2}]
    write_deltalake(tmp_path / "op_messages", pa.Table.from_pylist(rows), mode="append", schema_mode="merge")
    with pytest.raises(HalfopError, match=r" 1 messages of gw~2 .*--again gw/0/0-9 gw~2/0/10-[0-9]+\Z"):
        gateway.log.expire(landed, NEVER, partial(tables.refuse_missing, tables.landed()))
    assert log_files(gateway) == before
    rows_landed_as(tmp_path, "gw", dict.fromkeys(landed, 10), first=9)
    gateway.log.expire(landed, NEVER, partial(tables.refuse_missing, tables.landed()))
    assert log_files(gateway) == before[-1:]


def landed_as(warehouse: Path, name: str, landed: dict[tuple[str, int], int], **of_life: int) -> None:
    rows = [
        {"broker_name": name, "topic": topic, "queue_id": queue, "next_offset": offset, **of_life}
        for (topic, queue), offset in landed.items()
    ]
    added = pa.Table.from_pylist(rows)
    write_deltalake(warehouse / "landing_progress", added, mode="append", schema_mode="merge")


def rows_landed_as(
    warehouse: Path, name: str, landed: Mapping[tuple[str, int], int], lacking: int = 0, first: int = 0
) -> None:
    """Writes half and op rows up to there, but the first and the last ones."""
    for table, topic in (("half_messages", HALF_TOPIC), ("op_messages", OP_TOPIC)):
        offsets = range(first, landed[topic, 0] - lacking)
        rows = [{"broker_name": name, "queue_id": 0, "queue_offset": offset} for offset in offsets]
        write_deltalake(warehouse / table, pa.Table.from_pylist(rows), mode="append", schema_mode="merge")


# ---- what the warehouse surely has ----


@pytest.fixture
def expire(gateway: Waiting, tmp_path: Path) -> Callable[[], object]:
    """Removes what may go, as the gateway does it; all has landed by what landing_progress has."""
    ended(gateway, 0, 60)
    landed_as(tmp_path, "gw", all_landed(gateway))
    tables = Tables(str(tmp_path), "gw")
    known = tables.landed()
    return lambda: gateway.log.expire(all_landed(gateway), NEVER, partial(tables.refuse_missing, known))


@pytest.mark.parametrize("lacking", [1, 40])
def test_a_file_stays_while_a_table_lacks_a_message_of_it(
    gateway: Waiting, tmp_path: Path, expire: Callable[[], object], lacking: int
) -> None:
    """A disk without sync has lost what landed before landing_progress, which it has kept."""
    before, landed = log_files(gateway), all_landed(gateway)
    with pytest.raises(HalfopError, match="half_messages is not there"):
        expire()
    in_files = gateway.log._half_queue.first_from(before[-1])
    rows_landed_as(tmp_path, "gw", landed | {(HALF_TOPIC, 0): in_files}, lacking)
    with pytest.raises(HalfopError, match=rf"{lacking} messages of gw .* not there.*--again gw/0/0-[0-9]+\Z"):
        expire()
    assert log_files(gateway) == before
    rows_landed_as(tmp_path, "gw", landed)
    expire()
    assert log_files(gateway) == before[-1:]


def test_the_first_messages_of_a_file_may_have_been_trimmed_and_no_others(
    gateway: Waiting, tmp_path: Path, expire: Callable[[], object]
) -> None:
    before, landed = log_files(gateway), all_landed(gateway)
    rows_landed_as(tmp_path, "gw", landed, first=5)
    with pytest.raises(HalfopError, match="5 messages of gw"):
        expire()
    for table in ("half_messages", "op_messages"):
        trimmed = {"halfop.trimmedBefore": "2026-01-01 00:00:00"}
        DeltaTable(tmp_path / table).alter.set_table_properties(trimmed, raise_if_not_exists=False)
        DeltaTable(tmp_path / table).delete("queue_offset = 7")
    with pytest.raises(HalfopError, match=r"1 messages of gw .*--again gw/0/5-"):
        expire()
    for table in ("half_messages", "op_messages"):
        DeltaTable(tmp_path / table).delete("queue_offset < 7")
    expire()
    assert log_files(gateway) == before[-1:]


def test_what_was_trimmed_long_ago_explains_no_loss_of_later_messages(tmp_path: Path) -> None:
    rows_landed_as(tmp_path, "gw", {(HALF_TOPIC, 0): 100, (OP_TOPIC, 0): 1})
    table = DeltaTable(tmp_path / "half_messages")
    table.alter.set_table_properties({"halfop.trimmedBefore": "2026-01-01 00:00:00"}, raise_if_not_exists=False)
    table.delete("queue_offset < 3 OR queue_offset >= 50 AND queue_offset < 70")
    lives = [LogLife("gw", 1, 0)]
    refuse_missing(table, lives, 0, (0, 50))
    with pytest.raises(HalfopError, match="20 messages"):
        refuse_missing(table, lives, 0, (50, 70))
    table.delete("true")
    with pytest.raises(HalfopError, match="50 messages"):
        refuse_missing(table, lives, 0, (0, 50))


@pytest.mark.parametrize("table", ["half_messages", "op_messages", "landing_progress"])
def test_a_file_stays_while_a_table_has_a_commit_that_a_power_cut_has_emptied(
    gateway: Waiting, tmp_path: Path, expire: Callable[[], object], table: str
) -> None:
    rows_landed_as(tmp_path, "gw", all_landed(gateway))
    before, log = log_files(gateway), tmp_path / table / "_delta_log"
    write_deltalake(tmp_path / table, DeltaTable(tmp_path / table).to_pyarrow_table().slice(0, 1), mode="append")
    newest = max(log.glob("*.json"))
    content = newest.read_bytes()
    newest.write_bytes(b"")
    with pytest.raises(Exception, match=newest.name + "|[Ll]og|[Ee]mpty"):
        expire()
    assert log_files(gateway) == before
    newest.write_bytes(content)
    expire()
    assert log_files(gateway) == before[-1:]


def test_a_file_stays_while_a_tables_file_is_cut_off(
    gateway: Waiting, tmp_path: Path, expire: Callable[[], object]
) -> None:
    rows_landed_as(tmp_path, "gw", all_landed(gateway))
    before, (data,) = log_files(gateway), (tmp_path / "landing_progress").glob("*.parquet")
    whole = data.read_bytes()
    data.write_bytes(whole[:-1])
    with pytest.raises(DamagedTable, match=f"{data.name} has {len(whole) - 1} bytes, and not {len(whole)}"):
        expire()
    assert log_files(gateway) == before


def test_all_is_synced_before_a_file_is_removed(
    gateway: Waiting, tmp_path: Path, expire: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows_landed_as(tmp_path, "gw", all_landed(gateway))
    synced, sync, there = dict[str, int](), os.fsync, len(log_files(gateway))

    def fsync(handle: int) -> None:
        synced[os.readlink(f"/proc/self/fd/{handle}")] = len(log_files(gateway))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    expire()
    assert len(log_files(gateway)) == 1
    tables = [tmp_path / name for name in ("half_messages", "op_messages", "landing_progress")]
    wanted = [path for table in tables for path in (table, *table.rglob("*"))]
    assert {str(path): synced.get(str(path)) for path in wanted} == dict.fromkeys(map(str, wanted), there)


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)
