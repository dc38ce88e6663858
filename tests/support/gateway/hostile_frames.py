"""Frames of every request to a gateway, mutated: drawn, and read as a gateway reads them."""

from __future__ import annotations

import json
import random
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from halfop.rocketmq.frames import BINARY, FRAME_ROOM, JSON, MAX_HEADER, BadFrame, Frame, Splitter
from halfop.rocketmq.names import RequestCode
from halfop.rocketmq.requests import COMMIT_TYPE, NOT_TYPE, ROLLBACK_TYPE

_MAX_FRAME = (4 << 20) + FRAME_ROOM  # of a gateway with its default settings
_WRONG_PREFIXES = ((0x7FFFFFFF, 100), (0xFFFFFFFF, 4), (200, 197), (100_000, 70_000), (3, 0), (0, 0xFFFFFF))
_PACKED = "TRAN_MSG\x01true\x02UNIQ_KEY\x01{}\x02PGROUP\x01g\x02KEYS\x01k\x02"
_ODD: tuple[Any, ...] = (
    *("-1", "0", "1", "7", "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
    *("9" * 30, "1e9", "0x10", "", " ", "x" * 300, "y" * 40_000, "\x00", "a\x01b\x02c", "../../../../etc/passwd", "/"),
    *(
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "%RETRY%g",
        "TBW102",
        "\u0663",
        "\uff11",
        "\U0001f600",
    ),
    *(None, True, 0, -1, 1.5, 10**25, ["x"], {"a": {"b": []}}, [[[[[]]]]]),
)


@dataclass
class Draft:
    """A request before its header is written; `fields` may have a name twice."""

    code: Any
    fields: list[tuple[str, Any]]
    body: bytes
    opaque: Any
    flag: Any = 0


# ---- frames ----


class Frames:
    """Draws frames. `aims` are half messages of others: queue offset, place and group."""

    def __init__(self, draw: random.Random, aims: Sequence[tuple[int, int, str]]) -> None:
        self._draw, self._aims = draw, aims
        self.own: deque[tuple[int, int]] = deque()

    def mutated(self, opaque: int) -> bytes:
        """A request with some of it changed, whose prefix says how long it is."""
        draw = self._draw
        draft, form = self._draft(opaque), draw.choice((JSON, BINARY))
        for _ in range(draw.randrange(3)):
            draw.choice(_OF_DRAFTS)(draw, draft)
        header = (_binary if form == BINARY else as_json)(draft)
        if draw.random() < 0.3:
            for _ in range(draw.randrange(1, 4)):
                header = _bytes_mutated(draw, header)
        if draw.random() < 0.02:
            form = draw.randrange(256)
        return framed(header[:MAX_HEADER], form, draft.body)

    def wrong_prefix(self) -> bytes:
        return struct.pack(">II", *self._draw.choice(_WRONG_PREFIXES)) + b"x" * 300

    def _draft(self, opaque: int) -> Draft:
        draw = self._draw
        code = draw.choice((*READS, *_WRITES, draw.randrange(400)))
        if code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            return Draft(code, send_fields(code, f"H{opaque}"), b"hostile", opaque)
        if code == RequestCode.END_TRANSACTION:
            return Draft(code, self._end(), b"", opaque)
        heartbeat = b'{"clientID":"c","producerDataSet":[{"groupName":"g"}],"consumerDataSet":[]}'
        return Draft(
            code, list(READS.get(code, {}).items()), heartbeat if code == RequestCode.HEART_BEAT else b"", opaque
        )

    def _end(self) -> list[tuple[str, Any]]:
        """An end of a message of its own, or of another's."""
        draw, group = self._draw, "g"
        if self._aims and (draw.random() < 0.5 or not self.own):
            offset, place, owner = draw.choice(self._aims)
            group = draw.choice(("g", owner.upper()))  # from which no mutation makes the owner
        else:
            offset, place = draw.choice(self.own) if self.own else (0, 0)
        kind = draw.choice((COMMIT_TYPE, ROLLBACK_TYPE, NOT_TYPE))
        return [*end_fields(group, offset, place, kind), ("fromTransactionCheck", draw.choice(("true", "false")))]


_PULL = {"consumerGroup": "c", "topic": "t", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4"}
_QUEUE = {"topic": "t", "queueId": "0"}
READS: dict[int, dict[str, str]] = {
    RequestCode.PULL_MESSAGE: _PULL | {"subscription": "*", "commitOffset": "0", "suspendTimeoutMillis": "0"},
    RequestCode.QUERY_MESSAGE: {"topic": "t", "key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "1"},
    RequestCode.QUERY_CONSUMER_OFFSET: _QUEUE | {"consumerGroup": "c"},
    RequestCode.GET_ALL_TOPIC_CONFIG: {},
    RequestCode.GET_BROKER_CONFIG: {},
    RequestCode.GET_BROKER_RUNTIME_INFO: {},
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _QUEUE | {"timestamp": "1"},
    RequestCode.GET_MAX_OFFSET: _QUEUE,
    RequestCode.GET_MIN_OFFSET: _QUEUE,
    RequestCode.VIEW_MESSAGE_BY_ID: {"offset": "0"},
    RequestCode.HEART_BEAT: {},
    RequestCode.UNREGISTER_CLIENT: {"clientID": "c", "producerGroup": "g"},
    RequestCode.CHECK_CLIENT_CONFIG: {},
    RequestCode.GET_ROUTEINFO_BY_TOPIC: {"topic": "t"},
    RequestCode.GET_BROKER_CLUSTER_INFO: {},
    RequestCode.QUERY_CONSUME_QUEUE: _QUEUE | {"index": "0", "count": "9"},
}
_WRITES = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.END_TRANSACTION,
) * 2


def send_fields(code: int, uniq: str) -> list[tuple[str, Any]]:
    values = ("g", "t", "TBW102", "4", "0", "4", "1", "0", _PACKED.format(uniq), "0", "false")
    long = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp")
    more = ("flag", "properties", "reconsumeTimes", "unitMode")
    return list(zip((*long, *more) if code == RequestCode.SEND_MESSAGE else "abcdefghijk", values, strict=True))


def end_fields(group: str, offset: int, place: int, kind: int) -> list[tuple[str, Any]]:
    fields = {"producerGroup": group, "tranStateTableOffset": str(offset), "commitLogOffset": str(place)}
    return list((fields | {"commitOrRollback": str(kind), "msgId": "U", "transactionId": "U"}).items())


def framed(header: bytes, form: int, body: bytes) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), form << 24 | len(header)) + header + body


