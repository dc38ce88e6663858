"""Pulling a range: complete, in order and nothing twice, whatever the broker does meanwhile."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.rocketmq.requests import PullMessage
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.pull import Chunk, Hole, QueueEnded, QueueRange, TopicHidden, pull
from halfop.rocketmq.wire.remoting import Corrupt, RefusedByBroker, RemotingSettings, Unreachable
from hypothesis import given
from hypothesis import strategies as st
from support.brokers.played_broker import Queue
from support.brokers.scripted import Peer, Script, answering, frame, serving
from support.effort import part
from systems.broker.real_broker import Plan, RealBroker, broker

TRUSTING = RemotingSettings(answer_timeout=10, give_up_after=60)


def record(offset: int, body: int = 20) -> bytes:
    return struct.pack(">i16xq", 28 + body, offset) + bytes([offset % 251]) * body


def split(pulled: Chunk) -> list[tuple[int, bytes]]:
    """Each record with its queue offset, found without the code under test."""
    found, rest = [], pulled.data
    while rest:
        size = int.from_bytes(rest[:4], "big")
        found.append((int.from_bytes(rest[20:28], "big"), rest[:size]))
        rest = rest[size:]
    return found


def unfolded(pulled: Sequence[Chunk | Hole]) -> dict[int, bytes | None]:
    """Every offset, in order and once, with its record or None."""
    told: list[tuple[int, bytes | None]] = []
    for each in pulled:
        part = split(each) if isinstance(each, Chunk) else [(offset, None) for offset in range(each.first, each.next)]
        assert [offset for offset, _ in part] == list(range(each.first, each.next))
        told += part
    assert [offset for offset, _ in told] == list(range(told[0][0], told[0][0] + len(told)))
    return dict(told)


def pulled_from(address: str, asked: QueueRange, chunk: int = 1 << 20, **options: Any) -> list[Chunk | Hole]:
    with closing(Broker(address, RemotingSettings(**{"give_up_after": 10.0, **options}))) as asked_broker:
        return list(pull(asked_broker, asked, chunk))


# ---- a broker that is played ----


def unreliable(queue: Queue, random: Random) -> Script:
    """A broker that is busy, silent or disconnected, up to three times; and answers in any order."""
    faults = [random.choice([None, "busy", "cut", "stuck"]) for _ in range(3)]

    def script(peer: Peer) -> None:
        for asked in peer.requests():
            fault = faults.pop() if faults and random.random() < 0.2 else None
            answer = frame(asked.opaque, **queue.answer(asked))
            if fault == "cut":
                peer.send(answer[: random.randrange(len(answer))])
                return
            if fault == "busy":
                answer = frame(asked.opaque, code=2, remark="busy")
            elif fault == "stuck" and asked.code == 11:
                answer = frame(asked.opaque, code=20, nextBeginOffset=asked.fields["queueOffset"])
            peer.send(answer)

    return script


@part(0.5)
@given(data=st.data())
def test_every_offset_comes_once(data: st.DataObject) -> None:
    first = data.draw(st.integers(0, 100))
    last = first + data.draw(st.integers(1, 300))
    start = data.draw(st.integers(0, last - 1))
    end = data.draw(st.integers(start + 1, last))
    gaps = data.draw(st.lists(st.tuples(st.integers(first, last), st.integers(1, 60)), max_size=3))
    missing = set(chain.from_iterable(range(at, at + size) for at, size in gaps))
    random = Random(data.draw(st.integers()))
    records = {offset: record(offset, random.randrange(300)) for offset in range(first, last) if offset not in missing}
    queue = Queue(records, first, last, data.draw(st.integers(1, 40)), data.draw(st.integers(1, 5000)))
    chunk, in_flight = data.draw(st.integers(1, 5000)), data.draw(st.integers(1, 8))
    with serving(unreliable(queue, random)) as address:
        told = pulled_from(address, QueueRange("t", 0, start, end), chunk, in_flight=in_flight)
    assert unfolded(told) == {offset: records.get(offset) for offset in range(start, end)}
    full = [each for each, after in pairwise(told) if isinstance(each, Chunk) and isinstance(after, Chunk)]
    assert all(len(each.data) >= chunk for each in full)


def test_a_hole_that_retention_tears_is_leapt_over() -> None:
    """Between asking for the first offset and pulling: nothing below the new one is asked for again and again."""
    asked_for: list[int] = []
    queue = Queue({offset: record(offset) for offset in range(90_000, 90_100)}, 90_000, 90_100)

    def answer(asked: Frame) -> Mapping[str, Any]:
        if asked.code == 31:
            return {"offset": 0}
        asked_for.extend([int(asked.fields["queueOffset"])] if asked.code == 11 else [])
        return queue.answer(asked)

    with serving(answering(answer)) as address:
        told = pulled_from(address, QueueRange("t", 0, 0, 90_100))
    assert told[0] == Hole(0, 90_000, 21)
    assert unfolded(told[1:]) == {offset: record(offset) for offset in range(90_000, 90_100)}
    assert len(asked_for) < 30


def test_below_the_first_and_beyond_the_last_nothing_is_asked_for() -> None:
    queue = Queue({offset: record(offset) for offset in range(10, 20)}, 10, 20)

    def answer(asked: Frame) -> Mapping[str, Any]:
        assert asked.code != 11 or (int(asked.fields["queueOffset"]), asked.fields["maxMsgNums"]) == (10, "10")
        return queue.answer(asked)

    with serving(answering(answer)) as address, closing(Broker(address, TRUSTING)) as asked_broker:
        told = pull(asked_broker, QueueRange("t", 3, 5, 25))
        assert (next(told), next(told)) == (Hole(5, 10, 21), Chunk(10, 20, b"".join(map(record, range(10, 20)))))
        with pytest.raises(QueueEnded, match="queue 3 of t ends at offset 20, expected 25"):
            next(told)
        assert list(pull(asked_broker, QueueRange("t", 3, 5, 9))) == [Hole(5, 9, 21)]
        assert list(pull(asked_broker, QueueRange("t", 3, 12, 12))) == []


def test_a_topic_that_a_broker_does_not_know_is_looked_up_also_while_retention_tears_a_hole() -> None:
    first = [0]

    def answer(asked: Frame) -> Mapping[str, Any]:
        if asked.code in (30, 31):
            return {"offset": 50 if asked.code == 30 else first[0]}
        if asked.code == 11:
            return {"code": 17, "remark": "topic[RMQ_SYS_TRANS_HALF_TOPIC] not exist"}
        if asked.code == 33:
            return {"body": record(int(asked.fields["offset"]))}
        at, count = int(asked.fields["index"]), int(asked.fields["count"])
        first[0] = 20
        there = range(at, at + count) if at >= first[0] else ()
        return {"body": json.dumps({"queueData": [{"physicOffset": offset} for offset in there]}).encode()}

    with serving(answering(answer)) as address:
        told = pulled_from(address, QueueRange(HALF_TOPIC, 0, 5, 50))
        assert told[0] == Hole(5, 20, 21)
        assert unfolded(told[1:]) == {offset: record(offset) for offset in range(20, 50)}
        first[0] = 0
        with pytest.raises(RefusedByBroker, match="code 17"):
            pulled_from(address, QueueRange("t", 0, 5, 50))


@pytest.mark.parametrize(("topic", "soon", "todo"), [(HALF_TOPIC, True, "own check"), (OP_TOPIC, False, "mqadmin")])
def test_a_topic_that_an_old_broker_does_not_show(topic: str, soon: bool, todo: str) -> None:
    """RocketMQ before 4.7 answers so about every queue's index."""

    def answer(asked: Frame) -> Mapping[str, Any]:
        if asked.code == 321:
            return {"body": b'{"maxQueueIndex":0,"minQueueIndex":0}'}
        return {"code": 17} if asked.code == 11 else {"offset": 50 if asked.code == 30 else 0}

    with serving(answering(answer)) as address, pytest.raises(TopicHidden, match=f"shows {topic} .*{todo}") as raised:
        pulled_from(address, QueueRange(topic, 0, 5, 50))
    assert raised.value.transient == soon


