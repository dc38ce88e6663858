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
from ending_rows import Written
from halfop.columns.keys import Key
from halfop.ending.endings import Clerk, Ending, newest
from halfop.ending.owner import Where
from halfop.ending.plan import COMMIT, ROLLBACK, Place, Row
from halfop.ending.sender import Broker, Sender
from halfop.ending.tails import Landed, landed_of
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS
from halfop.rocketmq.wire.codes import RequestCode
from halfop.rocketmq.wire.remoting import RemotingSettings, Unreachable
from scripted import Asked, Peer, answering, frame, serving

QUICK = RemotingSettings(connect_timeout=1, answer_timeout=0.5, give_up_after=1.5, in_flight=3)
CONFIG = "brokerName=b\nbrokerRole={}\nmessageIndexEnable=true\ntransactionCheckInterval=0\n"
Ends = Callable[[Asked], dict[str, Any]]


def row(offset: int, kind: Any = COMMIT) -> Row:
    born = datetime(2025, 1, 1, tzinfo=timezone.utc)
    return Row(Key("b", 0, offset), kind, "KEY", None, f"K{offset}", "g", "T", "CHECK", born, (Place(offset, 100),))


def a_broker(ends: Ends, role: str = "ASYNC_MASTER") -> Callable[[Peer], None]:
    """A broker whose queues are empty, and that has committed nothing."""

    return answering(lambda asked: ends(asked) if asked.code == RequestCode.END_TRANSACTION else shown(asked, role))


def shown(asked: Asked, role: str = "ASYNC_MASTER") -> dict[str, Any]:
    """The answers to all requests but those that end."""
    if asked.code == RequestCode.GET_BROKER_CONFIG:
        return {"body": CONFIG.format(role).encode()}
    if asked.code == RequestCode.QUERY_CONSUMER_OFFSET:  # its check has passed everything
        return {"offset": 99}
    return {"code": 22} if asked.code == RequestCode.QUERY_MESSAGE else {"offset": 0}


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Written]:
    sleep = time.sleep
    monkeypatch.setattr("halfop.ending.sender.time.sleep", lambda seconds: sleep(min(seconds, 0.02)))

    def end(where: Where, *rows: Row, known: dict[Key, Ending] | None = None) -> Written:
        written = Written(tmp_path / "endings")
        part = Broker("b", where, {0: Landed(half=0, op=0)})
        Sender(part, Clerk("plan", None), written, known or {}).end(rows)
        return written

    return end


def history(written: Written, offset: int) -> list[tuple[str, int | None]]:
    return [(each.state, each.code) for each in written.rows if each.key.queue_offset == offset]


def test_a_busy_broker_is_asked_again(ended: Any) -> None:
    codes = iter([2, 14, 215, 0, 0])
    with serving(a_broker(lambda asked: {"code": next(codes)})) as address:
        written = ended(Where(QUICK, broker=address), row(1), row(2))
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
        written = ended(Where(QUICK, broker=address), *(row(n) for n in range(1, 9)))
    assert history(written, 1) == [("INTENDED", None), ("SENT", 0)], "it had its answer"
    assert history(written, 2) == [("INTENDED", None), ("UNKNOWN", None), ("SENT", 0)]
    assert history(written, 8) == [("INTENDED", None), ("SENT", 0)], "it had not been sent"
    assert written.states() == {"SENT": 8}


def test_a_broker_that_never_answers_leaves_it_unknown(ended: Any, tmp_path: Path) -> None:
    def script(peer: Peer) -> None:
        for asked in peer.requests():
            if asked.code != RequestCode.END_TRANSACTION:
                peer.send(frame(asked.opaque, **shown(asked)))

    with serving(script) as address, pytest.raises(Unreachable, match="1 answers are left"):
        ended(Where(QUICK, broker=address), row(1))
    assert Written(tmp_path / "endings").states() == {"UNKNOWN": 1}


def named(*addresses: tuple[str, str]) -> Callable[[Peer], None]:
    """A name server that knows another address at each call."""
    found = iter(addresses)

    def answer(asked: Asked) -> bytes:
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
        written = ended(Where(QUICK, namesrv=namesrv), row(1), row(2, ROLLBACK))
    assert written.states() == {"SENT": 2}


def test_a_slave_is_not_asked(ended: Any, tmp_path: Path) -> None:
    slave = a_broker(lambda asked: {"code": 0}, role="SLAVE")
    with serving(slave) as address, pytest.raises(Unreachable, match="is a slave of b: only a master"):
        ended(Where(QUICK, broker=address), row(1))
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
        assert ended(Where(QUICK, broker=address), row(7), row(3)).states() == {"SENT": 2}
    assert next(passed) == 8, "asked until it was beyond the highest offset, and no more"


def test_what_was_unknown_without_an_index_is_not_committed_again(ended: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_ending_sender.CONFIG", CONFIG.replace("true", "false"))
    clerk, asked_for = Clerk("plan", None), []
    known = newest([clerk.ending(row(1), "INTENDED"), clerk.ending(row(2, ROLLBACK), "INTENDED")])

    def ends(asked: Asked) -> dict[str, Any]:
        asked_for.append(asked.fields["msgId"])
        return {"code": 0}

    with serving(a_broker(ends)) as address:
        written = ended(Where(QUICK, broker=address), row(2, ROLLBACK), known=known)
        assert written.states() == {"SENT": 1}
    monkeypatch.setattr(Sender, "_refuse_without_index", lambda self, rows: None)
    with serving(a_broker(ends)) as address:
        assert history(ended(Where(QUICK, broker=address), row(1), known=known), 1)[-1] == ("UNKNOWN", None)
    assert asked_for == ["K2"]


def test_the_topics_of_a_broker_with_rocksdb() -> None:
    assert landed_of({}, 0) == Landed(HALF_TOPICS[0], None, OP_TOPICS[0], None)
    found = landed_of({(HALF_TOPICS[1], 0): 7, (OP_TOPICS[1], 0): 3, (HALF_TOPICS[0], 1): 9}, 0)
    assert found == Landed(HALF_TOPICS[1], 7, OP_TOPICS[1], 3)


def test_rows_of_one_plan_are_in_order_though_the_clock_is_not() -> None:
    now = datetime(2025, 1, 1, tzinfo=timezone.utc)
    clerk = Clerk("plan", now, clock=lambda: now)
    instants = [clerk.ending(row(1), "INTENDED").at for _ in range(3)]
    assert instants == sorted(set(instants))
    assert min(instants) > now
