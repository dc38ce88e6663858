"""Answers of a gateway to operators' tools, frame by frame; systems/broker has the real mqadmin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from halfop.gateway.core.accounts import GET, PUB, SUB, Accounts
from halfop.gateway.core.clients import Client
from halfop.gateway.core.effects import Read
from halfop.gateway.core.keys import Keys
from halfop.gateway.core.messages import OUTCOMES, Topic
from halfop.gateway.core.refusals import Refused
from halfop.gateway.log import search
from halfop.gateway.producer import Producer
from halfop.rocketmq.frames import ONE_WAY, Frame, Splitter
from halfop.rocketmq.message import Message
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC, AnswerCode, RequestCode
from halfop.rocketmq.properties import unpacked
from halfop.rocketmq.record import chain
from halfop.rocketmq.requests import GetBrokerRuntimeInfo, GetRouteinfo, Header, QueryConsumeQueue, QueryMessage
from halfop.rocketmq.tool_requests import (
    GetAllTopicList,
    GetConsumerConnectionList,
    GetConsumeStats,
    GetProducerConnectionList,
    GetTopicStatsInfo,
    QueryTopicConsumeByWho,
)
from halfop.rocketmq.wire.client import prepared_offsets, query_finals
from halfop.rocketmq.wire.remoting import Credentials, RefusedByBroker
from support.gateway.clients import asked, nothing
from support.gateway.gateway_log import BORN_MS, Waiting, uniq
from support.gateway.gateways import gateway
from support.gateway.played import BROKER, GROUP, TOPIC, Game, account

EVER = 2**63 - 1


@pytest.fixture
def game() -> Game:
    found = Game()
    found.log.topics |= {HALF_TOPIC: Topic(1, 1), OP_TOPIC: Topic(1, 1)}
    return found


@pytest.fixture
def producer(game: Game) -> Client:
    return game.client(GROUP)


def answer(game: Game, client: Client, header: Header) -> Frame:
    """The answer, be it that of a read."""
    request = game.asks(client, header)
    found = game.answer_to(request)
    if found is not None:
        return found
    read = game.effects.pop()
    assert isinstance(read, Read)
    (frame,) = Splitter(1 << 20).feed(read.read())
    return frame


# ---- topics, producers, consumers, rates ----


def test_topics_and_the_routes_of_half_and_op_topic(game: Game, producer: Client) -> None:
    game.half(producer)
    listed = orjson.loads(answer(game, producer, GetAllTopicList()).body)
    assert listed == {"topicList": sorted([HALF_TOPIC, OP_TOPIC, TOPIC])}
    for topic in (HALF_TOPIC, OP_TOPIC):
        (queues,) = orjson.loads(answer(game, producer, GetRouteinfo(topic)).body)["queueDatas"]
        assert (queues["brokerName"], queues["readQueueNums"]) == (BROKER.name, 1)


def test_topic_offsets_are_as_fastjson_writes_them(game: Game, producer: Client) -> None:
    game.half(producer)
    body = answer(game, producer, GetTopicStatsInfo(HALF_TOPIC)).body.decode()
    key = f'{{"brokerName":"{BROKER.name}","queueId":0,"topic":"{HALF_TOPIC}"}}'
    value = '{"lastUpdateTimestamp":0,"maxOffset":1,"minOffset":0}'
    assert body.startswith(f'{{"offsetTable":{{{key}:{value}}},"topicPutTps":')
    game.log.topics["new"] = Topic(4, 4)  # as --topics makes it
    assert answer(game, producer, GetTopicStatsInfo("new")).body.count(b"queueId") == 4


@pytest.mark.parametrize(
    ("header", "refused"),
    [
        (GetTopicStatsInfo("new"), r"^17 topic\[new\] not exist$"),
        (QueryConsumeQueue("new", 3, 0, 1), "^1 3@new is not exist!$"),
        (QueryConsumeQueue(HALF_TOPIC, 99, 0, 1), f"^1 99@{HALF_TOPIC} is not exist!$"),
    ],
)
def test_a_topic_that_nobody_has_made_is_none_though_it_would_be_served(
    game: Game, producer: Client, header: Header, refused: str
) -> None:
    """With a broker's codes and remarks."""
    assert answer(game, producer, GetRouteinfo("new")).code == AnswerCode.SUCCESS
    with pytest.raises(Refused, match=refused):
        answer(game, producer, header)


