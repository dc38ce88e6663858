"""Transactions ended at a real broker from outside: what each answer of its own means, and what `end` makes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from halfop.ending.guard import Guard, Verdict
from halfop.ending.owner import LandedEnds, Masters
from halfop.ending.plan import COMMIT, ROLLBACK, Row
from halfop.ending.table import Clerk
from halfop.frame.errors import InputRefused
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import OP_TOPIC
from halfop.rocketmq.wire.client import Broker, HalfPlace, end_transaction, query_finals, resume_check, stored_at
from halfop.rocketmq.wire.remoting import ConnectionLost
from support.ending_rows import (
    QUICK,
    Written,
    connected,
    delivered,
    discard_records,
    end,
    ended_offsets,
    halves,
    open_still,
    originals,
    row_of,
)

from systems.broker.real_broker import Plan, RealBroker, broker

pytestmark = pytest.mark.broker
QUIET: Mapping[str, object] = {"transactionTimeOut": 3_600_000}


@pytest.fixture(scope="module", params=[4, 5])
def quiet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    """A broker that never asks."""
    with broker(request.param, tmp_path_factory.mktemp("quiet"), QUIET) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_check_to_wait_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of a broker that never asks stops at the first open message, and never passes those after it."""
    if "quiet" in request.fixturenames:
        monkeypatch.setattr("halfop.ending.sender._LONGEST_ROUND", timedelta(0))


@pytest.fixture
def endings(tmp_path: Path) -> Written:
    return Written(tmp_path / "endings.jsonl")


def produced(running: RealBroker, topic: str, number: int, **plan: Any) -> list[dict[str, Any]]:
    running.produce([Plan(topic, "U", **plan)] * number)
    with connected(running) as there:
        found = originals(there, topic)
    assert len(found) == number
    return found


def asked(there: Broker, half: Mapping[str, Any], commit: bool = True, **changes: Any) -> Frame:
    place = HalfPlace(**{name: half[name] for name in HalfPlace._fields})
    ((_, answer),) = there.remote.stream_once([replace(end_transaction(place, commit), **changes)])
    if isinstance(answer, ConnectionLost):
        raise answer
    return answer


