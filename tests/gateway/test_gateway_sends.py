"""Sends and ends of a gateway: what is stored of a message, and which requests are refused with which code."""

from __future__ import annotations

import json
import socket
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from halfop.gateway.core.clients import Client
from halfop.gateway.core.messages import Half, HalfMessage, Topic
from halfop.gateway.core.refusals import Refused
from halfop.gateway.core.transactions import Terms, check_end, checked_send, end_of, end_request
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import AnswerCode, RequestCode
from halfop.rocketmq.properties import packed, unpacked
from halfop.rocketmq.requests import NOT_TYPE
from halfop.settings.model import RuleOverride, RuleSettings
from hypothesis import given
from hypothesis import strategies as st

HOST = socket.inet_aton("10.0.0.1") + (4711).to_bytes(4, "big")
TERMS = Terms(frozenset({"orders"}), queues=4, max_body=1000, rejects=False, known={}, traces=True)
NAMES = {"group": "a", "topic": "b", "queue": "e", "sys_flag": "f", "born": "g", "flag": "h", "properties": "i"}
NAMES |= {"reconsumed": "j", "unit": "k", "batch": "m"}
OLD_NAMES = {"group": "producerGroup", "topic": "topic", "queue": "queueId", "sys_flag": "sysFlag"}
OLD_NAMES |= {"born": "bornTimestamp", "flag": "flag", "properties": "properties", "reconsumed": "reconsumeTimes"}
GIVEN = {"group": "g", "topic": "orders", "queue": "2", "sys_flag": "5", "born": "1700000000000", "flag": "9"}
RANDOM = Random(1)
PROPERTIES = {"TRAN_MSG": "true", "UNIQ_KEY": "U1", "PGROUP": "g", "TAGS": "red"}


def half_message(request: Frame, born_host: bytes, terms: Terms) -> HalfMessage:
    return checked_send(request, Client(born_host, "client"), terms, RANDOM)


def send(body: bytes = b"body", code: int = RequestCode.SEND_MESSAGE_V2, **changed: str | None) -> Frame:
    names = NAMES if code == RequestCode.SEND_MESSAGE_V2 else OLD_NAMES
    fields = GIVEN | {"properties": packed(PROPERTIES)} | changed
    sent = {names[name]: value for name, value in fields.items() if value is not None}
    return Frame(code, 0, 1, sent, body=body)


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
def test_a_send_becomes_what_a_brokers_bridge_stores(code: int) -> None:
    given_properties = PROPERTIES | {"DELAY": "3", "TRANSACTION_CHECK_TIMES": "7", "POP_CK": "x", "own": "value"}
    found = half_message(send(code=code, properties=packed(given_properties)), HOST, TERMS)
    assert unpacked(found.properties.decode()) == PROPERTIES | {
        "own": "value",
        "__transactionId__": "U1",
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
    }
    assert (found.body, found.flag, found.sys_flag, found.born_ms) == (b"body", 9, 5 & ~0xC, 1700000000000)
    assert (found.topic, found.queue, found.group, found.uniq_key, found.born_host) == ("orders", 2, "g", "U1", HOST)


def test_a_message_without_an_id_or_a_queue_gets_one() -> None:
    found = half_message(send(properties="TRAN_MSG\x01TRUE", queue="-1"), HOST, TERMS)
    assert found.uniq_key is not None
    assert len(found.uniq_key) == 32
    assert found.group == "g"
    assert 0 <= found.queue < 4


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"properties": packed({"UNIQ_KEY": "U1"})}, AnswerCode.NO_PERMISSION),
        ({"properties": None}, AnswerCode.NO_PERMISSION),
        ({"batch": "true"}, AnswerCode.NO_PERMISSION),
        ({"unit": "true"}, AnswerCode.NO_PERMISSION),
        ({"reconsumed": "1", "properties": packed(PROPERTIES | {"DELAY": "1"})}, AnswerCode.NO_PERMISSION),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, AnswerCode.NO_PERMISSION),
        ({"topic": "rmq_sys_other"}, AnswerCode.NO_PERMISSION),
        ({"topic": "or ders"}, AnswerCode.INVALID_PARAMETER),
        ({"topic": "orders\n"}, AnswerCode.INVALID_PARAMETER),
        ({"topic": ""}, AnswerCode.INVALID_PARAMETER),
        ({"topic": "../../etc"}, AnswerCode.INVALID_PARAMETER),
        ({"topic": "o" * 128}, AnswerCode.MESSAGE_ILLEGAL),
        ({"topic": "others"}, AnswerCode.TOPIC_NOT_EXIST),
        ({"queue": "4"}, AnswerCode.INVALID_PARAMETER),
        ({"properties": packed(PROPERTIES | {"PGROUP": "g" * 256})}, AnswerCode.INVALID_PARAMETER),
        # its REAL_TOPIC would count: the last one does
        (
            {"group": "g\x02REAL_TOPIC\x01others", "properties": "TRAN_MSG\x01true\x02REAL_TOPIC\x01x"},
            AnswerCode.INVALID_PARAMETER,
        ),
        ({"properties": packed(PROPERTIES | {"long": "x" * 33000})}, AnswerCode.MESSAGE_ILLEGAL),
        ({"group": None}, AnswerCode.SYSTEM_ERROR),
        ({"born": "now"}, AnswerCode.SYSTEM_ERROR),
        ({"queue": "99999999999"}, AnswerCode.SYSTEM_ERROR),
        ({"flag": "1_0"}, AnswerCode.SYSTEM_ERROR),
    ],
    ids=lambda each: json.dumps(each)[:40],
)
def test_what_is_refused(changed: dict[str, Any], code: int) -> None:
    with pytest.raises(Refused) as refused:
        half_message(send(**changed), HOST, TERMS)
    assert refused.value.code == code
    assert refused.value.remark


