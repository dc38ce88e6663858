"""Headers: the names that RocketMQ has for their fields, and texts that are no field's."""

from __future__ import annotations

import pytest
from halfop.rocketmq import requests as r
from halfop.rocketmq.requests import BadHeader, Header

SEND = ("group", "orders", 2, 4, 1_750_000_000_000, 7)
ENDED = {"producerGroup": "g", "tranStateTableOffset": "5", "commitLogOffset": "1000", "commitOrRollback": "8"}
QUEUE = {"topic": "t", "queueId": "3"}
OWN = {"brokerName": "b", "brokerAddr": "h:1", "clusterName": "c", "brokerId": "1"}
WRITTEN = [
    (
        r.SendMessageV2(*SEND, properties="p", unit_mode=True),
        {"a": "group", "b": "orders", "c": "TBW102", "d": "4", "e": "2", "f": "4", "g": "1750000000000", "h": "7"}
        | {"i": "p", "j": "0", "k": "true", "m": "false"},
    ),
    (
        r.SendMessage(*SEND),
        {"producerGroup": "group", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"}
        | {"queueId": "2", "sysFlag": "4", "bornTimestamp": "1750000000000", "flag": "7", "properties": ""}
        | {"reconsumeTimes": "0", "unitMode": "false", "batch": "false"},
    ),
    (
        r.Sent("ID", 1, 2, "U"),
        {"msgId": "ID", "queueId": "1", "queueOffset": "2", "transactionId": "U"}
        | {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"},
    ),
    (
        r.EndTransaction("g", 5, 1000, r.COMMIT_TYPE, from_transaction_check=True, msg_id="U"),
        ENDED | {"fromTransactionCheck": "true", "msgId": "U"},
    ),
    (
        r.CheckTransactionState("t", 5, 1000, "U", "U", "ID", "b"),
        {"topic": "t", "tranStateTableOffset": "5", "commitLogOffset": "1000", "msgId": "U", "transactionId": "U"}
        | {"offsetMsgId": "ID", "bname": "b"},
    ),
    (r.ResumeCheckHalfMessage("t", "ID"), {"topic": "t", "msgId": "ID"}),
    (r.UnregisterClient("me", "g"), {"clientID": "me", "producerGroup": "g"}),
    (r.GetMinOffset("t", 3), QUEUE),
    (r.SearchOffset("t", 3, 9), QUEUE | {"timestamp": "9"}),
    (r.QueryConsumerOffset("t", 3, "g"), QUEUE | {"consumerGroup": "g"}),
    (r.Offset(-1), {"offset": "-1"}),
    (
        r.PullMessage("t", 3, 7, 32, 4, "g"),
        QUEUE
        | {"queueOffset": "7", "maxMsgNums": "32", "sysFlag": "4", "consumerGroup": "g", "subscription": "*"}
        | {"subVersion": "0", "commitOffset": "0", "suspendTimeoutMillis": "0"},
    ),
    (
        r.Pulled(8, 1, 9),
        {"nextBeginOffset": "8", "minOffset": "1", "maxOffset": "9", "suggestWhichBrokerId": "0"},
    ),
    (r.QueryConsumeQueue("t", 3, 7, 9), QUEUE | {"index": "7", "count": "9"}),
    (r.ViewMessage(1000), {"offset": "1000"}),
    (
        r.QueryMessage("t", "k", 32, 0, 1, unique=True),
        {"topic": "t", "key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "1"}
        | {"_UNIQUE_KEY_QUERY": "true"},
    ),
    (r.GetRouteinfo("t"), {"topic": "t"}),
    (r.UnregisterBroker("b", "h:1", "c", 1), OWN),
    (
        r.RegisterBroker("b", "h:1", "c", 1, "h:1", compressed=False, body_crc32=3),
        OWN | {"haServerAddr": "h:1", "compressed": "false", "bodyCrc32": "3"},
    ),
    (r.GetBrokerConfig(), {}),
]


@pytest.mark.parametrize(("header", "fields"), WRITTEN, ids=lambda each: type(each).__name__)
def test_fields_have_rocketmqs_names_and_come_back(header: Header, fields: dict[str, str]) -> None:
    assert header.fields() == fields
    assert type(header).read(fields | {"other": "x"}) == header


def test_fields_that_may_be_missing() -> None:
    assert r.EndTransaction.read(ENDED) == r.EndTransaction("g", 5, 1000, 8)
    assert r.Pulled.read({}) == r.Pulled(-1, 0, 0, 0)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"producerGroup": None}, "the custom field <producerGroup> is null"),
        ({"commitLogOffset": None}, "the custom field <commitLogOffset> is null"),
        ({"commitLogOffset": ""}, "the custom field <commitLogOffset> is no number that fits"),
        ({"commitLogOffset": str(2**63)}, "<commitLogOffset> is no number"),
        ({"commitOrRollback": str(2**31)}, "<commitOrRollback> is no number"),
        ({"commitOrRollback": "8 "}, "<commitOrRollback> is no number"),
    ],
)
def test_what_is_no_header_is_said_as_a_broker_says_it(changed: dict[str, str | None], problem: str) -> None:
    fields = {name: text for name, text in (ENDED | changed).items() if text is not None}
    with pytest.raises(BadHeader, match=problem):
        r.EndTransaction.read(fields)


@pytest.mark.parametrize(("text", "value"), [("TRUE", True), ("true", True), ("1", False), ("", False)])
def test_a_flag_is_read_as_java_reads_it(text: str, value: bool) -> None:
    assert r.EndTransaction.read(ENDED | {"fromTransactionCheck": text}).from_transaction_check is value
