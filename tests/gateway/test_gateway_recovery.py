"""A gateway's log after a crash: nothing that was acknowledged is lost, and nothing is there twice."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from halfop.frame.errors import HalfopError, InputRefused
from halfop.gateway.log import files
from halfop.gateway.log.flusher import DISK_FAILED
from halfop.gateway.log.store import read_checkpoint
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.rocketmq.store import commitlog
from halfop.rocketmq.store.consumequeue import PACKED
from halfop.rocketmq.store.layout import STRETCH
from support.brokers.store_reader import read_all
from support.brokers.store_writer import Record, patch
from support.gateway.gateway_kept import acknowledged, check
from support.gateway.gateway_log import MIDDLE, Waiting, end_of
from support.places import IMPORTS, PROGRAMS

WORKER = PROGRAMS / "gateway_appender.py"


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that even these stores are read in several."""
    monkeypatch.setattr(commitlog, "WINDOW", 1500)


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk's own time is spared where a test makes the crash by itself."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda handle: None)


class Crashed:
    """A store as a crash left it: some transactions, of them two ended, one still open; the last one's end last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        gateway = Waiting(folder)
        early = gateway.halves(range(3))
        gateway.end(early[0], "COMMIT")
        gateway.log.checkpoint()
        gateway.end(early[1], "ROLLBACK")
        self.half = gateway.half(5)
        self.end_begins = gateway.log.flushed_to
        gateway.end(self.half, "COMMIT")
        self.end = gateway.log.flushed_to
        final = gateway.log.record(self.end_begins)
        assert final is not None
        self.op_begins = self.end_begins + len(final)
        copy = folder.with_name("copy")
        shutil.copytree(folder, copy)
        gateway.close()
        shutil.rmtree(folder)
        copy.rename(folder)
        self.checkpoint = (folder / "checkpoint").read_bytes()

    def log_file(self) -> Path:
        return self.folder / "commitlog" / ("0" * 20)


@pytest.fixture
def crashed(tmp_path: Path) -> Crashed:
    return Crashed(tmp_path / "store")


def reopened(crashed: Crashed, content: bytes) -> Waiting:
    """The store with another log, opened by a gateway and closed."""
    crashed.log_file().write_bytes(content)
    (crashed.folder / "checkpoint").write_bytes(crashed.checkpoint)
    gateway = Waiting(crashed.folder)
    gateway.close()
    return gateway


def as_readers_see(crashed: Crashed, committed: bool) -> None:
    found = read_all(crashed.folder, size=STRETCH)
    assert found.faults == []
    assert len(found.rows["final"]) == 1 + committed
    assert [row["body"] for row in found.rows["op"]] == ["0", "1", "3"][: 2 + committed]


# ---- torn ends ----


@pytest.mark.long
@pytest.mark.usefixtures("unsynced")
def test_an_end_that_is_cut_at_any_byte(crashed: Crashed) -> None:
    whole = crashed.log_file().read_bytes()
    for at in range(crashed.end_begins, crashed.end + 1):
        gateway = reopened(crashed, whole[:at].ljust(len(whole), b"\0"))
        committed = at >= crashed.op_begins
        assert gateway.log.outcome(crashed.half) == ("COMMIT" if committed else None), at
        assert list(gateway.log.open_halves.values())[1:] == [crashed.half][committed:], at
        assert gateway.log.offsets("orders", 1).next == committed
        assert gateway.log.offsets(OP_TOPIC, 0).next == 2 + committed
        if at % 16 == 0 or at in {crashed.op_begins, crashed.end}:
            as_readers_see(crashed, committed)


@pytest.mark.long
@pytest.mark.usefixtures("unsynced")
def test_half_messages_that_are_cut_at_any_byte(tmp_path: Path) -> None:
    gateway = Waiting(tmp_path / "store")
    stands = gateway.half(0)
    first, second = gateway.halves([1, 2])
    content = gateway.log._files.read(0, second.end)
    shutil.copytree(gateway.log.folder, tmp_path / "torn")
    gateway.close()
    for at in range(first.physical_offset, second.end + 1, 3):
        path = tmp_path / "torn" / "commitlog" / ("0" * 20)
        path.write_bytes(content[:at])  # a shorter file
        (tmp_path / "torn" / "checkpoint").unlink(missing_ok=True)
        torn = Waiting(tmp_path / "torn")
        kept = [half for half in (stands, first, second) if half.end <= at]
        assert list(torn.log.open_halves.values()) == kept
        assert torn.half(9).queue_offset == len(kept)
        torn.close()


@pytest.mark.long
@pytest.mark.usefixtures("unsynced")
def test_an_end_of_which_any_byte_is_wrong(crashed: Crashed) -> None:
    whole = crashed.log_file().read_bytes()
    for at in range(crashed.end_begins, crashed.end, 5):
        gateway = reopened(crashed, whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        committed = at >= crashed.op_begins
        assert gateway.log.outcome(crashed.half) == ("COMMIT" if committed else None), at
        if at % 4 == 0:
            as_readers_see(crashed, committed)


def test_what_a_crash_left_after_the_end_becomes_zeros(crashed: Crashed) -> None:
    patch(crashed.log_file(), crashed.end + 300, b"left over")
    gateway = Waiting(crashed.folder)
    gateway.close()
    assert not any(crashed.log_file().read_bytes()[gateway.log.flushed_to :])


def test_a_flush_that_was_cut_goes_with_all_of_its_files(tmp_path: Path) -> None:
    gateway = Waiting(tmp_path / "store")
    first = gateway.half(0)
    halves = gateway.halves(range(1, 60), body=bytes(200))
    assert len(list((tmp_path / "store" / "commitlog").iterdir())) > 2
    shutil.copytree(tmp_path / "store", tmp_path / "torn")
    gateway.close()
    patch(tmp_path / "torn" / "commitlog" / ("0" * 20), halves[2].physical_offset, bytes(40))
    torn = Waiting(tmp_path / "torn")
    assert list(torn.log.open_halves.values()) == [first, *halves[:2]]
    assert torn.half(9).physical_offset == halves[2].physical_offset
    torn.close()
    assert len(list((tmp_path / "torn" / "commitlog").iterdir())) == 1
    assert read_all(tmp_path / "torn").faults == []


# ---- what the checkpoint says ----


def test_damage_before_the_checkpoint_is_refused(crashed: Crashed) -> None:
    patch(crashed.log_file(), 4, b"\0")
    with pytest.raises(InputRefused, match=r"ends at physical offset 0 \(magic .* but was sound up to \d+"):
        Waiting(crashed.folder)


def test_a_half_message_that_rotted_is_not_committed(crashed: Crashed) -> None:
    """Its final message would not match its own CRC, and a start would cut the log there."""
    Waiting(crashed.folder).close()
    body = crashed.log_file().read_bytes().index(b"body 2")
    patch(crashed.log_file(), body, b"B")
    gateway = Waiting(crashed.folder)
    (half,) = gateway.log.open_halves.values()
    with pytest.raises(InputRefused, match=rf"half message at physical offset {half.physical_offset} fails its CRC"):
        gateway.log.append_end(half, end_of("COMMIT"))
    assert gateway.log.outcome(half) is None
    others = gateway.halves(range(6, 9))
    copy = Path(shutil.copytree(crashed.folder, crashed.folder.with_name("copy")))
    assert gateway.end(half, "ROLLBACK").kind == "ENDED"
    gateway.close()
    again = Waiting(copy)
    assert list(again.log.open_halves) == [half.physical_offset, *(each.physical_offset for each in others)]
    again.close()


def test_a_record_of_another_program_is_refused(crashed: Crashed) -> None:
    record = Record(HALF_TOPIC, b"x", {"REAL_TOPIC": "orders", "REAL_QID": "0"}, queue_offset=4)
    patch(crashed.log_file(), crashed.end, record.at(crashed.end))
    for checked in (crashed.end, crashed.end + len(record.at(0))):  # a broker moves the checkpoint, too
        patch(crashed.folder / "checkpoint", 32, checked.to_bytes(8, "big"))
        with pytest.raises(InputRefused, match="another program has written it"):
            Waiting(crashed.folder)


def test_consume_queues_are_written_again(crashed: Crashed) -> None:
    before = {path: path.read_bytes() for path in crashed.folder.glob("consumequeue/*/*/*")}
    for path in before:
        path.unlink()
    shutil.rmtree(crashed.folder / "consumequeue")
    gateway = Waiting(crashed.folder)
    gateway.close()
    assert {path: path.read_bytes() for path in before} == before


def test_a_full_disk_at_a_start_is_named(crashed: Crashed, monkeypatch: pytest.MonkeyPatch) -> None:
    def pwrite(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", pwrite)
    shutil.rmtree(crashed.folder / "consumequeue")
    with pytest.raises(OSError, match="No space left on device: ") as failed:
        Waiting(crashed.folder)
    assert Path(failed.value.filename).parent.parent == crashed.folder / "consumequeue"


def test_a_queue_that_lost_units_is_refused(crashed: Crashed) -> None:
    queue = crashed.folder / "consumequeue" / OP_TOPIC / "0" / ("0" * 20)
    patch(queue, 0, bytes(40))
    (crashed.folder / "checkpoint").unlink()
    Waiting(crashed.folder).close()  # all is written again
    gateway = Waiting(crashed.folder)
    gateway.half(7)
    shutil.copytree(crashed.folder, crashed.folder.with_name("lost"))
    gateway.close()
    patch(crashed.folder.with_name("lost") / "consumequeue" / HALF_TOPIC / "0" / ("0" * 20), 40, bytes(60))
    with pytest.raises(
        InputRefused, match=r"(?s)has offset 4 of queue 0 .* files end at 2: remove the folder consumequeue"
    ):
        Waiting(crashed.folder.with_name("lost"))


def test_units_that_a_power_cut_left_out_of_order_are_written_again(crashed: Crashed) -> None:
    """A later write of a queue can be on disk while an earlier one is not."""
    queue = crashed.folder / "consumequeue" / HALF_TOPIC / "0" / ("0" * 20)
    before = queue.read_bytes()
    patch(queue, 60, bytes(20) + PACKED.pack(crashed.end, 200, 0) * 3)
    gateway = Waiting(crashed.folder)
    assert gateway.half(9).queue_offset == 4
    gateway.close()
    assert queue.read_bytes()[:80] == before[:80]


@pytest.mark.parametrize("lost", ["its last bytes", "the whole file"])
def test_a_queue_whose_file_a_power_cut_left_short_before_the_next_is_written_again(tmp_path: Path, lost: str) -> None:
    gateway = Waiting(tmp_path / "store")
    gateway.halves(range(105 if lost == "its last bytes" else 205))
    files = sorted((tmp_path / "store/consumequeue" / HALF_TOPIC / "0").iterdir())
    shutil.copytree(tmp_path / "store", tmp_path / "crashed")
    gateway.close()
    left = tmp_path / "crashed/consumequeue" / HALF_TOPIC / "0"
    if lost == "its last bytes":
        os.truncate(left / files[0].name, 1_600)
    else:
        (left / files[1].name).unlink()
    again = Waiting(tmp_path / "crashed")
    again.close()
    assert [(left / file.name).read_bytes() for file in files] == [file.read_bytes() for file in files]


def test_units_whose_sync_failed_are_never_taken_for_durable(
    crashed: Crashed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync the system takes what it could not write for written, and the next fsync says so."""
    gateway = Waiting(crashed.folder)
    gateway.half(9)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _fails)
        with pytest.raises(OSError, match="Input/output"):
            gateway.log.checkpoint()
    with pytest.raises(HalfopError, match=r"consumequeue/.*: a sync has failed.*start the gateway again"):
        gateway.log.checkpoint()
    assert read_checkpoint(crashed.folder).checked < gateway.log.flushed_to
    shutil.copytree(crashed.folder, tmp_path / "started again")
    again = Waiting(tmp_path / "started again")
    again.log.checkpoint()
    again.close()


