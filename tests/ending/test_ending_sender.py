"""The sender against brokers that are busy, that move, that break off, or that are not what they should be."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from halfop.columns.keys import Key
from halfop.ending.owner import LandedEnds, Masters, landed_of
from halfop.ending.plan import COMMIT, ROLLBACK, PlannedPlace, Row
from halfop.ending.sender import BrokerPart, Sender
from halfop.ending.table import Clerk, Ending, newest
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS, ROCKSDB_QUEUES, RequestCode
from halfop.rocketmq.wire.remoting import RemotingSettings, Unreachable
from support.brokers import store_writer as w
from support.brokers.scripted import Peer, answering, frame, serving
from support.ending_rows import Written

QUICK = RemotingSettings(connect_timeout=1, answer_timeout=0.5, give_up_after=1.5, in_flight=3)
CONFIG = "brokerName=b\nbrokerRole={}\nmessageIndexEnable=true\ntransactionCheckInterval=0\n"
APART = 1000  # half messages in the log
Ends = Callable[[Frame], dict[str, Any]]


def row(offset: int, kind: Any = COMMIT) -> Row:
    born = datetime(2025, 1, 1, tzinfo=timezone.utc)
    place = PlannedPlace(offset, offset * APART)
    return Row(Key("b", 0, offset), kind, "KEY", None, f"K{offset}", "g", "T", "CHECK", born, (place,))


def a_broker(ends: Ends, role: str = "ASYNC_MASTER") -> Callable[[Peer], None]:
    """A broker whose queues are empty, and that has committed nothing."""

    return answering(lambda asked: ends(asked) if asked.code == RequestCode.END_TRANSACTION else shown(asked, role))


def shown(asked: Frame, role: str = "ASYNC_MASTER") -> dict[str, Any]:
    """The answers to all requests but those that end."""
    if asked.code == RequestCode.GET_BROKER_CONFIG:
        return {"body": CONFIG.format(role).encode()}
    if asked.code == RequestCode.QUERY_CONSUMER_OFFSET:  # its check has passed everything
        return {"offset": 99}
    if asked.code == RequestCode.VIEW_MESSAGE_BY_ID:
        return stored(int(asked.fields["offset"]), "K")
    if asked.code == RequestCode.GET_BROKER_RUNTIME_INFO:
        return {"body": b'{"table": {"commitLogMaxOffset": "0", "dispatchBehindBytes": "0"}}'}
    return {"code": 22} if asked.code == RequestCode.QUERY_MESSAGE else {"offset": 0}


def stored(place: int, keys: str) -> dict[str, Any]:
    """The half message at a place in the log."""
    offset = place // APART
    properties = {"UNIQ_KEY": f"{keys}{offset}", "PGROUP": "g", "REAL_TOPIC": "T", "REAL_QID": "0"}
    return {"body": w.half(offset, queue_offset=offset, properties=properties).at(place)}


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Written]:
    sleep = time.sleep
    monkeypatch.setattr("halfop.ending.sender.time.sleep", lambda seconds: sleep(min(seconds, 0.02)))

    def end(where: Masters, *rows: Row, known: dict[Key, Ending] | None = None) -> Written:
        written = Written(tmp_path / "endings")
        part = BrokerPart("b", where, {0: LandedEnds(half=0, op=0)})
        Sender(part, Clerk("plan", None), written, known or {}).end(rows)
        return written

    return end


def history(written: Written, offset: int) -> list[tuple[str, int | None]]:
    return [(each.state, each.code) for each in written.rows if each.key.queue_offset == offset]


def test_a_busy_broker_is_asked_again(ended: Any) -> None:
    codes = iter([2, 14, 215, 0, 0])
    with serving(a_broker(lambda asked: {"code": next(codes)})) as address:
        written = ended(Masters(QUICK, broker=address), row(1), row(2))
    assert history(written, 1) == [("INTENDED", None), ("SENT", 0)]
    assert history(written, 2) == [("INTENDED", None), ("SENT", 0)]


def test_a_lost_connection_is_unknown_until_the_broker_has_been_looked_at(ended: Any) -> None:
    met: Counter[str] = Counter()

    def script(peer: Peer) -> None:
        good = a_broker(lambda asked: {"code": 0})
        if peer.number:
            good(peer)
        for asked in peer.requests():
            if asked.code != RequestCode.END_TRANSACTION:
                peer.send(frame(asked.opaque, **shown(asked)))
                continue
            met[asked.fields["msgId"]] += 1
            if met["K1"] and met["K2"]:
                return
            peer.send(frame(asked.opaque))

    with serving(script) as address:
        written = ended(Masters(QUICK, broker=address), *(row(n) for n in range(1, 9)))
    assert history(written, 1) == [("INTENDED", None), ("SENT", 0)], "it had its answer"
    assert history(written, 2) == [("INTENDED", None), ("UNKNOWN", None), ("SENT", 0)]
    assert history(written, 8) == [("INTENDED", None), ("SENT", 0)], "it had not been sent"
    assert written.states() == {"SENT": 8}


def test_what_a_slow_disk_has_not_yet_is_unknown_until_the_broker_has_been_looked_at(ended: Any) -> None:
    codes = iter([10, 0])
    with serving(a_broker(lambda asked: {"code": next(codes)})) as address:
        written = ended(Masters(QUICK, broker=address), row(1))
    assert history(written, 1) == [("INTENDED", None), ("UNKNOWN", 10), ("SENT", 0)]


@pytest.mark.long
def test_a_broker_that_never_answers_leaves_it_unknown(ended: Any, tmp_path: Path) -> None:
    def script(peer: Peer) -> None:
        for asked in peer.requests():
            if asked.code != RequestCode.END_TRANSACTION:
                peer.send(frame(asked.opaque, **shown(asked)))

    with serving(script) as address, pytest.raises(Unreachable, match="1 answers are left"):
        ended(Masters(QUICK, broker=address), row(1))
    assert Written(tmp_path / "endings").states() == {"UNKNOWN": 1}


def named(*addresses: tuple[str, str]) -> Callable[[Peer], None]:
    """A name server that knows another address at each call."""
    found = iter(addresses)

    def answer(asked: Frame) -> bytes:
        number, address = next(found)
        group = {"brokerAddrs": {number: address}, "brokerName": "b", "cluster": "c"}
        return json.dumps({"brokerAddrTable": {"b": group}}).encode()

    return answering(answer)


@pytest.fixture
def two(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A master that has become a slave while it was asked, and the new one."""
    with ExitStack() as kept:
        old = kept.enter_context(serving(a_broker(lambda asked: {"code": 11})))
        yield old, kept.enter_context(serving(a_broker(lambda asked: {"code": 0})))