class Ending(Queue):
    """Its log loses its end while it is read."""

    def answer(self, asked: Frame) -> Mapping[str, Any]:
        return {**super().answer(asked), "offset": 100} if asked.code == 30 else super().answer(asked)


def test_what_came_before_an_error_is_handed_out() -> None:
    queue = Ending({offset: record(offset) for offset in range(50)}, 0, 50)
    with serving(answering(queue.answer)) as address, closing(Broker(address, TRUSTING)) as asked_broker:
        told = pull(asked_broker, QueueRange("t", 0, 0, 100))
        assert next(told) == Chunk(0, 50, b"".join(map(record, range(50))))
        with pytest.raises(QueueEnded, match="ends at offset 50, expected 100"):
            next(told)


@pytest.mark.parametrize("code", [1, 16, 17, 23, 24, 26, 29])
def test_a_refusal_ends(code: int) -> None:
    def answer(asked: Frame) -> Mapping[str, Any]:
        return {"code": code, "remark": "no"} if asked.code == 11 else {"offset": 9 if asked.code == 30 else 0}

    with serving(answering(answer)) as address, pytest.raises(RefusedByBroker, match=f"code {code}: no") as raised:
        pulled_from(address, QueueRange("t", 1, 0, 5))
    assert "PULL_MESSAGE (topic t, queueId 1, queueOffset 0)" in str(raised.value)
    assert ("ROCKETMQ_ACCESS_KEY" in str(raised.value)) == (code == 16)


