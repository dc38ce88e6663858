"""A master that dies while it is asked to end transactions, and what takes its place: nothing ends twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from halfop.columns.keys import Key
from halfop.ending.owner import LandedEnds, Masters
from halfop.ending.plan import COMMIT, ROLLBACK, PlannedPlace, Row
from halfop.ending.sender import BrokerPart, Sender
from halfop.ending.table import Clerk, Ending, newest
from halfop.frame.errors import InputRefused
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import ROCKSDB_QUEUES, RequestCode
from halfop.rocketmq.requests import COMMIT_TYPE, ROLLBACK_TYPE
from halfop.rocketmq.wire.remoting import RefusedByBroker, RemotingSettings
from support.brokers.owning_broker import APART, NAME, Owning, half, row
from support.brokers.scripted import Peer, answering, frame, serving
from support.ending_rows import Written

QUICK = RemotingSettings(connect_timeout=1, answer_timeout=0.5, give_up_after=3, in_flight=3)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the sender wanted to sleep, each time; it sleeps shortly."""
    sleep, found = time.sleep, list[float]()

    def short(seconds: float) -> None:
        found.append(seconds)
        sleep(min(seconds, 0.02))

    monkeypatch.setattr("halfop.ending.sender.time.sleep", short)
    return found


@pytest.fixture
def ended(tmp_path: Path, slept: list[float]) -> Callable[..., Written]:
    """Another call of the same plan."""

    def end(where: Masters, *rows: Row, known: dict[Key, Ending] | None = None) -> Written:
        written = Written(tmp_path / "endings")
        before = newest(written.rows) | (known or {})
        after = max((each.at for each in before.values()), default=None)
        ends = LandedEnds(half=8, op=0)
        part = BrokerPart(NAME, where, {0: ends, ROCKSDB_QUEUES: ends})
        Sender(part, Clerk("plan", after), written, before).end(rows)
        return written

    return end


@contextmanager
def dying(there: Owning, at: str, lost: Callable[[], None], met: bool = False) -> Iterator[str]:
    """The broker, which ends its first connection when the answer `at` comes, and has lost something afterwards."""

    def script(peer: Peer) -> None:
        for asked in peer.requests():
            if asked.code == RequestCode.END_TRANSACTION and asked.fields["msgId"] == at and not peer.number:
                if met:
                    there.answer(asked)
                lost()
                return
            peer.send(frame(asked.opaque, **there.answer(asked)))

    with serving(script) as address:
        yield address


def states(written: Written, offset: int) -> list[str]:
    return [each.state for each in written.rows if each.key.queue_offset == offset]


def test_ends_and_verifies(ended: Any) -> None:
    """The played broker does as a real one."""
    there = Owning(8)
    with serving(answering(there.answer)) as address:
        written = ended(Masters(QUICK, broker=address), row(1), row(2, ROLLBACK))
    assert (written.states(), there.delivered) == ({"VERIFIED": 2}, ["K1"])


def test_what_was_met_is_seen_before_anything_is_sent_again(ended: Any) -> None:
    """The broker shows it late: its queues and its index are behind its log."""
    there = Owning(8)
    with dying(there, "K2", lambda: setattr(there, "behind", 4), met=True) as address:
        written = ended(Masters(QUICK, broker=address), row(1), row(2))
    assert there.delivered == ["K1", "K2"], "each once"
    assert written.states() == {"VERIFIED": 2}


def test_a_copy_of_a_commit_that_was_lost_is_not_rolled_back(ended: Any) -> None:
    """The new master has neither final nor op message of K1, and its check has put back a copy since."""
    there = Owning(8)

    def lost() -> None:
        there.lose(2)
        there.put(half(1, times=1))

    with dying(there, "K2", lost) as address:
        written = ended(Masters(QUICK, broker=address), row(1), row(2))
        assert states(written, 1) == ["INTENDED", "SENT"]
        assert (there.delivered, {kind for _, kind in there.asked_for}) == (["K2"], {COMMIT_TYPE})
        written = ended(Masters(QUICK, broker=address), row(1), row(2))
    assert written.states() == {"VERIFIED": 2}, "another call commits it again"
    assert sorted(there.delivered) == ["K1", "K2"]


def test_each_of_two_messages_under_one_key_has_its_own_copies(ended: Any) -> None:
    """A producer's client wrote the message twice, and the broker's check has put back the second one alone."""
    there = Owning(8)
    twin, copy = there.put(half(1)), there.put(half(1, times=1))
    second = row(1, ROLLBACK)._replace(key=Key(NAME, 0, twin), places=(PlannedPlace(twin, twin * APART),))
    with serving(answering(there.answer)) as address:
        ended(Masters(QUICK, broker=address), row(1, ROLLBACK), second)
    assert {int(offset) for offset in there.ended} == {1, copy}


def test_a_commit_that_has_expired_is_not_repeated(ended: Any) -> None:
    there = Owning(8)
    there.put(half(1, times=1))
    known = newest([Clerk("plan", None).ending(row(1), "SENT", sent=row(1).places[-1])])

    def script(asked: Frame) -> Any:
        gone = asked.code == RequestCode.VIEW_MESSAGE_BY_ID and asked.fields["offset"] == "1000"
        return {"code": 1, "remark": "can not find message by the offset"} if gone else there.answer(asked)

    with serving(answering(script)) as address:
        written = ended(Masters(QUICK, broker=address), row(1), known=known)
    assert (written.rows, there.asked_for) == ([], [])