def test_the_master_is_looked_up_again(ended: Any, two: tuple[str, str]) -> None:
    old, new = two
    with serving(named(("0", old), ("1", old), ("0", new))) as namesrv:
        written = ended(Masters(QUICK, namesrv=namesrv), row(1), row(2, ROLLBACK))
    assert written.states() == {"SENT": 2}


def test_a_slave_is_not_asked(ended: Any, tmp_path: Path) -> None:
    slave = a_broker(lambda asked: {"code": 0}, role="SLAVE")
    with serving(slave) as address, pytest.raises(Unreachable, match="is a slave of b: only a master"):
        ended(Masters(QUICK, broker=address), row(1))
    assert Written(tmp_path / "endings").rows == []


def test_the_sweep_waits_until_the_brokers_check_has_passed(ended: Any) -> None:
    passed = iter([0, 7, 7, 8, 8])

    def script(peer: Peer) -> None:
        for asked in peer.requests():
            if asked.code == RequestCode.QUERY_CONSUMER_OFFSET:
                peer.send(frame(asked.opaque, offset=next(passed)))
            elif asked.code == RequestCode.END_TRANSACTION:
                peer.send(frame(asked.opaque))
            else:
                peer.send(frame(asked.opaque, **shown(asked)))

    with serving(script) as address:
        assert ended(Masters(QUICK, broker=address), row(7), row(3)).states() == {"SENT": 2}
    assert next(passed) == 8, "asked until it was beyond the highest offset, and no more"