@pytest.mark.parametrize(
    ("has_keys", "hint"),
    [
        (True, "; may the account of ROCKETMQ_ACCESS_KEY do that, and is ROCKETMQ_SECRET_KEY its key?"),
        (False, "; ROCKETMQ_ACCESS_KEY is not set, if the broker wants one"),
    ],
)
def test_a_refusal_of_the_account_by_a_4_x_broker_names_the_keys_too(has_keys: bool, hint: str) -> None:
    said = "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"
    found = RefusedByBroker("127.0.0.1:1", PullMessage("t", 0, 0, 1, 0, "g"), 1, said, has_keys)
    assert str(found).endswith(hint)


@pytest.mark.parametrize(
    "body",
    [b"", b"\0\0", record(0)[:-1], record(0) + b"\0\0\0\1", record(1) + record(0), record(0) * 2, b"\xff" * 40],
)
def test_what_is_no_record_is_told(body: bytes) -> None:
    def answer(asked: Frame) -> Mapping[str, Any]:
        return {"body": body, "nextBeginOffset": 2} if asked.code == 11 else {"offset": 9 if asked.code == 30 else 0}

    with (
        serving(answering(answer)) as address,
        pytest.raises(Corrupt, match="bytes that are no records, from offset 0 of t"),
    ):
        pulled_from(address, QueueRange("t", 0, 0, 2))


def test_a_broker_that_stays_stuck_ends() -> None:
    def answer(asked: Frame) -> Mapping[str, Any]:
        return {"code": 20, "nextBeginOffset": 0} if asked.code == 11 else {"offset": 9 if asked.code == 30 else 0}

    with serving(answering(answer)) as address, pytest.raises(Unreachable, match="code 20"):
        pulled_from(address, QueueRange("t", 0, 0, 2), give_up_after=0.3)


# ---- real ones ----


@pytest.fixture(params=["broker4", "broker5"])
def real(request: pytest.FixtureRequest) -> RealBroker:
    found: RealBroker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def asked(real: RealBroker) -> Iterator[Broker]:
    with closing(Broker(real.address, TRUSTING)) as asked_broker:
        yield asked_broker


def whole(asked: Broker, topic: str) -> QueueRange:
    return QueueRange(topic, 0, 0, asked.max_offset(topic, 0))