@pytest.mark.parametrize("at_once", [100, 4 << 20])
def test_a_start_takes_no_bytes_for_durable_that_it_has_not_written_again(
    crashed: Crashed, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """The process before may have ended before its sync, or because the sync failed: then the next one says nothing."""
    log, checked = str(crashed.log_file()), read_checkpoint(crashed.folder).checked
    durable, written = bytearray(crashed.log_file().read_bytes()), list[tuple[int, bytes]]()
    durable[checked:] = bytes(len(durable) - checked)
    pwrite, fdatasync = os.pwrite, os.fdatasync

    def writes(handle: int, content: bytes | memoryview, at: int) -> int:
        if os.readlink(f"/proc/self/fd/{handle}") == log:
            written.append((at, bytes(content)))
        return pwrite(handle, content, at)

    def syncs(handle: int) -> None:
        fdatasync(handle)
        if os.readlink(f"/proc/self/fd/{handle}") == log:
            for at, content in written:
                durable[at : at + len(content)] = content

    monkeypatch.setattr(files, "_AT_ONCE", at_once)
    monkeypatch.setattr(os, "pwrite", writes)
    monkeypatch.setattr(os, "fdatasync", syncs)
    gateway = Waiting(crashed.folder)
    assert checked < gateway.log.flushed_to == crashed.end
    assert bytes(durable) == crashed.log_file().read_bytes()
    gateway.close()


def test_a_start_whose_sync_fails_is_refused(crashed: Crashed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fdatasync", _fails)
    with pytest.raises(OSError, match=r"Input/output error: .*commitlog"):
        Waiting(crashed.folder)


def _fails(_: int) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_queue_that_was_removed_is_refused(crashed: Crashed) -> None:
    shutil.rmtree(crashed.folder / "consumequeue" / OP_TOPIC)
    with pytest.raises(InputRefused, match=rf"(?s)has offset 1 of queue 0 of {OP_TOPIC}.*end at 0"):
        Waiting(crashed.folder)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_queue_that_lost_its_last_units_is_refused_after_a_clean_stop_too(crashed: Crashed, kept: int) -> None:
    Waiting(crashed.folder).close()
    queue = crashed.folder / "consumequeue" / HALF_TOPIC / "0"
    if kept:
        os.truncate(queue / ("0" * 20), kept * 20)
    else:
        shutil.rmtree(queue)
    with pytest.raises(
        InputRefused, match=rf"(?s)up to 3 of queue 0 of {HALF_TOPIC}.*end at {kept}: remove the folder"
    ):
        Waiting(crashed.folder)
    shutil.rmtree(crashed.folder / "consumequeue")
    gateway = Waiting(crashed.folder)
    assert gateway.half(9).queue_offset == 4
    gateway.close()


def test_a_store_opens_as_it_was_closed(crashed: Crashed) -> None:
    for _ in range(2):
        gateway = Waiting(crashed.folder)
        assert gateway.log.flushed_to == crashed.end
        assert [half.queue_offset for half in gateway.log.open_halves.values()] == [2]
        again = gateway.log.half_at(crashed.half.physical_offset)
        assert again == crashed.half
        assert gateway.end(crashed.half, "COMMIT").kind == "REPEATED"
        gateway.close()
    assert not (crashed.folder / "abort").exists()


# ---- kills, and a disk that fails ----


def appender(folder: Path, seed: int, *fail_after: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(WORKER), str(folder), str(seed), *map(str, fail_after)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | IMPORTS)


@pytest.mark.process
@pytest.mark.parametrize("kills", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_kills_under_load(tmp_path: Path, kills: int) -> None:
    random, told = Random(21), list[list[str]]()
    for kill in range(kills):
        with appender(tmp_path, kill) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            os.set_blocking(process.stdout.fileno(), True)
            try:
                process.wait(random.uniform(0.02, 0.2))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
            told += acknowledged(first + process.stdout.read())
            assert process.wait() == -signal.SIGKILL
    assert len(told) > 10 * kills
    check(tmp_path, told)


@pytest.mark.process
def test_what_a_failing_disk_does_not_take_is_never_acknowledged(tmp_path: Path) -> None:
    with appender(tmp_path, 1, 20) as process:
        output, error = process.communicate()
    assert process.returncode == DISK_FAILED
    assert b"the log cannot be written, so this process ends: [Errno 5]" in error
    assert f"{tmp_path}/commitlog: repair the disk".encode() in error
    assert b"Traceback" not in error
    *told, last = acknowledged(output)
    assert last == ["failed"], "nothing is acknowledged after that"
    assert told
    check(tmp_path, told)


@pytest.mark.long
def test_the_state_of_many_half_messages(tmp_path: Path) -> None:
    gateway = Waiting(tmp_path, form=MIDDLE)
    halves = gateway.halves(range(3000))
    for half in halves[:-100]:
        gateway.log.append_end(half, end_of("COMMIT" if half.queue_offset % 3 else "ROLLBACK"))
    gateway.until(gateway.log._buffer.end)
    gateway.close()
    again = Waiting(tmp_path, form=MIDDLE)
    assert list(again.log.open_halves.values()) == halves[-100:]
    assert [again.log.outcome(half) for half in halves] == [gateway.log.outcome(half) for half in halves]
    again.close()


def test_a_log_that_ends_with_a_files_blank_opens_again(tmp_path: Path, unsynced: None) -> None:
    """A crash tore the first record of the next file, so the start cut that file off; a checkpoint came after it."""
    gateway, numbers = Waiting(tmp_path / "store"), iter(range(1000))
    while len(gateway.log._files.firsts) < 2:
        gateway.half(next(numbers))
    store = Path(shutil.copytree(tmp_path / "store", tmp_path / "copy"))
    gateway.close()
    last = max((store / "commitlog").iterdir())
    last.write_bytes(b"torn".ljust(last.stat().st_size, b"\0"))
    for _ in range(2):
        again = Waiting(store)
        assert again.log.flushed_to == int(last.name)
        again.close()
    again = Waiting(store)
    half = again.half(next(numbers))
    again.close()
    assert half.physical_offset == int(last.name)
    assert read_all(store, size=STRETCH).faults == []