def as_json(draft: Draft) -> bytes:
    fields = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in draft.fields)
    top = {"code": draft.code, "flag": draft.flag, "language": "JAVA", "opaque": draft.opaque, "version": 493}
    return (json.dumps(top)[:-1] + ',"extFields":{' + fields + "}}").encode()


def _binary(draft: Draft) -> bytes:
    pairs = b""
    for name, value in draft.fields:
        said = str(value).encode()
        pairs += struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(said)) + said
    numbers = [each if isinstance(each, int) else 0 for each in (draft.code, draft.opaque, draft.flag)]
    code, opaque, flag = (each % 2**width for each, width in zip(numbers, (16, 32, 32), strict=True))
    return struct.pack(">HbHIIi", code, 0, 493, opaque, flag, 0) + struct.pack(">i", len(pairs)) + pairs


# ---- mutations ----


def _another_value(draw: random.Random, draft: Draft) -> None:
    if draft.fields:
        at = draw.randrange(len(draft.fields))
        draft.fields[at] = (draft.fields[at][0], draw.choice(_ODD))


def _no_field(draw: random.Random, draft: Draft) -> None:
    if draft.fields:
        del draft.fields[draw.randrange(len(draft.fields))]


def _a_field_twice(draw: random.Random, draft: Draft) -> None:
    if draft.fields:
        draft.fields.append((draw.choice(draft.fields)[0], draw.choice(_ODD)))


def _more_fields(draw: random.Random, draft: Draft) -> None:
    draft.fields += [
        (draw.choice(("", "x", "a", "topic", "\u0000", "n" * 500)), "v") for _ in range(draw.randrange(60))
    ]


def _another_head(draw: random.Random, draft: Draft) -> None:
    name = draw.choice(("code", "flag", "opaque"))
    setattr(draft, name, draw.choice((*_ODD[:12], None, -1, 1, 2, 3, 2**31 - 1, 2**31, 2**63, 2**64, -(2**63), [], {})))


def _another_body(draw: random.Random, draft: Draft) -> None:
    deep = draw.choice((2, 100, 900, 1_020, 5_000))
    nested = b"[" * deep + b"]" * deep
    choices = (
        *(b"", b"\xff\xfe", b"null", b"[]", b"7", nested, b"x" * 70_000, _bytes_mutated(draw, draft.body)),
        *(b'{"clientID":%s}' % nested, b'{"producerDataSet":%s}' % nested, b'{"producerDataSet":{"a":1}}'),
        *(b'{"producerDataSet":[{"groupName":%s}]}' % nested, b'{"producerDataSet":[{"groupName":"a/../b"}, 7]}'),
        b'{"producerDataSet":[%s]}' % b",".join(b'{"groupName":"g%d"}' % n for n in range(2_000)),
    )
    draft.body = draw.choice(choices)


_OF_DRAFTS: tuple[Callable[[random.Random, Draft], None], ...] = (
    *(_another_value, _another_value, _no_field, _a_field_twice, _more_fields, _another_head, _another_body),
)


def _bytes_mutated(draw: random.Random, data: bytes) -> bytes:
    """Some bytes of it changed, cut, doubled, or made a length."""
    found, at = bytearray(data or b"x"), draw.randrange(len(data) or 1)
    how = draw.randrange(6)
    if how == 0:
        found[at] = draw.randrange(256)
    elif how == 1:
        del found[at : at + draw.randrange(1, 9)]
    elif how == 2:
        found[at:at] = found[at : at + draw.randrange(1, 40)]
    elif how == 3:
        found[at : at + 4] = struct.pack(">i", draw.choice((-1, 0, 1, 2**31 - 1, -(2**31), 65_536)))
    elif how == 4:
        found[at:at] = draw.choice((b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\x00"))
    else:
        found[at:at] = draw.choice((b"[", b'{"a":')) * draw.choice((1, 1_100))
    return bytes(found)


def read(frame: bytes) -> Frame | None:
    """The request, None if a gateway cannot read the frame."""
    try:
        (found,) = Splitter(_MAX_FRAME).feed(frame)
    except BadFrame:
        return None
    return found