@pytest.mark.broker
def test_half_messages_and_ops_of_a_real_broker(real: RealBroker, asked: Broker) -> None:
    plans = [Plan("pulled", answers, body=body) for answers in "CR" for body in (10, 200, 3000, 60_000)] * 100
    truths = real.produce([*plans, Plan("pulled", body=1_500_000)])
    halves = unfolded(list(pull(asked, whole(asked, HALF_TOPIC), 100_000)))
    assert all(truth.uniq.encode() in (halves[truth.half_offset] or b"") for truth in truths)
    one_by_one = pulled_from(real.address, whole(asked, HALF_TOPIC), 1, in_flight=1)
    assert unfolded(one_by_one) == halves
    ops = unfolded(list(pull(asked, whole(asked, OP_TOPIC))))
    assert None not in ops.values()
    ended = b",".join(data or b"" for data in ops.values())
    assert all(str(truth.half_offset).encode() in ended for truth in truths)


@pytest.mark.broker
@pytest.mark.parametrize("version", [4, 5])
def test_a_young_broker_has_checked_nothing_yet(version: int, tmp_path: Path) -> None:
    """4.x does not know its own half topic until its first check, and refuses to have it pulled."""
    with (
        broker(version, tmp_path, {"transactionCheckInterval": 3_600_000}) as young,
        closing(Broker(young.address, TRUSTING)) as asked,
    ):
        truths = young.produce([Plan("young")] * 200, threads=1)
        halves = unfolded(list(pull(asked, whole(asked, HALF_TOPIC))))
    assert all(truth.uniq.encode() in (halves[truth.half_offset] or b"") for truth in truths)


@pytest.mark.broker
def test_a_real_brokers_refusals(real: RealBroker, asked: Broker) -> None:
    with pytest.raises(QueueEnded, match="queue 0 of no-such-topic ends at offset 0, expected 5"):
        list(pull(asked, QueueRange("no-such-topic", 0, 0, 5)))
    end = asked.max_offset(HALF_TOPIC, 0)
    with pytest.raises(QueueEnded, match=f"ends at offset {end}"):
        list(pull(asked, QueueRange(HALF_TOPIC, 0, 0, end + 1)))


@pytest.mark.broker
def test_a_broker_that_dies_and_comes_back_in_the_middle(real: RealBroker, asked: Broker) -> None:
    real.produce([Plan("died")] * 2000)
    wanted = whole(asked, HALF_TOPIC)
    before = unfolded(list(pull(asked, wanted)))
    told, pulling = [], pull(asked, wanted, 100_000)
    told += [next(pulling), next(pulling)]
    real.kill()
    restarting = threading.Thread(target=real.restart)
    restarting.start()
    told += pulling
    restarting.join()
    assert unfolded(told) == before


def lost(store: Path, deleted: Sequence[Path]) -> set[int]:
    """Offsets of half messages whose record lies in one of these files, by the queue's index."""
    index = b"".join(file.read_bytes() for file in sorted((store / "consumequeue" / HALF_TOPIC / "0").iterdir()))
    units = struct.iter_unpack(">qiq", index)
    size = deleted[0].stat().st_size
    starts = {int(file.name) for file in deleted}
    return {offset for offset, (at, length, _) in enumerate(units) if length and at // size * size in starts}


@pytest.mark.broker
@pytest.mark.parametrize("version", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_files_that_a_real_broker_lacks(version: int, tmp_path: Path) -> None:
    """At the front, as retention deletes them but before the queue's first offset follows, and in the middle."""
    small = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20 * 500}
    with broker(version, tmp_path, small) as real, closing(Broker(real.address, TRUSTING)) as asked:
        real.produce([Plan("lost", body=1000)] * 2500)
        # not from 0: for the log's very first record a broker that lacks it gives bytes of the first that it has
        wanted = whole(asked, HALF_TOPIC)._replace(start=1)
        before = unfolded(list(pull(asked, wanted)))
        real.kill()
        files = sorted((real.store / "commitlog").iterdir())
        deleted = [files[0], files[1], files[4]]
        missing = lost(real.store, deleted)
        for file in deleted:
            file.unlink()
        real.restart()
        told = list(pull(asked, wanted, 1 << 30))
        assert [type(each) for each in told] == [Hole, Chunk, Hole, Chunk]
        assert unfolded(told) == {offset: None if offset in missing else data for offset, data in before.items()}
        assert asked.max_offset("OFFSET_MOVED_EVENT", 0) == 0
