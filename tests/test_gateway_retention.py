"""Files of a gateway's log go only when they have landed, and nobody can end a message in them any more."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_log import BORN_MS, Waiting
from halfop.gateway.log.messages import OUTCOMES, Half, HalfGone, QueueOffsets
from halfop.gateway.log.retention import WHOLE_LOG
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from store_reader import read_all

FAR = 1 << 40
NEVER = 0  # nothing was stored before


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
        with pytest.raises(HalfGone):
            gateway.end(late, outcome)
    assert list(gateway.log.open_halves) == []


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


def test_the_disk_in_use(gateway: Waiting) -> None:
    assert 0 < gateway.log.disk_used() < 1
