"""The gateway's core under a clock of the test: sends, ends, the whole life of a question, and what is refused."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import orjson
import pytest
from halfop.gateway.core.accounts import Accounts
from halfop.gateway.core.clients import Client
from halfop.gateway.core.effects import CheckRequest, FindRoute, Read, RefusedRequest
from halfop.gateway.core.messages import Half, Outcome, Topic
from halfop.rocketmq.frames import Frame, Splitter
from halfop.rocketmq.names import HALF_TOPIC, PROXY_CLIENT, TRACE_TOPIC, AnswerCode
from halfop.rocketmq.requests import (
    GetMaxOffset,
    GetRouteinfo,
    GetTopicConfig,
    HeartBeat,
    PullMessage,
    QueryMessage,
    SendMessageV2,
    UnregisterClient,
    ViewMessage,
)
from halfop.rocketmq.wire.remoting import Credentials
from halfop.settings.gateway import GatewaySettings
from halfop.settings.model import Settings
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.gateway.played import BROKER, GROUP, TOPIC, Game, account

OUTCOMES: list[Outcome | None] = ["COMMIT", "ROLLBACK", None, None]
INTERVAL = 60.0  # transaction_check_interval
FLUSH = 3.0  # gateway.flush_time


@pytest.fixture
def game() -> Game:
    return Game()


@pytest.fixture
def producer(game: Game) -> Client:
    return game.client(GROUP)


def limited(**own: Any) -> Game:
    return Game(Settings(gateway=GatewaySettings(**own)))


# ---- sends ----


def test_a_send_is_answered_when_it_is_durable(game: Game, producer: Client) -> None:
    sent = game.sends(producer, UNIQ_KEY="U1")
    assert game.answer_to(sent) is None
    game.flush()
    answer = game.answer_to(sent)
    assert answer is not None
    assert answer.code == AnswerCode.SUCCESS
    assert (answer.fields["queueOffset"], answer.fields["transactionId"]) == ("0", "U1")
    assert game.core.counts.sent == 1


def test_a_send_that_the_disk_takes_too_long_for_is_answered_once(game: Game, producer: Client) -> None:
    late = game.sends(producer)
    game.passes(FLUSH / 2)
    later = game.sends(producer)
    game.tick(FLUSH / 2)
    answer = game.answer_to(late)
    assert answer is not None
    assert (answer.code, answer.fields["queueOffset"]) == (AnswerCode.FLUSH_DISK_TIMEOUT, "0")
    assert game.answer_to(later) is None
    game.flush()
    answer = game.answer_to(later)
    assert answer is not None
    assert answer.code == AnswerCode.SUCCESS
    assert (len(game.answers), game.core.counts.given_up) == (2, 1)


def test_one_way_requests_are_done_and_not_answered(game: Game, producer: Client) -> None:
    game.sends(producer, one_way=True)
    half = game.half(producer)
    answers = len(game.answers)
    game.ends(producer, half, "COMMIT", one_way=True)
    game.ends(producer, half, "COMMIT", one_way=True, group="other")
    game.flush()
    assert (len(game.answers), game.log.ops) == (answers, [(1, "COMMIT")])


def refusal_of_a_send(game: Game, client: Client) -> str:
    """The remark; nothing was appended."""
    end = game.log.end
    answer = game.answer_to(game.sends(client))
    assert answer is not None
    assert game.log.end == end
    return f"{answer.code} {answer.remark}"


def test_sends_for_which_there_is_no_room(game: Game, producer: Client) -> None:
    for state, remark in (("disk_full", "disk is full"), ("stopping", "the gateway stops")):
        setattr(game.core, state, True)
        assert f"{AnswerCode.SERVICE_NOT_AVAILABLE} service not available now: " in refusal_of_a_send(game, producer)
        assert remark in refusal_of_a_send(game, producer)
    game.core.disk_full = game.core.stopping = False
    assert game.half(producer).queue_offset == 0


def test_sends_above_what_may_be_unflushed_or_open() -> None:
    game = limited(unflushed_bytes=1)
    producer = game.client(GROUP)
    game.sends(producer)
    assert "[UNFLUSHED]" in refusal_of_a_send(game, producer)
    game.flush()
    assert game.half(producer).queue_offset == 1
    game = limited(open_messages=1)
    producer = game.client(GROUP)
    half = game.half(producer)
    assert "[OPEN]" in refusal_of_a_send(game, producer)
    game.ends(producer, half, "ROLLBACK")
    assert game.half(producer).queue_offset == 1


def test_topics_above_what_there_may_be(game: Game, producer: Client) -> None:
    game.log.topics = {f"t{n}": Topic(4, 4) for n in range(9_999)}
    game.half(producer)
    assert game.log.topics[TOPIC] == Topic(4, 4)
    del game.log.topics[TOPIC]
    game.log.topics |= {"t": Topic(4, 4)}
    assert "this gateway has 10000 topics" in refusal_of_a_send(game, producer)


@pytest.mark.parametrize("takes", [True, False])
def test_message_traces_are_dropped_or_refused_and_clients_learn_which(takes: bool) -> None:
    game = limited(traces=takes)
    producer = game.client(GROUP)
    sent = game.sends(producer)
    game.flush()
    answer = game.answer_to(sent)
    assert answer is not None
    assert (answer.fields["MSG_REGION"], answer.fields["TRACE_ON"]) == ("DefaultRegion", str(takes).lower())
    game.asks(producer, GetRouteinfo(TRACE_TOPIC))
    found_route = game.effects.pop()
    assert isinstance(found_route, FindRoute)
    assert (found_route.own is not None) == takes, "which is answered where no name server has one"
    end = game.log.end
    trace = SendMessageV2("_INNER_TRACE_PRODUCER", TRACE_TOPIC, 0, 0, 1, 0, properties="KEYS\x01k")
    found = game.answer_to(game.asks(producer, trace, b"trace"))
    assert found is not None
    assert (found.code, game.core.counts.traces) == ((0, 1) if takes else (AnswerCode.NO_PERMISSION, 0))
    assert game.log.end == end


# ---- ends ----


@pytest.mark.parametrize("outcome", ["COMMIT", "ROLLBACK"])
def test_an_end_is_answered_when_it_is_durable_and_delivers_a_commit(
    game: Game, producer: Client, outcome: Outcome
) -> None:
    half = game.half(producer)
    end = game.ends(producer, half, outcome)
    assert game.answer_to(end) is None
    game.flush()
    answer = game.answer_to(end)
    assert answer is not None
    assert (answer.code, answer.fields) == (AnswerCode.SUCCESS, {})
    assert game.log.ops == [(0, outcome)]
    assert game.log.delivered == ([0] if outcome == "COMMIT" else [])


def test_a_repeat_writes_nothing_and_the_opposite_delivers_nothing(game: Game, producer: Client) -> None:
    half = game.half(producer)
    said: list[Outcome] = ["ROLLBACK", "ROLLBACK", "COMMIT", "COMMIT", "ROLLBACK"]
    for outcome in said:
        end = game.ends(producer, half, outcome)
        game.flush()
        answer = game.answer_to(end)
        assert answer is not None
        assert answer.code == AnswerCode.SUCCESS
    assert game.log.ops == [(0, "ROLLBACK"), (0, "COMMIT")]
    assert game.log.delivered == []
    counted = {"ROLLBACK_ENDED": 1, "ROLLBACK_REPEATED": 2, "COMMIT_OPPOSED": 1, "COMMIT_REPEATED": 1}
    assert game.core.counts.ended == counted


def test_a_repeat_of_what_is_durable_is_answered_at_once(game: Game, producer: Client) -> None:
    half = game.half(producer)
    game.ends(producer, half, "COMMIT")
    waiting = game.ends(producer, half, "COMMIT")
    assert game.answer_to(waiting) is None
    game.flush()
    assert game.answer_to(waiting) is not None
    assert game.answer_to(game.ends(producer, half, "COMMIT")) is not None


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        ({"place": 3}, "Find prepared transaction message failed"),
        ({"place": 1 << 50}, "Find prepared transaction message failed"),
        ({"group": "other"}, "The producer group wrong"),
        ({"offset": 7}, "The transaction state table offset wrong"),
        ({"group": "other", "offset": 7}, "The producer group wrong"),
    ],
)
def test_ends_that_name_no_half_message_of_their_group(
    game: Game, producer: Client, wrong: dict[str, Any], remark: str
) -> None:
    half = game.half(producer)
    assert refusal_of_an_end(game, producer, half, **wrong) == (AnswerCode.SYSTEM_ERROR, remark)


def refusal_of_an_end(game: Game, client: Client, half: Half, **changed: Any) -> tuple[int, str]:
    answer = game.answer_to(game.ends(client, half, "COMMIT", **changed))
    assert answer is not None
    assert game.log.ops == []
    return answer.code, answer.remark


def test_a_half_message_that_is_not_durable_cannot_be_ended(game: Game, producer: Client) -> None:
    game.sends(producer)
    (half,) = game.log.halves.values()
    assert refusal_of_an_end(game, producer, half)[1] == "Find prepared transaction message failed"
    game.flush()
    game.ends(producer, half, "COMMIT")
    assert game.log.delivered == [0]


def test_a_half_message_whose_file_was_removed_cannot_be_ended(game: Game, producer: Client) -> None:
    half = game.half(producer)
    game.log.remove(half)
    assert refusal_of_an_end(game, producer, half)[1] == "Find prepared transaction message failed"
    assert game.core.counts.ended == {}


def test_an_end_after_the_messages_immunity_counts_only_if_it_was_asked_for(game: Game, producer: Client) -> None:
    half = game.half(producer, CHECK_IMMUNITY_TIME_IN_SECONDS="30")
    game.passes(30.0)
    game.passes(0.001)
    code, remark = refusal_of_an_end(game, producer, half)
    assert (code, remark[:8]) == (AnswerCode.ILLEGAL_OPERATION, "TOO_LATE")
    game.ends(producer, half, "COMMIT", from_transaction_check=True)
    assert game.log.delivered == [0]


def test_a_repeat_that_comes_too_late_is_refused_like_any_other(game: Game, producer: Client) -> None:
    half = game.half(producer, CHECK_IMMUNITY_TIME_IN_SECONDS="30")
    game.passes(29.0)
    game.ends(producer, half, "COMMIT")
    game.passes(2.0)
    answer = game.answer_to(game.ends(producer, half, "COMMIT"))
    assert answer is not None
    assert answer.code == AnswerCode.ILLEGAL_OPERATION


def test_ends_have_twice_the_room_of_sends() -> None:
    game = limited(unflushed_bytes=300)
    producer = game.client(GROUP)
    halves = [game.half(producer) for _ in range(5)]
    codes = [game.answer_to(game.ends(producer, half, "ROLLBACK")) for half in halves]
    assert [each and each.code for each in codes] == [*[None] * 4, AnswerCode.SYSTEM_BUSY]
    assert "[UNFLUSHED]" in refusal_of_a_send(game, producer)


def test_a_slave_takes_neither_sends_nor_ends(game: Game, producer: Client) -> None:
    half = game.half(producer)
    slave = Game(broker=BROKER.__class__(**BROKER.__dict__ | {"is_slave": True}))
    client = slave.client(GROUP)
    assert f"{AnswerCode.SYSTEM_BUSY} [REJECTREQUEST]" in refusal_of_a_send(slave, client)
    assert refusal_of_an_end(slave, client, half)[0] == AnswerCode.SLAVE_NOT_AVAILABLE


# ---- the life of a question ----


def test_a_question_is_asked_and_answered(game: Game, producer: Client) -> None:
    half = game.half(producer)
    request = game.wants(half, "1", ago=1.0)
    assert (game.asked, game.core.questions.waiting) == ([], 1)
    game.tick()
    (asked,) = game.asked
    assert (asked.client, asked.half) == (producer, half)
    game.passes(0.25)
    game.ends(producer, half, "COMMIT", from_transaction_check=True)
    assert game.outcomes(request) == ["SENT", "ANSWERED"]
    assert [(row.client, row.answered_after) for row in game.table] == [("client", None), ("client", 250)]
    assert (game.log.delivered, game.core.questions.waiting) == ([0], 0)


def test_a_question_that_is_answered_with_nothing_is_asked_again_by_the_next_request(
    game: Game, producer: Client
) -> None:
    half = game.half(producer)
    first = game.wants(half, "1")
    game.tick()
    game.ends(producer, half, None, from_transaction_check=True)
    game.ends(producer, half, None, from_transaction_check=True)
    assert game.outcomes(first) == ["SENT", "UNKNOWN"]
    game.passes(INTERVAL)
    again = game.wants(half, "2")
    game.tick()
    assert game.outcomes(again) == ["SENT"]
    assert len(game.asked) == 2
    assert game.log.ops == []


def test_an_answer_that_comes_late_counts_for_the_last_question(game: Game, producer: Client) -> None:
    half = game.half(producer)
    first = game.wants(half, "1")
    game.tick()
    game.passes(INTERVAL)
    second = game.wants(half, "2")
    game.tick()
    game.passes(1.0)
    game.ends(producer, half, "ROLLBACK", from_transaction_check=True)
    game.ends(producer, half, "ROLLBACK", from_transaction_check=True)
    assert (game.outcomes(first), game.outcomes(second)) == (["SENT"], ["SENT", "ANSWERED"])
    assert game.table[-1].answered_after == 1000


def test_what_a_slow_run_asks_for_is_not_asked_twice(game: Game, producer: Client) -> None:
    half = game.half(producer)
    game.wants(half, "1")
    game.tick()
    game.passes(5.0)
    unaware, aware = game.wants(half, "2", ago=5.0), game.wants(half, "3")
    game.tick()
    assert (game.outcomes(unaware), game.outcomes(aware)) == (["SUPERSEDED"], ["SENT"])


def test_a_newer_request_replaces_the_one_that_waits(game: Game, producer: Client) -> None:
    half = game.half(producer)
    older, newer = game.wants(half, "1"), game.wants(half, "2")
    game.tick()
    assert (game.outcomes(older), game.outcomes(newer)) == (["SUPERSEDED"], ["SENT"])


@pytest.mark.parametrize("wrong", [{"queue_offset": 5}, {"physical_offset": 5}])
def test_what_has_ended_or_is_not_of_this_log_is_not_asked_about(
    game: Game, producer: Client, wrong: dict[str, int]
) -> None:
    half, ended = game.half(producer), game.half(producer)
    foreign, late = game.wants(half, "1", **wrong), game.wants(ended, "2")
    game.ends(producer, ended, "COMMIT")
    game.tick()
    assert (game.outcomes(foreign), game.outcomes(late), game.asked) == (["SUPERSEDED"], ["SUPERSEDED"], [])


def test_a_message_that_is_not_durable_is_not_shown(game: Game, producer: Client) -> None:
    game.sends(producer)
    (half,) = game.log.halves.values()
    request = game.wants(half, "1")
    game.tick()
    assert (game.outcomes(request), game.asked) == (["FAILED"], [])


def test_a_producer_that_leaves_in_the_middle_is_followed_by_the_next_one(game: Game, producer: Client) -> None:
    half, other = game.half(producer), game.half(producer)
    first = game.wants(half, "1")
    game.tick()
    game.core.left(producer)
    waits = game.wants(other, "2")
    game.tick()
    assert (game.outcomes(first), game.outcomes(waits)) == (["SENT"], [])
    game.passes(INTERVAL - 1)
    following = game.client(GROUP)
    game.tick()
    assert game.outcomes(waits) == ["SENT"]
    game.ends(following, half, "COMMIT", from_transaction_check=True)  # asked by the one before, as a client may
    assert game.outcomes(first) == ["SENT", "ANSWERED"]
    assert game.asked[-1].client is following


@pytest.mark.parametrize(("there", "outcome"), [(False, "NO_PRODUCER"), (True, "FAILED")])
def test_a_request_is_given_up_after_the_check_interval(game: Game, there: bool, outcome: str) -> None:
    producer = game.client(GROUP)
    half = game.half(producer)
    producer.is_open = False  # it takes no answers
    if not there:
        game.core.left(producer)
    request = game.wants(half, "1")
    game.tick(INTERVAL)
    assert game.outcomes(request) == []
    game.tick()
    assert (game.outcomes(request), game.core.questions.waiting) == ([outcome], 0)


def test_after_a_restart_only_what_was_not_sent_is_asked(game: Game, producer: Client) -> None:
    asked, waits = game.half(producer), game.half(producer)
    first = game.wants(asked, "1", ago=10.0)
    game.tick()
    game.core.left(producer)
    second = game.wants(waits, "2")
    game.restart()
    game.tick()
    assert game.outcomes(second) == []
    slow = game.wants(asked, "3", ago=5.0)
    assert game.outcomes(slow) == ["SUPERSEDED"]
    following = game.client(GROUP)
    game.tick()
    assert (game.outcomes(first), game.outcomes(second)) == (["SENT"], ["SENT"])
    game.ends(following, asked, "COMMIT", from_transaction_check=True)
    assert game.log.delivered == [0]  # it counts, though nobody knows any more which question it answers


def test_after_a_restart_a_run_that_has_not_seen_the_question_asks_in_vain(game: Game, producer: Client) -> None:
    half = game.half(producer)
    game.wants(half, "1", ago=10.0)
    game.tick()
    unaware = game.wants(half, "2", ago=5.0)
    assert game.outcomes(unaware) == ["SUPERSEDED"]
    game.restart()
    game.client(GROUP)
    game.tick()
    assert (set(game.outcomes(unaware)), len(game.asked)) == ({"SUPERSEDED"}, 1)


def test_questions_are_shared_by_a_groups_clients_and_limited_for_each() -> None:
    game = limited(ask_sender_first=False)
    producer, other = game.client(GROUP), game.client(GROUP)
    for n in range(25):
        game.wants(game.half(producer), str(n))
    game.tick()
    assert [each.client for each in game.asked] == [producer, other] * 10
    game.tick()
    assert len(game.asked) == 25


def test_after_a_long_pause_a_client_gets_the_questions_of_a_second(game: Game, producer: Client) -> None:
    for n in range(150):
        game.wants(game.half(producer), str(n))
    game.tick(INTERVAL)
    assert len(game.asked) == 100


def test_an_answer_of_another_group_or_to_no_question_is_none(game: Game, producer: Client) -> None:
    half = game.half(producer)
    request = game.wants(half, "1")
    game.tick()
    foreign = game.ends(game.client(), half, None, from_transaction_check=True, group="other")
    assert game.answer_to(foreign) is None, "a broker does not answer, either"
    (told,) = [each for each in game.effects if isinstance(each, RefusedRequest)]
    assert (told.request, told.is_audited) == (foreign, True), "it is logged and audited all the same"
    game.ends(producer, half, None)
    assert game.outcomes(request) == ["SENT"]
    game.ends(producer, half, None, from_transaction_check=True)
    assert game.outcomes(request) == ["SENT", "UNKNOWN"]


# ---- whom it asks ----


def asked_names(game: Game) -> list[str]:
    return [each.client.name for each in game.asked]


def beats(game: Game, client: Client, name: str) -> None:
    """A heartbeat of the group, as a client of that id."""
    game.asks(client, HeartBeat(), orjson.dumps({"clientID": name, "producerDataSet": [{"groupName": GROUP}]}))


def machine(number: int) -> bytes:
    """The address and port of a client on another machine."""
    return bytes((10, 0, 1, number)) + (40_000).to_bytes(4, "big")


def test_the_client_that_sent_a_message_is_asked_first_also_after_its_restart(game: Game) -> None:
    first, second, other = (game.client(host=machine(n)) for n in (1, 2, 3))
    for client, name in ((first, "a"), (second, "b"), (other, "c")):
        beats(game, client, name)
    halves = [game.half(second) for _ in range(3)]
    game.wants(halves[0], "0")
    game.tick()
    game.core.left(second)
    restarted = game.client(host=machine(9))
    beats(game, restarted, "b")
    game.wants(halves[1], "1")
    game.tick()
    game.core.left(restarted)
    same_machine = game.client(host=machine(2))
    beats(game, same_machine, "new")
    game.wants(halves[2], "2")
    game.tick()
    assert asked_names(game) == ["b", "b", "new"]
    assert [row.client for row in game.table] == ["b", "b", "new"]


def test_a_sender_that_does_not_answer_is_followed_by_the_others_in_turn(game: Game) -> None:
    clients = [game.client(host=machine(n)) for n in range(3)]
    for client, name in zip(clients, "abc", strict=True):
        beats(game, client, name)
    half = game.half(clients[1])
    for n in range(4):
        game.wants(half, str(n))
        game.tick()
        game.passes(1.0)
    assert asked_names(game) == ["b", "a", "c", "b"]
    game.ends(clients[1], half, None, from_transaction_check=True)  # it answers again: it knows best
    game.wants(half, "again")
    game.tick()
    assert asked_names(game)[-1] == "b"


def test_a_neighbour_that_does_not_know_is_followed_by_the_others_in_turn(game: Game) -> None:
    """The sender has gone for good: whoever is at its address is asked first, and no more than the others."""
    gone = game.client(host=machine(1))
    beats(game, gone, "gone")
    half = game.half(gone)
    game.core.left(gone)
    clients = {name: game.client(host=machine(n)) for name, n in (("near", 1), ("new", 1), ("far", 2))}
    for name, client in clients.items():
        beats(game, client, name)
    for n in range(6):
        game.wants(half, str(n))
        game.tick()
        game.ends(game.asked[-1].client, half, None, from_transaction_check=True)
        game.passes(1.0)
    assert sorted(asked_names(game)[:3]) == ["far", "near", "new"]
    assert asked_names(game)[3:] == asked_names(game)[:3]


def test_a_sender_that_has_got_its_share_holds_up_no_other_senders_messages(game: Game) -> None:
    busy, other = (game.client(host=machine(n)) for n in (1, 2))
    beats(game, busy, "busy")
    beats(game, other, "other")
    for n in range(25):
        game.wants(game.half(busy if n < 20 else other), str(n))
    game.tick()
    assert asked_names(game) == ["busy"] * 10 + ["other"] * 5
    game.tick()
    assert asked_names(game)[15:] == ["busy"] * 10


def test_without_the_setting_the_clients_are_asked_in_turn() -> None:
    game = limited(ask_sender_first=False)
    first, second = (game.client(host=machine(n)) for n in (1, 2))
    beats(game, first, "a")
    beats(game, second, "b")
    for n in range(4):
        game.wants(game.half(second), str(n))
    game.tick()
    assert asked_names(game) == ["a", "b", "a", "b"]


def test_a_connection_that_merely_sends_is_asked_until_the_group_has_a_heartbeat(game: Game) -> None:
    sending = game.client(host=machine(1))
    first = game.wants(game.half(sending), "1")
    game.tick()
    assert game.outcomes(first) == []  # nobody knows whether it takes questions
    beating = game.client(host=machine(2))
    beats(game, beating, "b")
    second = game.wants(game.half(sending), "2")
    game.tick()
    assert [each.client for each in game.asked] == [sending, beating]
    assert game.outcomes(second) == ["SENT"]
    assert sending.groups == set()
    game.core.left(beating)
    game.half(sending)
    assert (sending.groups, beating.groups) == ({GROUP}, set())


def test_a_question_that_a_proxy_took_counts_when_it_is_answered(game: Game) -> None:
    proxy, sending = game.client(host=machine(1)), game.client(host=machine(1))
    beats(game, proxy, PROXY_CLIENT)
    known, silent = game.half(sending), game.half(sending)
    requests = [game.wants(known, "1"), game.wants(silent, "2")]
    game.tick()
    assert [each.client for each in game.asked] == [proxy, proxy]
    assert game.table == []
    game.ends(sending, known, None, from_transaction_check=True)
    assert game.outcomes(requests[0]) == ["SENT", "UNKNOWN"]
    assert [row.client for row in game.table] == [PROXY_CLIENT, "client"]
    game.tick(INTERVAL)
    assert game.outcomes(requests[1]) == []
    game.tick()
    assert game.outcomes(requests[1]) == ["FAILED"]
    assert (game.table[-1].remark or "").startswith("it was sent, but perhaps nobody saw it")
    late = game.ends(sending, silent, "COMMIT", from_transaction_check=True)
    game.flush()
    assert game.answer_to(late) is not None
    assert game.outcomes(requests[1]) == ["FAILED", "SENT", "ANSWERED"]


# ---- clients ----


def test_a_client_is_of_the_groups_that_its_heartbeats_sends_and_goodbyes_say(game: Game) -> None:
    client = game.client()
    data = {"clientID": "c1", "producerDataSet": [{"groupName": "a"}, {"groupName": "no group"}, {"groupName": "b"}]}
    game.asks(client, HeartBeat(), orjson.dumps(data))
    game.sends(client)
    assert (client.name, client.groups) == ("c1", {"a", "b", GROUP})
    game.asks(client, UnregisterClient("c1", "a"))
    assert (client.groups, "a" in game.core.producers) == ({"b", GROUP}, False)
    game.core.left(client)
    assert len(game.core.producers) == 0


def test_a_client_is_of_so_many_groups_at_the_most(game: Game) -> None:
    client = game.client()
    data = {"producerDataSet": [{"groupName": f"g{n}"} for n in range(200)]}
    game.asks(client, HeartBeat(), orjson.dumps(data))
    assert len(client.groups) == len(game.core.producers) == 100


def test_requests_that_no_account_has_signed_and_those_that_it_may_not_make(game: Game) -> None:
    game.core.accounts = Accounts({"all": account("all", TOPIC), "none": account("none", "others")})
    client, stranger = game.client(), game.client()
    assert "no account of this gateway has signed the request" in refusal_of_a_send(game, client)
    assert GROUP not in game.core.producers
    game.credentials = Credentials("all", "secret")
    half = game.half(client)
    game.credentials = Credentials("none", "secret")
    assert "account none has no PUB on topic orders" in refusal_of_a_send(game, stranger)
    assert refusal_of_an_end(game, stranger, half)[0] == AnswerCode.NO_PERMISSION
    for each in (client, stranger):
        game.core.producers.add(GROUP, each)
    request = game.wants(half, "1")
    game.tick()
    game.ends(stranger, half, None, from_transaction_check=True)
    assert (game.asked[0].client, game.outcomes(request)) == (client, ["SENT"])
    game.core.left(client)
    waits = game.wants(half, "2", ago=-1.0)
    game.tick()
    assert (game.outcomes(waits), game.core.questions.waiting) == ([], 1), "a client that may not see it is not asked"


def test_routes_and_reads(game: Game, producer: Client) -> None:
    own = game.answer_to(game.asks(producer, GetRouteinfo("any")))
    assert own is not None
    assert orjson.loads(own.body)["queueDatas"][0]["writeQueueNums"] == 4
    assert game.answer_to(game.asks(producer, GetRouteinfo("no topic"))) is None
    game.half(producer)
    quick = game.answer_to(game.asks(producer, GetMaxOffset(HALF_TOPIC, 0)))
    assert quick is not None
    assert quick.fields == {"offset": "1"}
    assert game.answer_to(game.asks(producer, ViewMessage(0))) is None
    route, read = game.effects
    assert isinstance(route, FindRoute)
    assert route.topic == "no topic"
    assert isinstance(read, Read)
    assert Splitter(1 << 20).feed(read.read())[0].body == game.log.record(0)


def test_a_read_that_waits_holds_no_body(game: Game, producer: Client) -> None:
    """Nothing counts its bytes."""
    game.core.accounts = Accounts({"all": account("all", TOPIC)})
    game.credentials = Credentials("all", "secret")
    asked = game.asks(producer, QueryMessage(TOPIC, "key", 10, 0, 1), bytes(4 << 20))
    (read,) = game.effects
    assert isinstance(read, Read)
    assert (read.request.opaque, read.request.body) == (asked.opaque, b"")
    assert isinstance(read.read, partial)
    assert read.read.args[0].body == b""


def test_a_topics_configuration_says_that_its_messages_are_transactional(game: Game, producer: Client) -> None:
    found = game.answer_to(game.asks(producer, GetTopicConfig("any")))
    assert found is not None
    about = orjson.loads(found.body)
    assert (about["topicName"], about["attributes"]) == ("any", {"message.type": "TRANSACTION"})
    refused = game.answer_to(game.asks(producer, GetTopicConfig(HALF_TOPIC)))
    assert refused is not None
    assert refused.code == AnswerCode.TOPIC_NOT_EXIST


def pulls(game: Game, client: Client, offset: int, suspends: bool = True) -> Frame:
    flag = 6 if suspends else 4
    return game.asks(client, PullMessage("heartbeats", 0, offset, 32, flag, suspend_timeout_millis=15_000))


def test_a_pull_that_is_to_wait_is_answered_when_its_time_is_over(game: Game, producer: Client) -> None:
    waits = pulls(game, producer, 0)
    game.tick(14.5)
    assert game.answer_to(waits) is None
    game.tick(1.0)
    found = game.answer_to(waits)
    assert found is not None
    assert (found.code, found.fields["nextBeginOffset"]) == (AnswerCode.PULL_NOT_FOUND, "0")


def test_other_pulls_do_not_wait_and_few_of_a_client_do(game: Game, producer: Client) -> None:
    pulls(game, producer, 0, suspends=False)
    pulls(game, producer, 5)
    assert [type(each) for each in game.effects] == [Read, Read]
    waiting = [pulls(game, producer, 0) for _ in range(65)]
    assert [n for n, each in enumerate(waiting) if game.answer_to(each)] == [64]


# ---- any order ----


class AnyOrder(RuleBasedStateMachine):
    """Sends, ends, questions, clients that come, go and are slow, a disk that is slow, restarts: in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.game = Game()
        self.clients = [self.game.client(GROUP)]
        for _ in range(3):
            self.game.half(self.clients[0])
        self.asked = 0
        self.opened: set[int] = set()

    def any_client(self, draw: int) -> Client:
        if not self.clients:
            self.clients.append(self.game.client(GROUP))
        return self.clients[draw % len(self.clients)]

    def any_half(self, draw: int) -> Half:
        """One that is open, mostly."""
        every, still = self.game.log.halves, self.game.log.open_halves
        halves = list((still if still and draw else every).values())
        return halves[draw % len(halves)]

    @rule(who=st.integers(0, 3), one_way=st.booleans())
    def sends(self, who: int, one_way: bool) -> None:
        self.game.sends(self.any_client(who), one_way=one_way)

    @rule(who=st.integers(0, 3), which=st.integers(0, 5), outcome=st.sampled_from(OUTCOMES), asked=st.booleans())
    def ends(self, who: int, which: int, outcome: Outcome | None, asked: bool) -> None:
        self.game.ends(self.any_client(who), self.any_half(which), outcome, from_transaction_check=asked)

    @rule(which=st.integers(0, 5), ago=st.sampled_from([0.0, 0.05, 5.0, 90.0]))
    def wants(self, which: int, ago: float) -> None:
        self.game.wants(self.any_half(which), str(len(self.game.requests)), ago)

    @rule(which=st.integers(0, 5), ago=st.sampled_from([0.0, 0.05, 5.0]))
    def wants_and_asks(self, which: int, ago: float) -> None:
        self.wants(which, ago)
        self.ticks(0.1)

    @rule()
    def flushes(self) -> None:
        self.game.flush()

    @rule()
    def flushes_in_part(self) -> None:
        """Up to the end of the next half message."""
        log = self.game.log
        self.game.flush(next((half.end for half in log.halves.values() if half.end > log.flushed_to), log.end))

    @rule(seconds=st.sampled_from([0.1, 0.1, 1.0, INTERVAL + 0.1]))
    def ticks(self, seconds: float) -> None:
        self.opened = set(self.game.log.open_halves)
        self.game.tick(seconds)

    @rule()
    def comes(self) -> None:
        if len(self.clients) < 4:
            self.clients.append(self.game.client(GROUP))

    @rule(who=st.integers(0, 3))
    def leaves(self, who: int) -> None:
        if self.clients:
            self.game.core.left(self.clients.pop(who % len(self.clients)))

    @rule(who=st.integers(0, 3), takes=st.sampled_from([True, True, False]))
    def slows(self, who: int, takes: bool) -> None:
        self.any_client(who).is_open = takes

    @rule()
    def restarts(self) -> None:
        self.game.restart()
        self.clients = [self.game.client(GROUP)]

    # ---- what must hold ----

    @invariant()
    def no_check_is_asked_twice(self) -> None:
        requests, last = self.game.sent_requests(), dict[int, datetime]()
        rows = [row for row in self.game.table if row.outcome == "SENT"]
        assert len({row.request_id for row in rows}) == len(rows) == len(self.game.asked)
        for request, row in zip(requests, rows, strict=True):
            before = last.get(request.physical_offset)
            assert before is None or before < request.requested_at, "its run had not seen the question before"
            last[request.physical_offset] = row.at

    @invariant()
    def nothing_is_asked_after_its_end(self) -> None:
        for asked in self.game.asked[self.asked :]:
            assert asked.half.physical_offset in self.opened
            assert asked.client.is_open
        self.asked = len(self.game.asked)

    @invariant()
    def no_request_is_lost(self) -> None:
        assert len(self.unsettled()) <= self.game.core.questions.waiting

    def unsettled(self) -> list[CheckRequest]:
        """Requests of which nobody knows yet what became of them."""
        settled = {row.request_id for row in self.game.table}
        return [each for each in self.game.requests if each.request_id not in settled]

    @invariant()
    def an_end_stands(self) -> None:
        first: dict[int, Outcome] = {}
        for offset, outcome in self.game.log.ops:
            first.setdefault(offset, outcome)
        assert len(self.game.log.ops) == len(set(self.game.log.ops))
        assert sorted(self.game.log.delivered) == sorted(each for each, outcome in first.items() if outcome == "COMMIT")

    @invariant()
    def answers_come_once_and_are_durable(self) -> None:
        assert len({each.frame.opaque for each in self.game.answers}) == len(self.game.answers)
        durable = {half.queue_offset for half in self.game.log.halves.values() if half.end <= self.game.log.flushed_to}
        sent = [each.frame for each in self.game.answers if "queueOffset" in each.frame.fields]
        assert {int(each.fields["queueOffset"]) for each in sent if each.code == AnswerCode.SUCCESS} <= durable

    def teardown(self) -> None:
        """With a disk and a producer that work, nothing waits."""
        self.game.flush()
        assert len(self.game.core.answers) == 0
        self.clients.append(self.game.client(GROUP))
        for _ in range(20):
            self.game.tick(1.0)
        assert self.game.core.questions.waiting == len(self.unsettled()) == 0


TestAnyOrder = pytest.mark.long(AnyOrder.TestCase)
AnyOrder.TestCase.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