def test_op_messages_that_were_lost(ended: Any) -> None:
    """A broker of version 5 gathers them: what it delivered is put back, and what it rolled back is open again."""
    there = Owning(8, loses_ops=True)

    def lost() -> None:
        there.loses_ops = False
        there.put(half(1, times=1))
        there.put(half(2, times=1))

    with dying(there, "K3", lost) as address:
        written = ended(Masters(QUICK, broker=address), row(1), row(2, ROLLBACK), row(4, ROLLBACK), row(3))
    assert sorted(there.delivered) == ["K1", "K3"]
    assert written.states() == {"VERIFIED": 4}
    assert there.ended.index("1") < there.ended.index("8"), (
        "a landing takes the first op message, a commit, for the end"
    )
    rollbacks = [key for key, kind in there.asked_for if kind == ROLLBACK_TYPE]
    assert sorted(rollbacks) == ["K1", "K1", "K2", "K2", "K4", "K4"], "what was lost, and later copies"


def test_what_a_killed_call_committed_and_the_broker_forgot(ended: Any) -> None:
    """Its final message is there, and its op message is not: the broker would put it back and ask."""
    there = Owning(8, loses_ops=True)
    with serving(answering(there.answer)) as address:
        known = newest([Clerk("plan", None).ending(row(1), "INTENDED")])
        there.answer(Frame(RequestCode.END_TRANSACTION, fields=ends(1)))
        there.loses_ops = False
        assert ended(Masters(QUICK, broker=address), row(1), known=known).states() == {"VERIFIED": 1}
    assert (there.delivered, there.ended) == (["K1"], ["1"])


def ends(offset: int) -> dict[str, str]:
    places = {"commitLogOffset": str(offset * APART), "tranStateTableOffset": str(offset)}
    return {"msgId": f"K{offset}", "commitOrRollback": str(int(COMMIT_TYPE)), **places}


def test_what_another_master_showed_counts_no_more(ended: Any) -> None:
    """The old master had put back a copy that the new one lacks: there the original is live."""
    there = Owning(8)
    there.put(half(1, times=1))
    with dying(there, "K1", lambda: there.lose(1)) as address:
        written = ended(Masters(QUICK, broker=address), row(1))
    assert (written.states(), there.delivered) == ({"VERIFIED": 1}, ["K1"])
    assert [each.sent.queue_offset for each in written.rows if each.sent] == [1, 8, 1, 1]


def test_a_broker_that_no_name_server_knows_for_a_while(ended: Any) -> None:
    """It is dead, and another master registers. One that was never known is refused."""
    there, gone = Owning(8), iter([False, True, True])

    def names(asked: Frame) -> bytes:
        known = {} if next(gone, False) else {NAME: {"brokerAddrs": {"0": address}, "brokerName": NAME, "cluster": "c"}}
        return json.dumps({"brokerAddrTable": known}).encode()

    with ExitStack() as kept:
        address = kept.enter_context(dying(there, "K1", lambda: None))
        namesrv = kept.enter_context(serving(answering(names)))
        assert ended(Masters(QUICK, namesrv=namesrv), row(1)).states() == {"VERIFIED": 1}
        gone = iter([True])
        with pytest.raises(InputRefused, match="no broker b"):
            ended(Masters(QUICK, namesrv=namesrv), row(2))
    assert there.delivered == ["K1"]


def test_a_doubt_is_cleared_before_another_look(ended: Any, slept: list[float]) -> None:
    """A killed call may have sent its answers up to its end, and the broker lets them wait before it refuses them."""
    there = Owning(8, end_queue=3000)
    long_ago = Clerk("plan", None, clock=lambda: datetime.now(timezone.utc) - timedelta(hours=2))
    known = newest([long_ago.ending(row(1), "INTENDED")])
    with serving(answering(there.answer)) as address:
        ended(Masters(QUICK, broker=address), row(1), known=known)
        assert next(each for each in slept if each > 1) == 4, "a busy machine may connect again before, after a second"
        slept.clear()
        ended(Masters(QUICK, broker=address), row(2))
    assert 4 not in slept


@pytest.mark.parametrize(
    ("code", "remark"), [(16, "no permission"), (1, "the broker failed at it"), (1, "java.io.IOException: disk")]
)
def test_a_refusal_to_show_the_log_is_no_lost_message(ended: Any, tmp_path: Path, code: int, remark: str) -> None:
    """A passing fault of the broker has the code of a message that is not there: a later call looks again."""
    there = Owning(8)

    def script(asked: Frame) -> Any:
        refused = asked.code == RequestCode.VIEW_MESSAGE_BY_ID
        return {"code": code, "remark": remark} if refused else there.answer(asked)

    with serving(answering(script)) as address, pytest.raises(RefusedByBroker, match=remark):
        ended(Masters(QUICK, broker=address), row(1))
    assert there.asked_for == []
    assert Written(tmp_path / "endings").states() == {"INTENDED": 1}


def test_a_transaction_in_rocksdb_is_ended_once_and_not_against_its_op(ended: Any) -> None:
    """The broker itself would deliver a commit after a rollback; its ops name places, which are no half offsets."""
    there = Owning(8, in_rocksdb=True)
    there.put_op(5, 5 * APART)
    rows = [row(n, COMMIT if n % 2 else ROLLBACK, ROCKSDB_QUEUES) for n in range(1, 8)]
    with serving(answering(there.answer)) as address:
        written = ended(Masters(QUICK, broker=address), *rows)
        again = ended(Masters(QUICK, broker=address), *rows)
    assert written.states() == again.states() == {"VERIFIED": 6, "ENDED_MEANWHILE": 1}
    assert there.delivered == ["K1", "K3", "K7"]
    assert there.asked_for == [(f"K{n}", COMMIT_TYPE if n % 2 else ROLLBACK_TYPE) for n in range(1, 8) if n != 5]
