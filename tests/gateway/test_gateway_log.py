"""The gateway's log: what it writes is RocketMQ's, byte for byte, and what it has written can be read."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import pytest
from halfop.frame.errors import InputRefused, WarehouseBusy
from halfop.gateway.core.messages import QueueOffsets, Topic
from halfop.gateway.log import log as log_module
from halfop.gateway.log.files import Handles
from halfop.gateway.log.log import Log, StoreForm
from halfop.gateway.log.queues import FILE_UNITS, LogQueue
from halfop.gateway.log.records import Recent, tags_code
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from support.brokers.store_reader import read_all
from support.brokers.store_writer import Record
from support.gateway.gateway_log import BORN_MS, CLIENT, HOST, SMALL, Waiting, end_of, message, uniq


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Waiting]:
    opened = Waiting(tmp_path / "store")
    yield opened
    opened.close()


def test_records_are_what_a_broker_lays_out(gateway: Waiting) -> None:
    half = gateway.half(5)
    gateway.end(half, "COMMIT", from_check=True)
    given = message(5)
    properties = dict(entry.split("\x01") for entry in given.properties.decode().split("\x02") if entry)
    expected = Record(
        HALF_TOPIC,
        b"body 5",
        properties,
        flag=7,
        born_ms=BORN_MS + 5,
        store_ms=half.store_ms,
        property_crc=True,
    )
    assert gateway.log.record(0) == expected.at(0)
    kept = {name: properties[name] for name in ("UNIQ_KEY", "PGROUP", "TAGS", "KEYS")}
    final = gateway.log.record(half.end)
    stored = gateway.log.newest_ms
    assert final == Record(
        "orders", b"body 5", kept, 1, 7, 0, 8, BORN_MS + 5, store_ms=stored, prepared_offset=0, property_crc=True
    ).at(half.end)
    op_at = half.end + len(final)
    said = {
        "TAGS": "d",
        "END_OUTCOME": "COMMIT",
        "END_GROUP": "pg",
        "END_STATE_TABLE_OFFSET": "0",
        "END_COMMIT_LOG_OFFSET": "0",
        "END_FROM_CHECK": "true",
        "END_TRANSACTION_ID": uniq(5),
    }
    op = gateway.log.record(op_at)
    assert op == Record(
        OP_TOPIC, b"0", said, born_ms=stored, born_host=("10.0.0.2", 10911), store_ms=stored, property_crc=True
    ).at(op_at)


def test_an_op_is_born_when_its_end_was_judged(gateway: Waiting) -> None:
    halves = gateway.halves([1, 2])
    gateway.until(gateway.log.append_end(halves[0], end_of("ROLLBACK")._replace(at_ms=BORN_MS + 77)).end)
    gateway.end(halves[1], "ROLLBACK")
    born = [row["born_timestamp"].timestamp() * 1000 for row in read_all(gateway.log.folder).rows["op"]]
    assert born == [BORN_MS + 77, gateway.log.newest_ms]


def test_a_rollback_delivers_nothing(gateway: Waiting) -> None:
    half = gateway.half(1)
    gateway.end(half, "ROLLBACK")
    assert gateway.log.offsets("orders", 1) == QueueOffsets(0, 0)
    assert gateway.log.offsets(OP_TOPIC, 0) == QueueOffsets(0, 1)
    assert (gateway.log.outcome(half), gateway.log.open_halves) == ("ROLLBACK", {})


@pytest.mark.parametrize(("first", "opposite"), [("COMMIT", "ROLLBACK"), ("ROLLBACK", "COMMIT")])
def test_the_first_end_stands(gateway: Waiting, first: str, opposite: str) -> None:
    half = gateway.half(1)
    assert gateway.end(half, first).kind == "ENDED"  # type: ignore[arg-type]
    delivered = gateway.log.offsets("orders", 1)
    written = gateway.log.flushed_to
    found = gateway.log.half_at(half.physical_offset)
    assert found == half
    assert (gateway.end(half, first).kind, gateway.log.flushed_to) == ("REPEATED", written)  # type: ignore[arg-type]
    assert gateway.end(half, opposite).kind == "OPPOSED"  # type: ignore[arg-type]
    assert gateway.log.offsets("orders", 1) == delivered
    assert gateway.log.offsets(OP_TOPIC, 0) == QueueOffsets(0, 2)
    written = gateway.log.flushed_to
    for _ in range(2):
        for again in (first, opposite, first):  # in turns: nothing new is said, so nothing fills the disk
            assert gateway.end(half, again).kind == "REPEATED"  # type: ignore[arg-type]
        assert (gateway.log.flushed_to, gateway.log.outcome(half)) == (written, first)
        gateway.close()
        gateway.log = Waiting(gateway.log.folder).log  # the fixture closes it
    assert gateway.log.outcome(half) == first


def test_an_op_that_does_not_fit_delivers_nothing(gateway: Waiting) -> None:
    half = gateway.half(1)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"bytes, [0-9]+ fit"):
            gateway.log.append_end(half, end_of("COMMIT")._replace(transaction_id="i" * 40_000))
    assert gateway.end(half, "COMMIT").kind == "ENDED"
    assert gateway.log.offsets("orders", 1) == QueueOffsets(0, 1)


def test_a_store_is_what_our_readers_take(gateway: Waiting) -> None:
    halves = gateway.halves(range(60))
    for n, half in enumerate(halves[:40]):
        gateway.end(half, "ROLLBACK" if n % 3 == 0 else "COMMIT")
    found = read_all(gateway.log.folder)
    assert found.faults == []
    assert len(list((gateway.log.folder / "commitlog").iterdir())) > 3
    assert [row["queue_offset"] for row in found.rows["half"]] == list(range(60))
    assert [row["body"] for row in found.rows["op"]] == [str(n) for n in range(40)]
    committed = [half.physical_offset for n, half in enumerate(halves[:40]) if n % 3]
    assert [row["prepared_transaction_offset"] for row in found.rows["final"]] == committed
    assert {row["born_host"] for row in found.rows["half"]} == {"10.0.0.1:40000"}


def test_only_durable_half_messages_are_known(gateway: Waiting) -> None:
    half = gateway.half(1)
    assert gateway.log.half_at(half.physical_offset) == half
    for wrong in (half.physical_offset + 1, half.end, -1, 1 << 40):
        assert gateway.log.half_at(wrong) is None
    gateway.end(half, "COMMIT")
    assert gateway.log.half_at(half.end) is None  # a final message


def test_a_body_cannot_pose_as_a_record(gateway: Waiting) -> None:
    posing = Record(HALF_TOPIC, b"x", {"REAL_TOPIC": "orders", "REAL_QID": "0", "PGROUP": "other"}, property_crc=True)
    body_at = 88  # of a record with IPv4 hosts
    half = gateway.half(1, body=posing.at(body_at))
    assert gateway.log.record(half.physical_offset) is not None
    assert gateway.log.half_at(half.physical_offset + body_at) is None


# ---- reads ----


def test_pulls(gateway: Waiting) -> None:
    halves = gateway.halves(range(150))  # units of two files
    found = gateway.log.pull(HALF_TOPIC, 0, 95, 10)
    assert (found.records, found.next) == ([gateway.log.record(half.physical_offset) for half in halves[95:105]], 105)
    assert len(gateway.log.pull(HALF_TOPIC, 0, 3, 32, most_bytes=halves[3].size * 3 + 40).records) == 3
    assert len(gateway.log.pull(HALF_TOPIC, 0, 3, 32, most_bytes=1).records) == 1
    for topic, queue, offset in ((HALF_TOPIC, 0, 150), (HALF_TOPIC, 1, 0), ("other", 0, 0), (HALF_TOPIC, 0, -1)):
        assert gateway.log.pull(topic, queue, offset, 5) == ([], offset)
    assert [unit.physical for unit in gateway.log.units(HALF_TOPIC, 0, 148, 9)] == [
        half.physical_offset for half in halves[148:]
    ]


def test_offsets_by_time(gateway: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(20):
        monkeypatch.setattr("halfop.gateway.log.log._now_ms", lambda n=n: BORN_MS + 10 * (n // 2))
        gateway.half(n)
    at = [gateway.log.offset_at(HALF_TOPIC, 0, BORN_MS + ms) for ms in (-5, 0, 1, 10, 11, 90, 91)]
    assert at == [0, 0, 2, 2, 4, 18, 20]


def test_store_times_never_go_back(gateway: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = gateway.half(1).store_ms
    monkeypatch.setattr("halfop.gateway.log.log._now_ms", lambda: 5)
    assert gateway.half(2).store_ms == gateway.log.newest_ms == newest


def test_its_clock_stands_at_what_cannot_be_read_and_never_goes_back(
    gateway: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [BORN_MS]
    monkeypatch.setattr("halfop.gateway.log.log._now_ms", lambda: clock[0])
    with monkeypatch.context() as unflushed:
        unflushed.setattr(gateway.log._flusher, "wake", lambda: None)
        assert gateway.log.readable_ms() == BORN_MS
        for later in (5, 9, 60_000):
            clock[0] = BORN_MS + later
            last = gateway.log.append_half(message(later))
        assert gateway.log.readable_ms() == BORN_MS + 5
    gateway.log._flusher.wake()
    gateway.until(last.end)
    clock[0] = BORN_MS + 70_000
    assert gateway.log.readable_ms() == BORN_MS + 70_000
    clock[0] = BORN_MS  # it was set back
    assert gateway.log.readable_ms() == BORN_MS + 70_000
    assert gateway.half(9).store_ms == BORN_MS + 70_000, "not before what was shown"


def test_unflushed_messages_cannot_be_read(gateway: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway.log._flusher, "wake", lambda: None)
    half = gateway.log.append_half(message(1))
    assert gateway.log.unflushed == half.size
    assert (gateway.log.half_at(0), gateway.log.record(0)) == (None, None)
    assert gateway.log.offsets(HALF_TOPIC, 0) == QueueOffsets(0, 0)
    monkeypatch.undo()
    gateway.log._flusher.wake()
    gateway.until(half.end)
    assert (gateway.log.half_at(0), gateway.log.unflushed) == (half, 0)


@pytest.mark.parametrize(
    ("tags", "code"),
    [("a", 97), ("d", 100), ("", 0), ("TagA", 2598919), ("日本", 835047), ("polygenelubricants", -(2**31))],
)
def test_the_hash_of_tags_is_javas(tags: str, code: int) -> None:
    assert tags_code(tags.encode()) == code


# ---- owner and topics ----


@pytest.mark.process
def test_one_process_at_a_time(gateway: Waiting) -> None:
    with pytest.raises(WarehouseBusy, match="another gateway or broker has this store open"):
        Waiting(gateway.log.folder)
    # as a broker locks it, by fcntl's lock of a process
    script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1)"
    ran = subprocess.run([sys.executable, "-c", script, gateway.log.folder / "lock"], check=False, capture_output=True)
    assert b"BlockingIOError" in ran.stderr


def test_another_name_is_refused(tmp_path: Path) -> None:
    first = Waiting(tmp_path, "gw")
    first.half(1)
    first.close()
    with pytest.raises(InputRefused, match="the store of gateway gw, not of other"):
        Waiting(tmp_path, "other")
    again = Waiting(tmp_path, "gw")  # and the lock was let go
    assert again.log.identity == first.log.identity
    again.close()


@pytest.mark.parametrize("name", ["gateway.json", "checkpoint", "topics.json"])
def test_a_small_file_that_the_disk_does_not_give_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    Waiting(tmp_path).close()
    read_bytes = Path.read_bytes

    def read(path: Path) -> bytes:
        if path.name == name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))  # as a read of an open file fails
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    with pytest.raises(OSError, match=rf"Input/output error: '{tmp_path}/.*{name}'"):
        Waiting(tmp_path)


@pytest.mark.parametrize("size", [4096, 65_536])
def test_other_sizes_of_files_are_refused(tmp_path: Path, size: int) -> None:
    gateway = Waiting(tmp_path / "store")
    gateway.halves(range(60))
    gateway.close()
    before = {path: path.read_bytes() for path in (tmp_path / "store").glob("commitlog/*")}
    with pytest.raises(InputRefused, match=r"(?s)a file of 8192 bytes .* gateway\.file_size"):
        Waiting(tmp_path / "store", form=StoreForm(size, 100))
    assert {path: path.read_bytes() for path in before} == before


def test_a_brokers_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).touch()
    with pytest.raises(InputRefused, match="a store that no gateway has made"):
        Waiting(tmp_path)


def test_topics_are_kept_as_a_broker_keeps_them(tmp_path: Path) -> None:
    gateway = Waiting(tmp_path)
    gateway.log.put_topic("orders", Topic(4, 8))
    gateway.close()
    table = json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert {name: (each["readQueueNums"], each["writeQueueNums"], each["perm"]) for name, each in table.items()} == {
        HALF_TOPIC: (1, 1, 6),
        OP_TOPIC: (1, 1, 6),
        "orders": (4, 8, 6),
    }
    again = Waiting(tmp_path)
    assert again.log.topics["orders"] == Topic(4, 8)
    again.close()


def test_who_adds_a_topic_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, sync = Waiting(tmp_path), os.fsync

    def fsync(handle: int) -> None:
        assert current_thread() is not main_thread()
        sync(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        for n in range(3):
            gateway.log.put_topic(f"topic-{n}", Topic(4, 4))
        gateway.half(1)
        table = json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert {"topic-0", "topic-1", "topic-2"} <= table.keys(), "durable with the first message that comes after"
    gateway.close()


def test_a_checkpoint_ends_though_messages_come_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = LogQueue(tmp_path / "cq" / "t" / "0", "t", 0, FILE_UNITS, Handles(2))
    queue.write(0, bytes(20))
    synced: list[int] = []

    def fsync(handle: int) -> None:
        synced.append(handle)
        assert len(synced) < 10
        queue.write(len(synced), bytes(20))

    monkeypatch.setattr(os, "fsync", fsync)
    queue.sync()
    queue.sync()
    assert len(synced) == 2 + 3, "the file twice, and the folders of a new one"


def test_a_lack_of_open_files_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, lacking = os.open, [errno.EMFILE, errno.ENFILE]

    def opened(*args: Any, **more: Any) -> int:
        if lacking:
            raise OSError(lacking.pop(), "too many open files")
        return real(*args, **more)

    monkeypatch.setattr(os, "open", opened)
    queue = LogQueue(tmp_path / "cq" / "t" / "0", "t", 0, FILE_UNITS, Handles(2))
    queue.write(0, bytes(20))
    assert lacking == []


def test_ipv6_hosts(tmp_path: Path) -> None:
    host, client = b"\x00" * 15 + b"\x01" + HOST[4:], b"\xfe\x80" + b"\x00" * 14 + CLIENT[4:]
    log = Log(tmp_path, "gw", host, SMALL)
    half = log.append_half(message(1)._replace(born_host=client))
    log.append_end(half, end_of("ROLLBACK", 1))
    log.close()
    log = Log(tmp_path, "gw", host, SMALL)
    assert log.half_at(0) == half
    log.append_half(message(2)._replace(born_host=client))
    log.close()
    found = read_all(tmp_path)
    assert {(row["born_host"], row["store_host"]) for row in found.rows["half"]} == {("[fe80::]:40000", "[::1]:10911")}


def test_a_commit_is_the_same_whether_its_half_message_is_kept_or_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finals(folder: Path) -> list[dict[str, object]]:
        gateway = Waiting(folder)
        for half in gateway.halves(range(20)):
            gateway.end(half, "COMMIT")
        gateway.close()
        return [{k: v for k, v in row.items() if k != "store_timestamp"} for row in read_all(folder).rows["final"]]

    kept = finals(tmp_path / "kept")
    monkeypatch.setattr(log_module, "_RECENT_BYTES", 0)
    assert finals(tmp_path / "read") == kept
    assert len(kept) == 20


def test_recent_records_are_bounded_by_their_bytes() -> None:
    recent = Recent(100)
    for at in range(0, 400, 40):
        recent.add(at, bytes(40))
    assert [at for at in range(0, 400, 40) if recent.take(at)] == [320, 360]
    recent.add(1, bytes(100))  # what was taken leaves its room
    assert recent.take(1) == bytes(100)
    recent.add(2, bytes(101))
    assert recent.take(2) is None


def test_of_many_owners_those_that_wrote_last_keep_a_file_open(tmp_path: Path) -> None:
    handles, opened = Handles(2), []

    def open_file(number: int) -> int:
        opened.append(number)
        return os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT)

    for owner, number in (("a", 1), ("b", 2), ("a", 1), ("c", 3), ("a", 1), ("b", 2), ("b", 4)):
        os.write(handles.get(owner, number, open_file), b"x")
    assert opened == [1, 2, 3, 2, 4]
    held = [handles.get(owner, number, open_file) for owner, number in (("a", 1), ("b", 4))]
    handles.close()
    for each in held:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(each)
