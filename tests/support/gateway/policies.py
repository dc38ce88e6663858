"""Users with generated policies of ACL 2.0, and the requests that a broker allows them or does not.

`data/acl` has what a real broker decided about the first of them, and how mqadmin prints them: the broker's suite
compares it, and more of them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from halfop.rocketmq.properties import packed
from halfop.rocketmq.requests import (
    ROLLBACK_TYPE,
    EndTransaction,
    GetMaxOffset,
    GetMinOffset,
    GetTopicConfig,
    Header,
    PullMessage,
    QueryConsumeQueue,
    QueryMessage,
    SearchOffset,
    SendMessageV2,
)
from halfop.rocketmq.tool_requests import GetProducerConnectionList, GetTopicStatsInfo

from support.places import DATA

RECORDED = DATA / "acl"
CLUSTER = "DefaultCluster"
TOPICS = ("orders", "orders-eu", "payments")
SOURCES = ("127.0.0.1", "127.0.0.9")
_RESOURCES = [
    *("*", "Topic:*", "Topic:o*", "Topic:orders*", "Topic:orders", "Topic:orders", "Topic:orders-eu", "Topic:pay*"),
    *("Topic:payments", "Topic:payments", "Group:*", "Group:read*", "Group:readers", "Group:others", "Cluster:*"),
    *(f"Cluster:{CLUSTER}", "Namespace:*", "Topic:ord*rs", "Topic:or*ers*"),
]
_ACTIONS = ["Pub", "Pub", "Sub", "Sub", "Get", "Get", "List", "Create", "Update", "Delete"]
_RANGES = ["127.0.0.1", "127.0.0.9", "127.0.0.0/29", "127.0.0.9/30", "127.0.0.0/24", "10.0.0.0/8", "0.0.0.0/0"]
_RANGES += ["::/0", "::1", "::1/128"]


class User(NamedTuple):
    """A user as AUTH_CREATE_USER has it, with policies as AUTH_CREATE_ACL has them."""

    name: str
    secret: str
    kind: str
    status: str
    policies: list[dict[str, Any]]


def generated(count: int) -> list[User]:
    """Returns so many users; they are always the same."""
    return [_user(n, Random(n)) for n in range(count)]


def _user(number: int, random: Random) -> User:
    kind = random.choices(["Normal", "Super"], [20, 1])[0]
    status = random.choices(["enable", "disable"], [20, 1])[0]
    policies = []
    for name in random.choice([["Custom"], ["Custom"], ["Custom", "Default"], ["Default"]]):
        entries = [_entry(random) for _ in range(random.randint(1, 5))]
        policies.append({"policyType": name, "entries": entries})
    secret = "".join(random.choices("abcXYZ0189-_/+=", k=12))
    return User(f"user-{number:03}", secret, kind, status, policies)


def _entry(random: Random) -> dict[str, Any]:
    actions = random.choices([["All"], random.sample(_ACTIONS, random.randint(1, 5))], [1, 3])[0]
    return {
        "resource": random.choice(_RESOURCES),
        "actions": list(dict.fromkeys(actions)),
        "sourceIps": random.choice([None, None, random.sample(_RANGES, random.randint(1, 2))]),
        "decision": random.choices(["Allow", "Deny"], [2, 1])[0],
    }


class Request(NamedTuple):
    """A request, its name and its body."""

    name: str
    header: Header
    body: bytes = b""


def requests(end_of: Callable[[str], EndTransaction]) -> list[Request]:
    """Returns what each user is to ask; `end_of` gives an end of a half message of a topic."""
    asked = [Request("clients", GetProducerConnectionList("producers"))]
    for topic in TOPICS:
        asked += [
            Request(f"send {topic}", send(topic), b"body"),
            Request(f"end {topic}", end_of(topic)),
            *(Request(f"pull {topic} {each}", PullMessage(topic, 0, 0, 1, 4, each)) for each in ("readers", "others")),
            Request(f"units {topic}", QueryConsumeQueue(topic, 0, 0, 1)),
            Request(f"query {topic}", QueryMessage(topic, "key", 1, 0, 1 << 50)),
            Request(f"first {topic}", GetMinOffset(topic, 0)),
            Request(f"next {topic}", GetMaxOffset(topic, 0)),
            Request(f"at {topic}", SearchOffset(topic, 0, 0)),
            Request(f"statistics {topic}", GetTopicStatsInfo(topic)),
            Request(f"configuration {topic}", GetTopicConfig(topic)),
        ]
    return asked


def send(topic: str) -> SendMessageV2:
    """A send of a half message."""
    text = packed({"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": f"uniq-{topic}"})
    return SendMessageV2("producers", topic, 0, 4, 1_700_000_000_000, 0, properties=text)


def end(topic: str, queue_offset: int, place: int) -> EndTransaction:
    """A rollback of a half message."""
    return EndTransaction("producers", queue_offset, place, ROLLBACK_TYPE, transaction_id=f"uniq-{topic}", topic=topic)