def test_what_was_unknown_without_an_index_is_not_committed_again(ended: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.CONFIG", CONFIG.replace("true", "false"))
    clerk, asked_for = Clerk("plan", None), []
    known = newest([clerk.ending(row(1), "INTENDED"), clerk.ending(row(2, ROLLBACK), "INTENDED")])

    def ends(asked: Frame) -> dict[str, Any]:
        asked_for.append(asked.fields["msgId"])
        return {"code": 0}

    with serving(a_broker(ends)) as address:
        written = ended(Masters(QUICK, broker=address), row(2, ROLLBACK), known=known)
        assert written.states() == {"SENT": 1}
    monkeypatch.setattr(Sender, "_refuse_without_index", lambda self: None)
    with serving(a_broker(ends)) as address:
        assert history(ended(Masters(QUICK, broker=address), row(1), known=known), 1)[-1] == ("UNKNOWN", None)
    assert asked_for == ["K2", "K2"], "and once more, because its op message does not come"


class Rewound:
    """A broker whose log has lost its end: from `cut` on it ends there, or has other messages at the same offsets."""

    def __init__(self, cut: int, rebuilt: bool = True) -> None:
        self.cut, self.rebuilt = cut, rebuilt
        self.looked, self.ended = list[int](), list[str]()

    def answer(self, asked: Frame) -> dict[str, Any]:
        if asked.code == RequestCode.END_TRANSACTION:
            self.ended.append(asked.fields["msgId"])
            return {"code": 0}
        if asked.code != RequestCode.VIEW_MESSAGE_BY_ID:
            return shown(asked)
        place = int(asked.fields["offset"])
        self.looked.append(place // APART)
        if place // APART < self.cut:
            return shown(asked)
        return stored(place, "NEW") if self.rebuilt else {"code": 1, "remark": "can not find message by the offset"}


@pytest.mark.parametrize("rebuilt", [True, False], ids=["others stand there", "nothing stands there"])
def test_what_a_log_has_lost_is_not_ended(ended: Any, rebuilt: bool) -> None:
    """A broker compares group and offsets only: it would end the other messages."""
    there = Rewound(cut=3, rebuilt=rebuilt)
    with serving(answering(there.answer)) as address:
        written = ended(Masters(QUICK, broker=address), *(row(n) for n in (4, 1, 3, 2, 5)))
    assert there.ended == ["K1", "K2"]
    assert written.states() == {"SENT": 2, "GONE": 3}
    remarks = {each.remark for each in written.rows if each.state == "GONE"}
    assert all(("another message is at its place" in str(remark)) == rebuilt for remark in remarks)
    assert there.looked[:4] == [5, 4, 3, 2], "from the end, until one is there"


def test_one_look_at_the_log_is_enough_for_a_batch_that_stands(ended: Any) -> None:
    there = Rewound(cut=99)
    with serving(answering(there.answer)) as address:
        ended(Masters(QUICK, broker=address), *(row(n) for n in range(1, 41)))
    assert (len(there.ended), there.looked) == (40, [40])


def test_a_log_that_loses_its_end_while_the_connection_is_lost(ended: Any) -> None:
    """The broker comes back without the messages of which it may have met the answers."""
    there = Rewound(cut=99)

    def script(peer: Peer) -> None:
        for asked in peer.requests():
            if asked.code == RequestCode.END_TRANSACTION and not peer.number and asked.fields["msgId"] == "K2":
                there.cut = 2
                return
            peer.send(frame(asked.opaque, **there.answer(asked)))

    with serving(script) as address:
        written = ended(Masters(QUICK, broker=address), *(row(n) for n in range(1, 9)))
    assert there.ended == ["K1"]
    assert history(written, 2) == [("INTENDED", None), ("UNKNOWN", None), ("GONE", None)]
    assert history(written, 8) == [("INTENDED", None), ("GONE", None)]


def test_the_topics_of_a_broker_with_rocksdb() -> None:
    assert landed_of({}, 0) == LandedEnds(None, None)
    offsets = {(HALF_TOPICS[0], 0): 1, (HALF_TOPICS[1], ROCKSDB_QUEUES): 7, (OP_TOPICS[1], ROCKSDB_QUEUES): 3}
    assert landed_of(offsets, 0) == LandedEnds(1, None)
    assert landed_of(offsets, ROCKSDB_QUEUES) == LandedEnds(7, 3)


def test_rows_of_one_plan_are_in_order_though_the_clock_is_not() -> None:
    now = datetime(2025, 1, 1, tzinfo=timezone.utc)
    clerk = Clerk("plan", now, clock=lambda: now)
    instants = [clerk.ending(row(1), "INTENDED").at for _ in range(3)]
    assert instants == sorted(set(instants))
    assert min(instants) > now