def test_producers_by_group(game: Game) -> None:
    client = game.client()
    beat = orjson.dumps({"clientID": "me@1", "producerDataSet": [{"groupName": "go"}]})
    game.do(
        game.core.request(
            client, Frame(RequestCode.HEART_BEAT, ONE_WAY, 1, body=beat, version=317, language="GO"), game.now
        )
    )
    (found,) = orjson.loads(answer(game, client, GetProducerConnectionList("go")).body)["connectionSet"]
    assert found == {"clientId": "me@1", "clientAddr": "10.0.0.1:40000", "language": "GO", "version": 317}
    refused = answer(game, client, GetProducerConnectionList("nobody"))
    assert (refused.code, refused.remark) == (AnswerCode.SYSTEM_ERROR, "the producer group[nobody] not exist")


@pytest.mark.parametrize("header", [GetConsumeStats("cg"), GetConsumerConnectionList("cg")])
def test_a_consumer_group_is_told_where_its_messages_are(game: Game, producer: Client, header: Header) -> None:
    refused = answer(game, producer, header)
    assert refused.code == AnswerCode.CONSUMER_NOT_ONLINE
    assert refused.remark.startswith("the consumer group[cg] not online: a gateway has no consumers. `follow broker` ")
    assert orjson.loads(answer(game, producer, QueryTopicConsumeByWho(TOPIC)).body) == {"groupList": []}


def test_rates_are_of_ten_seconds_a_minute_and_ten_minutes(game: Game, producer: Client) -> None:
    def rates() -> str:
        return str(orjson.loads(answer(game, producer, GetBrokerRuntimeInfo()).body)["table"]["putTps"])

    assert rates() == "0.00 0.00 0.00"
    for outcome in OUTCOMES:
        game.ends(producer, game.half(producer), outcome)
    game.tick(10)  # 2 half messages, 2 ops, 1 final message
    assert rates() == "0.50 0.50 0.50"
    for _ in range(50):
        game.tick(1)
    assert rates() == "0.00 0.08 0.08"
    game.tick(40)
    assert rates() == "0.00 0.00 0.05"


# ---- messages by key ----


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Waiting]:
    opened = Waiting(tmp_path / "store")
    yield opened
    opened.close()


def query(
    kept: Waiting, key: str, unique: bool = True, *, topic: str = TOPIC, since: int = 0, until: int = EVER
) -> list[dict[str, str]]:
    """Topic and properties of the messages that are found."""
    request = Frame(12, fields=QueryMessage(topic, key, 32, since, until, unique).fields())
    (found,) = Splitter(1 << 24).feed(Keys(kept.log, BROKER).query(request, None))
    shown = []
    while found.body:
        message, place = Message.read(found.body)
        told = {
            "topic": message.topic.decode(),
            "kind": str(message.sys_flag & 0xC),
            "body": message.body.decode(errors="replace"),
        }
        shown.append({**told, **unpacked(message.properties.decode())})
        assert chain(found.body[: place.size]).stop is None
        found = found._replace(body=found.body[place.size :])
    return shown


@pytest.mark.parametrize("unique", [True, False])
def test_what_the_log_has_is_found_by_its_keys(kept: Waiting, unique: bool) -> None:
    committed, rolled_back, _ = kept.halves(range(3))
    kept.end(committed, "COMMIT")
    kept.end(rolled_back, "ROLLBACK")
    found = [query(kept, uniq(n) if unique else f"k{n}", unique) for n in range(3)]
    assert [len(each) for each in found] == [1, 1, 1]
    told = [(m["topic"], m["kind"], m.get("END_OUTCOME"), m["body"]) for (m,) in found]
    assert told == [(TOPIC, "8", None, "body 0"), (TOPIC, "12", "ROLLBACK", "body 1"), (TOPIC, "4", "OPEN", "body 2")]
    (half,) = query(kept, uniq(0) if unique else "k0", unique, topic=HALF_TOPIC)
    assert (half["topic"], half["kind"], half["REAL_TOPIC"]) == (HALF_TOPIC, "0", TOPIC)


def test_a_twin_is_found_too_and_one_of_several_keys_is_enough(kept: Waiting) -> None:
    for _ in range(2):
        kept.half(1, KEYS="a1 k1 z1")
    assert [each["KEYS"] for each in query(kept, "k1", unique=False)] == ["a1 k1 z1"] * 2
    assert len(query(kept, uniq(1))) == 2


@pytest.mark.parametrize(
    ("key", "topic", "since", "until"),
    [
        ("k11", TOPIC, 0, EVER),
        ("k", TOPIC, 0, EVER),
        ("", TOPIC, 0, EVER),
        ("body 1", TOPIC, 0, EVER),  # in a body only
        ("k1", "other", 0, EVER),
        ("k1", TOPIC, 0, BORN_MS),
        ("k1", TOPIC, EVER - 1, EVER),
    ],
)
def test_what_was_never_stored_is_not_found(kept: Waiting, key: str, topic: str, since: int, until: int) -> None:
    kept.halves(range(3))
    with pytest.raises(Refused, match="22 can not find message"):
        query(kept, key, False, topic=topic, since=since, until=until)