def test_a_client_that_has_not_learned_of_fewer_queues_may_send_to_those_that_were() -> None:
    terms = TERMS._replace(known={"orders": Topic(8, 4)})
    assert half_message(send(queue="7"), HOST, terms).queue == 7
    assert all(half_message(send(queue="-1"), HOST, terms).queue < 4 for _ in range(50))
    with pytest.raises(Refused, match="illegal: 8 queues"):
        half_message(send(queue="8"), HOST, terms)


@pytest.mark.parametrize("body", [b"", b"x" * 1001])
def test_bodies_of_no_or_too_many_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        half_message(send(body), HOST, TERMS)
    assert refused.value.code == AnswerCode.MESSAGE_ILLEGAL


def test_transactions_can_be_rejected_and_topics_left_open() -> None:
    with pytest.raises(Refused, match=str(AnswerCode.NO_PERMISSION)):
        half_message(send(), HOST, TERMS._replace(rejects=True))
    assert half_message(send(topic="others"), HOST, TERMS._replace(topics=None)).topic == "others"


@given(st.text(max_size=60))
def test_properties_of_any_text(text: str) -> None:
    for name, value in unpacked(text).items():
        assert name
        assert value
        assert "\x02" not in name + value


# ---- ends ----

HALF = Half(5, 1000, 300, 1_000_000, 1_000_001, "orders", 2, "g", "U1", None)
RULES = RuleSettings()


def end(**changed: str | None) -> Frame:
    fields = {"producerGroup": "g", "tranStateTableOffset": "5", "commitLogOffset": "1000", "commitOrRollback": "8"}
    fields |= {"fromTransactionCheck": "false", "transactionId": "U1"}
    sent = {name: value for name, value in (fields | changed).items() if value is not None}
    return Frame(RequestCode.END_TRANSACTION, 2, 1, sent)


@pytest.mark.parametrize(("kind", "outcome"), [("8", "COMMIT"), ("12", "ROLLBACK"), ("0", None)])
def test_what_an_end_says(kind: str, outcome: str | None) -> None:
    asked = end_request(end(commitOrRollback=kind, fromTransactionCheck="true"))
    assert (asked.commit_or_rollback == NOT_TYPE) == (outcome is None)
    if outcome:
        assert end_of(asked, 7) == (outcome, True, "g", "U1", 7)


@pytest.mark.parametrize("kind", ["4", "-1", "16"])
def test_an_end_of_no_kind_is_refused(kind: str) -> None:
    with pytest.raises(Refused, match="commitOrRollback field wrong") as refused:
        end_request(end(commitOrRollback=kind))
    assert refused.value.code == AnswerCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("given_id", "kept"),
    [("U1", "U1"), (None, None), ("i" * 255, "i" * 255), ("i" * 256, None), ("U1\x02END_OUTCOME\x01COMMIT", None)],
)
def test_an_id_that_would_change_an_ops_other_properties_is_not_kept(given_id: str | None, kept: str | None) -> None:
    assert end_request(end(transactionId=given_id)).transaction_id == kept


@pytest.mark.parametrize(
    ("changed", "half", "code", "remark"),
    [
        ({}, None, AnswerCode.SYSTEM_ERROR, "Find prepared transaction message failed"),
        ({"producerGroup": "other"}, HALF, AnswerCode.SYSTEM_ERROR, "The producer group wrong"),
        ({"tranStateTableOffset": "6"}, HALF, AnswerCode.SYSTEM_ERROR, "The transaction state table offset wrong"),
    ],
)
def test_ends_that_a_broker_refuses(changed: dict[str, str | None], half: Half | None, code: int, remark: str) -> None:
    with pytest.raises(Refused) as refused:
        check_end(end_request(end(**changed)), half, 1_000_100, RULES)
    assert (refused.value.code, refused.value.remark) == (code, remark)


@pytest.mark.parametrize(
    ("immunity", "age_ms", "from_check", "late"),
    [
        (None, 10**9, "false", False),
        ("60", 60_000, "false", False),
        ("60", 60_001, "false", True),
        ("60", 60_001, "true", False),
        ("1", 5_000, "false", False),
        ("1", 6_001, "false", True),
        ("-1", 6_001, "false", True),
        ("soon", 6_000, "false", False),
        ("soon", 6_001, "false", True),
    ],
)
def test_an_end_after_the_messages_own_immunity_is_too_late(
    immunity: str | None, age_ms: int, from_check: str, late: bool
) -> None:
    half = Half(5, 1000, 300, 1_000_000, 1_000_001, "orders", 2, "g", "U1", immunity)
    asked = end_request(end(fromTransactionCheck=from_check))
    if late:
        with pytest.raises(Refused, match=str(AnswerCode.ILLEGAL_OPERATION)):
            check_end(asked, half, half.born_ms + age_ms, RULES)
    else:
        assert check_end(asked, half, half.born_ms + age_ms, RULES) is half


def test_a_topics_own_timeout_counts_for_ends_too() -> None:
    rules = RuleSettings(topics={"orders": RuleOverride(transaction_timeout=timedelta(seconds=60))})
    half = Half(5, 1000, 300, 1_000_000, 1_000_001, "orders", 2, "g", "U1", "1")
    assert check_end(end_request(end()), half, half.born_ms + 60_000, rules) is half