def eventually(look: Callable[[], object], wanted: object) -> None:
    deadline = time.monotonic() + 10
    while (found := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    assert found == wanted


# ---- the broker's own answers ----


def test_what_a_broker_answers(quiet: RealBroker) -> None:
    one, two, three = produced(quiet, "answers", 3)
    with connected(quiet) as there:
        for wrong, remark in (
            ({"producer_group": "other"}, "producer group wrong"),
            ({"tran_state_table_offset": 77}, "state table offset wrong"),
            ({"commit_log_offset": 10**12}, "Find prepared transaction message failed"),
            ({"commit_log_offset": one["commit_log_offset"] + 7}, ""),
        ):
            answer = asked(there, one, **wrong)
            assert answer.code == 1, wrong
            assert remark in answer.remark
        assert not delivered(there, "answers")
        assert [asked(there, one).code for _ in range(2)] == [0, 0]
        assert [asked(there, two, commit).code for commit in (False, True)] == [0, 0]
        eventually(lambda: delivered(there, "answers"), {one["uniq_key"]: 2, two["uniq_key"]: 1})
        with pytest.raises(ConnectionLost, match="timed out"):
            asked(there, three, commit_or_rollback=0)


def test_an_answer_after_the_messages_own_immunity(broker5: RealBroker) -> None:
    one, two = produced(broker5, "immune", 2, immunity=1)
    time.sleep(1.5)
    with connected(broker5) as there:
        assert [asked(there, one, from_transaction_check=False).code, asked(there, two).code] == [604, 0]


def test_the_index_shows_what_was_committed(quiet: RealBroker, endings: Written) -> None:
    one, two = produced(quiet, "index", 2)
    with connected(quiet) as there:
        assert there.remote.answer(query_finals("index", one["uniq_key"])).code == 22
        assert asked(there, one).code == 0
        eventually(lambda: there.remote.answer(query_finals("index", one["uniq_key"])).code, 0)
    found = end(quiet, [row_of(one), row_of(two, ROLLBACK)], endings)
    assert [each.state for each in found.values()] == ["ALREADY_COMMITTED", "VERIFIED"]


def test_resume_puts_back_whatever_is_there(quiet: RealBroker) -> None:
    (one,) = produced(quiet, "resume", 1)
    with connected(quiet) as there:
        assert stored_at(there, one["commit_log_offset"] + 3) is None
        found = stored_at(there, one["commit_log_offset"])
        assert found is not None
        assert (found.uniq_key, found.queue_offset) == (one["uniq_key"], one["queue_offset"])
        assert there.remote.answer(resume_check("resume", one["commit_log_offset"])).code == 0
        eventually(lambda: [row["uniq_key"] for row in halves(there)].count(one["uniq_key"]), 2)


@pytest.mark.parametrize("version", [4, 5])
def test_an_original_is_delivered_and_its_chain_goes_on(version: int, tmp_path: Path) -> None:
    """The live copy ends the chain: a commit of it delivers again, a rollback does not."""
    with broker(version, tmp_path / "broker", {"transactionCheckMax": 1000}) as running, connected(running) as there:
        running.produce([Plan("chain", "U")] * 2)
        eventually(lambda: len({row["uniq_key"] for row in halves(there) if row["marked"]}), 2)
        one, two = originals(there, "chain")
        assert [asked(there, each).code for each in (one, two)] == [0, 0]
        eventually(lambda: delivered(there, "chain"), {one["uniq_key"]: 1, two["uniq_key"]: 1})
        before = len(halves(there))
        eventually(lambda: len(halves(there)) > before, True)
        assert open_still(there, "chain") == sorted([one["uniq_key"], two["uniq_key"]])
        for each, commit in ((one, False), (two, True)):
            end_live(there, each["uniq_key"], commit)
        assert delivered(there, "chain")[one["uniq_key"]] == 1
        assert delivered(there, "chain")[two["uniq_key"]] > 1
        before = len(halves(there))
        time.sleep(2.5)
        assert len(halves(there)) == before


def end_live(there: Broker, uniq_key: str, commit: bool) -> None:
    """Ends the last copy, and each that the broker's check puts back before it has seen the end."""
    deadline = time.monotonic() + 20
    while uniq_key in open_still(there, "chain"):
        assert time.monotonic() < deadline
        last = [row for row in halves(there) if row["uniq_key"] == uniq_key][-1]
        assert asked(there, last, commit).code == 0
        time.sleep(0.4)  # 5.x gathers op messages


@pytest.mark.parametrize("version", [4, 5])
def test_a_discard_record_is_taken_for_a_half_message(version: int, tmp_path: Path) -> None:
    """It is delivered, and its op names an offset of the discard topic, as if that were one of the half topic."""
    with broker(version, tmp_path / "broker", {"transactionCheckMax": 1}) as running, connected(running) as there:
        running.produce([Plan("discard", "U")])
        eventually(lambda: there.max_offset("TRANS_CHECK_MAX_TIME_TOPIC", 0), 1)
        (record,) = discard_records(there)
        last = halves(there)[-1]
        assert asked(there, record).code == 0
        eventually(lambda: delivered(there, "discard"), {record["uniq_key"]: 1})
        eventually(lambda: record["queue_offset"] in ended_offsets(there), True)
        assert record["commit_log_offset"] != halves(there)[record["queue_offset"]]["commit_log_offset"]
        assert last["uniq_key"] == record["uniq_key"]


# ---- what `end` makes of them ----


def test_ends_and_verifies(quiet: RealBroker, endings: Written) -> None:
    found = produced(quiet, "ends", 30)
    rows = [row_of(half, COMMIT if n % 3 else ROLLBACK) for n, half in enumerate(found)]
    end(quiet, rows, endings, namesrv=True, batch=7)
    assert endings.states() == {"VERIFIED": 30}
    with connected(quiet) as there:
        assert delivered(there, "ends") == {row.uniq_key: 1 for row in rows if row.kind == "COMMIT"}
        assert open_still(there, "ends") == []
    before = len(endings.rows)
    end(quiet, rows, endings)
    assert len(endings.rows) == before, "all is done: nothing is sent or recorded"


def test_each_refusal_has_its_state(
    quiet: RealBroker, endings: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the look at the log, as if it had lost its end right after that, the broker refuses by itself."""
    one, two, three, four = produced(quiet, "states", 4)
    rows = [
        row_of(one | {"producer_group": "other"}),
        row_of(two | {"commit_log_offset": 10**12}),
        row_of(three | {"commit_log_offset": three["commit_log_offset"] + 7}),
    ]
    found = end(quiet, [*rows, row_of(four)], endings)
    assert [found[row.key].state for row in rows] == ["MISMATCH", "GONE", "FAILED"]
    assert [found[row.key].code for row in rows] == [1, None, 1], "the log has the fourth, so all before it stands"
    assert found[row_of(four).key].state == "VERIFIED"
    monkeypatch.setattr(Guard, "_lost", lambda self, owner, given: {})
    found = end(quiet, rows, Written(tmp_path / "again"))
    assert [found[row.key].state for row in rows] == ["MISMATCH", "GONE", "FAILED"]
    assert [found[row.key].code for row in rows] == [1, 1, 1]


def test_ended_meanwhile(quiet: RealBroker, endings: Written) -> None:
    one, two, three = produced(quiet, "meanwhile", 3)
    with connected(quiet) as there:
        assert [asked(there, one, commit=False).code, asked(there, two).code] == [0, 0]
        eventually(lambda: len({one["queue_offset"], two["queue_offset"]} - set(ended_offsets(there))), 0)
        landed = LandedEnds(half=one["queue_offset"], op=0)
        rows = [row_of(one), row_of(two, ROLLBACK), row_of(three)]
        found = end(quiet, rows, endings, landed=landed)
        assert [found[row.key].state for row in rows] == ["ENDED_MEANWHILE", "ENDED_MEANWHILE", "VERIFIED"]
        assert delivered(there, "meanwhile") == {two["uniq_key"]: 1, three["uniq_key"]: 1}


def test_without_a_look_a_commit_after_a_rollback_is_delivered(
    quiet: RealBroker, endings: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test before."""
    (one,) = produced(quiet, "control", 1)
    with connected(quiet) as there:
        assert asked(there, one, commit=False).code == 0
        monkeypatch.setattr(Guard, "look", lambda self, owner, rows, doubts=(): [_passes(row) for row in rows])
        end(quiet, [row_of(one)], endings)
        assert delivered(there, "control")[one["uniq_key"]] >= 1


def _passes(row: Row) -> Verdict:
    return Verdict(row, row.places[-1])


def test_another_broker_and_another_log(quiet: RealBroker, endings: Written) -> None:
    (one,) = produced(quiet, "another", 1)
    row = row_of(one)
    with pytest.raises(InputRefused, match="is it the broker that has landed"):
        end(quiet, [row], endings, landed=LandedEnds(half=10**6))
    where = Masters(QUICK, broker=quiet.address)
    with pytest.raises(InputRefused, match="it is broker broker-a"), where.owner("broker-b"):
        pass
    with pytest.raises(InputRefused, match="the name servers know broker-a"):
        Masters(QUICK, namesrv=quiet.namesrv).master("broker-b")
    assert endings.states() in ({"INTENDED": 1}, {}), "nothing was sent"
    with connected(quiet) as there:
        assert not delivered(there, "another")


@pytest.mark.parametrize("version", [4, 5])
def test_copies_that_the_broker_puts_back(version: int, tmp_path: Path, endings: Written) -> None:
    """The original's place is all that is known; the broker has put back copies, and goes on meanwhile."""
    with broker(version, tmp_path / "broker", {"transactionCheckMax": 1000}) as running, connected(running) as there:
        running.produce([Plan("copies", "U")] * 20)
        eventually(lambda: sum(row["marked"] for row in halves(there)) >= 20, True)
        found = originals(there, "copies")
        rows = [row_of(half, COMMIT if n % 2 else ROLLBACK) for n, half in enumerate(found)]
        states = end(running, rows, endings)
        assert endings.states() == {"VERIFIED": 20}
        sent = [states[row.key].sent or row.places[-1] for row in rows]
        assert all(place > row.places[-1] for place, row in zip(sent, rows, strict=True)), "the live copy was named"
        assert delivered(there, "copies") == {row.uniq_key: 1 for row in rows if row.kind == "COMMIT"}
        assert open_still(there, "copies") == []
        before = len(halves(there))
        time.sleep(2.5)
        assert len(halves(there)) == before, "the chains have stopped"


@pytest.mark.parametrize("version", [4, 5])
def test_the_sweep_ends_the_chain_of_a_copy(
    version: int, tmp_path: Path, endings: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An original that is ended while a later copy is there: as if the copy had been put back in the same instant."""
    with broker(version, tmp_path / "broker", {"transactionCheckMax": 1000}) as running, connected(running) as there:
        running.produce([Plan("sweep", "U")] * 3)
        eventually(lambda: sum(row["marked"] for row in halves(there)) >= 3, True)
        rows = [row_of(half) for half in originals(there, "sweep")]
        look = Guard.look

        def first_of_all(self: Guard, owner: Any, given: Any, doubts: Any = ()) -> list[Verdict]:
            found = look(self, owner, given, doubts)
            return [Verdict(each.row, each.row.places[0]) for each in found]

        monkeypatch.setattr(Guard, "look", first_of_all)
        end(running, rows, endings)
        swept = [row for row in endings.rows if row.origin == "SWEEP"]
        assert {row.kind for row in swept} == {"ROLLBACK"}
        assert {row.state for row in swept} >= {"INTENDED", "SENT", "VERIFIED"}
        assert delivered(there, "sweep") == {row.uniq_key: 1 for row in rows}
        assert open_still(there, "sweep") == []


@pytest.mark.parametrize("version", [4, 5])
def test_the_sweep_after_a_kill_and_a_landing(version: int, tmp_path: Path, endings: Written) -> None:
    """The end of the original has landed, so nothing is open in the lake, but at the broker a later copy is."""
    with broker(version, tmp_path / "broker", {"transactionCheckMax": 1000}) as running, connected(running) as there:
        running.produce([Plan("unswept", "U")] * 3)
        eventually(lambda: sum(row["marked"] for row in halves(there)) >= 3, True)
        rows = [row_of(half) for half in originals(there, "unswept")]
        clerk = Clerk("plan", None)
        endings.record([clerk.ending(row, "INTENDED", sent=row.places[-1]) for row in rows])
        assert [asked(there, half).code for half in originals(there, "unswept")] == [0, 0, 0]
        eventually(lambda: len({row.key.queue_offset for row in rows} - set(ended_offsets(there))), 0)
        landed = LandedEnds(half=len(halves(there)), op=there.max_offset(OP_TOPIC, 0))
        end(running, [], endings, landed=landed, ended=rows)
        assert {row.kind for row in endings.rows if row.origin == "SWEEP"} == {"ROLLBACK"}
        assert delivered(there, "unswept") == {row.uniq_key: 1 for row in rows}
        assert open_still(there, "unswept") == []


def test_a_discarded_message(tmp_path: Path, endings: Written) -> None:
    with broker(5, tmp_path / "broker", {"transactionCheckMax": 1}) as running, connected(running) as there:
        running.produce([Plan("discards", "U")] * 2)
        eventually(lambda: there.max_offset("TRANS_CHECK_MAX_TIME_TOPIC", 0), 2)
        rows = [
            row_of(half, kind) for half, kind in zip(originals(there, "discards"), ("COMMIT", ROLLBACK), strict=True)
        ]
        end(running, rows, endings)
        assert endings.states() == {"VERIFIED": 2}
        assert delivered(there, "discards") == {rows[0].uniq_key: 1}


@pytest.mark.parametrize("version", [4, 5])
def test_resumed_where_it_was_given_up(version: int, tmp_path: Path, endings: Written) -> None:
    with broker(version, tmp_path / "broker", {"transactionCheckMax": 1}) as running, connected(running) as there:
        running.produce([Plan("resumed", "U")] * 2)
        eventually(lambda: there.max_offset("TRANS_CHECK_MAX_TIME_TOPIC", 0), 2)
        one, two = originals(there, "resumed")
        last, of_two = ([half for half in halves(there) if half["uniq_key"] == each["uniq_key"]] for each in (one, two))
        of_two[-1] |= {"commit_log_offset": 1}
        rows = [row_of(one, "RESUME", *last), row_of(two, "RESUME", *of_two)]
        found = end(running, rows, endings)
        assert [found[row.key].state for row in rows] == ["VERIFIED", "GONE"]
        number = len([half for half in halves(there) if half["uniq_key"] == one["uniq_key"]])
        assert number > len(last)
        again = Written(tmp_path / "again.jsonl")
        assert end(running, rows[:1], again)[rows[0].key].state == "ENDED_MEANWHILE", "its check walks it"


def test_no_index(tmp_path: Path, endings: Written) -> None:
    with broker(5, tmp_path / "broker", {**QUIET, "messageIndexEnable": False}) as running:
        one, two = produced(running, "plain", 2)
        with pytest.raises(InputRefused, match="keeps no index"):
            end(running, [row_of(one), row_of(two)], endings)
        end(running, [row_of(one), row_of(two, ROLLBACK)], endings, no_index=True)
        assert endings.states() == {"VERIFIED": 2}
        with connected(running) as there:
            assert delivered(there, "plain") == {one["uniq_key"]: 1}