def test_a_search_goes_from_piece_to_piece_and_by_time(kept: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_PIECE", 100)  # records are longer
    monkeypatch.setattr("halfop.gateway.log.log._now_ms", lambda: BORN_MS)
    halves = kept.halves(range(40))  # of more than one file
    monkeypatch.setattr("halfop.gateway.log.log._now_ms", lambda: BORN_MS + 10)
    later = kept.halves(range(40, 45))
    for n in range(45):
        assert len(query(kept, uniq(n))) == 1
        assert len(query(kept, f"k{n}", unique=False)) == 1
    for half in (halves[0], halves[-1], later[0]):
        assert len(query(kept, str(half.uniq_key), since=half.store_ms, until=half.store_ms)) == 1
    with pytest.raises(Refused):
        query(kept, uniq(3), since=BORN_MS + 1)
    with pytest.raises(Refused):
        query(kept, uniq(42), until=BORN_MS + 9)


@pytest.mark.parametrize("unique", [True, False])
def test_what_was_removed_after_it_landed_is_told_by_a_message(kept: Waiting, unique: bool) -> None:
    for half in kept.halves(range(60)):
        kept.end(half, "COMMIT")
    queues = [(HALF_TOPIC, 0), (OP_TOPIC, 0), *((TOPIC, n) for n in range(4))]
    kept.log.expire({queue: kept.log.offsets(*queue).next for queue in queues}, 0)
    key = uniq(1) if unique else "k1"
    (note,) = query(kept, key, unique)
    assert (note["topic"], note["KEYS"]) == (TOPIC, key)
    shown = note["NOTE"] if unique else note["UNIQ_KEY"]  # what mqadmin prints
    assert shown.startswith("not in the log since 20")
    assert shown.endswith(f"if older, it has landed: ask `explain {key}`" if unique else "half_messages, column keys")
    assert query(kept, uniq(59))[0]["body"] == "body 59"
    with pytest.raises(Refused):  # it would be in the log still
        query(kept, key, unique, since=EVER - 1)


def test_a_search_ends_and_says_how_far_it_has_come(kept: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.halves(range(40))
    monkeypatch.setattr(search, "_MOST_BYTES", 3000)
    monkeypatch.setattr(search, "_PIECE", 1000)
    assert query(kept, uniq(39))[0]["body"] == "body 39"
    (note,) = query(kept, uniq(0))
    assert note["NOTE"].startswith("not in the log since ")


def test_a_body_that_looks_like_records_costs_no_more_than_others(kept: Waiting) -> None:
    kept.half(0, body=b"\xda\xa3\x20\xa7" * 1000 + b"k1 KEYS\x01k1\x02", KEYS="k2")
    with pytest.raises(Refused):
        query(kept, "k1", unique=False)
    assert len(query(kept, "k2", unique=False)) == 1


def test_a_topics_messages_are_for_its_readers(kept: Waiting) -> None:
    kept.half(1)
    request = Frame(12, fields=QueryMessage(TOPIC, uniq(1), 32, 0, EVER, unique=True).fields())
    with pytest.raises(Refused, match="16 account sender has no SUB or GET on topic orders"):
        Keys(kept.log, BROKER).query(request, account("sender", TOPIC))


def test_a_groups_clients_are_for_those_who_may_read_all(game: Game, producer: Client) -> None:
    game.core.accounts = Accounts({"sender": account("sender", TOPIC, actions=(PUB, SUB, GET))})
    game.credentials = Credentials("sender", "secret")
    answer = game.answer_to(game.asks(producer, GetProducerConnectionList(GROUP)))
    assert answer is not None
    assert answer.code == AnswerCode.NO_PERMISSION


def test_a_gateway_answers_searches_beside_its_reads(tmp_path: Path) -> None:
    with gateway(tmp_path) as running, Producer(running.address, "group", nothing) as producer:
        sent = producer.transaction("t", b"yes", lambda sent: "COMMIT")
        still = producer.send("t", b"open")
        with asked(running.address) as broker:
            request = query_finals("t", sent.transaction_id)
            assert prepared_offsets(broker, request, broker.remote.ask(request)) == [sent.physical_offset]
            request = query_finals("t", still.transaction_id)  # what `end` asks before it sends an answer
            assert prepared_offsets(broker, request, broker.remote.ask(request)) == []
            with pytest.raises(RefusedByBroker, match="22: can not find message"):
                broker.remote.ask(query_finals("t", uniq(1)))
