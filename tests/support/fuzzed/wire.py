"""Frames as both ends of a connection read them: requests to a gateway, answers of servers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson
from halfop.gateway.core.accounts import ANY, PUB, SUB, TOPIC, Account, Accounts, Entry, ordered
from halfop.gateway.core.effects import Read, RefusedRequest
from halfop.gateway.core.refusals import Refused
from halfop.gateway.journal import Refusals
from halfop.rocketmq import requests as r
from halfop.rocketmq import tool_requests
from halfop.rocketmq.batches import HALF
from halfop.rocketmq.frames import (
    ANSWER,
    BINARY,
    JSON,
    MALFORMED,
    ONE_WAY,
    BadFrame,
    Frame,
    Splitter,
    read_json,
    signature,
)
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC, RequestCode
from halfop.rocketmq.requests import BadHeader, Header
from halfop.rocketmq.wire import name_servers
from halfop.rocketmq.wire.client import Broker, prepared_offsets, query_finals, stored_at
from halfop.rocketmq.wire.pull import Chunk, Hole, QueueRange, checked, pull
from halfop.rocketmq.wire.remote import Remote
from halfop.rocketmq.wire.remoting import ConnectionLost, Corrupt, Credentials, RemotingError, RemotingSettings

from support.brokers.store_writer import final, half
from support.fuzzed.target import Target
from support.gateway.hostile_frames import READS, end_fields, framed, send_fields
from support.gateway.played import GROUP, Game

MOST = 1 << 16
_HEADERS = [kind for each in (r, tool_requests) for kind in vars(each).values() if isinstance(kind, type)]
_BY_CODE: dict[int, list[type[Header]]] = {}
for _kind in _HEADERS:
    if issubclass(_kind, Header) and hasattr(_kind, "code"):
        _BY_CODE.setdefault(_kind.code, []).append(_kind)


# ---- frames ----


def frames(content: bytes) -> None:
    """A stream is the same frames however it is cut; a frame that was read is written and read as the same."""
    step, stream = 1 + content[0] % 64 if content else 1, content[1:]
    whole = Splitter(MOST)
    found = whole.feed(stream)
    parts = Splitter(MOST)
    assert [each for at in range(0, len(stream), step) for each in parts.feed(stream[at : at + step])] == found
    assert parts.held == whole.held < MOST + 8
    for frame in found:
        _comes_back(frame)


def _comes_back(frame: Frame) -> None:
    (again,) = Splitter(4 * MOST).feed(frame.packed())
    assert again._replace(language=frame.language) == frame
    signature(b"secret", frame.fields, frame.body, frame.version)
    for kind in _BY_CODE.get(frame.code, ()):
        with suppress(BadHeader):
            header = kind.read(frame.fields)
            assert kind.read(header.fields()) == header
    with suppress(*MALFORMED):
        read_json(frame.body)


def _requests() -> Iterator[Frame]:
    every: dict[int, Mapping[str, str]] = {**READS}
    every |= {code: dict(send_fields(code, "U")) for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)}
    heartbeat = b'{"clientID":"c","producerDataSet":[{"groupName":"g"}],"consumerDataSet":[]}'
    for n, (code, fields) in enumerate(every.items()):
        body = heartbeat if code == RequestCode.HEART_BEAT else b"body"
        yield Frame(code, ONE_WAY * (n % 2), n, {**fields}, body=body, form=n % 2)
    for kind in (8, 12, 0):
        yield Frame(RequestCode.END_TRANSACTION, 0, kind, dict(end_fields(GROUP, 0, 0, kind)), form=BINARY)


def _streams() -> Iterator[bytes]:
    for n, each in enumerate(_requests()):
        yield bytes([n]) + each.packed()
    yield b"\x07" + b"".join(each.packed() for each in _requests())


# ---- requests to a gateway ----

_AFTER_FRAME, _AFTER_HEADER = b"\xff\x01\xff", b"\xfe\x02\xfe"


def requests(content: bytes) -> None:
    """The core never fails; a request is answered at most once, a one-way one never; nothing is delivered twice."""
    game, is_signed = _game(), content[:1] == b"\1"
    client, asked, refusals = game.client(GROUP), Counter[int](), Refusals()
    for sent in Splitter(MOST).feed(_framed(content[1:])):
        frame = sent
        if is_signed:
            game.core.accounts = _ACCOUNTS
            frame = sent._replace(fields=_KEYS.signed(sent.fields, sent.body))
        if not frame.flag & (ANSWER | ONE_WAY):
            asked[frame.opaque] += 1
        game.do(game.core.request(client, frame, game.now))
        game.flush()
        game.tick()
    answered = Counter(each.frame.opaque for each in game.answers)
    for effect in game.effects:
        if isinstance(effect, Read):
            with suppress(Refused):
                answered.update(each.opaque for each in Splitter(1 << 24).feed(effect.read()))
        elif isinstance(effect, RefusedRequest):
            refusals.put(effect, game.now)
    assert not answered - asked, "an answer to nothing, or a second one"
    assert sorted(game.log.delivered) == sorted(set(game.log.delivered)), "delivered twice"


def _framed(content: bytes) -> bytes:
    """Frames with the lengths that they have, so that a fuzzer may insert bytes: form, header and body of each."""
    parts = [each.partition(_AFTER_HEADER) for each in content.split(_AFTER_FRAME) if each]
    return b"".join(framed(header[1:], header[0] & 1 if header else JSON, body) for header, _, body in parts)


def _unframed(frame: Frame) -> bytes:
    begin, size = frame.packed(), len(frame.body)
    header, body = begin[8 : len(begin) - size], begin[len(begin) - size :]
    return bytes([frame.form]) + header + _AFTER_HEADER + body


def _unframed_requests() -> Iterator[bytes]:
    for n, each in enumerate(_requests()):
        yield bytes([n % 2]) + _unframed(each)
    yield b"\0" + _AFTER_FRAME.join(map(_unframed, _requests()))


def _game() -> Game:
    """A gateway with a message that has ended, and an open one."""
    game = Game()
    client = game.client(GROUP)
    game.ends(client, game.half(client, UNIQ_KEY="U"), "COMMIT")
    game.half(client, UNIQ_KEY="V")
    game.answers.clear()
    return game


_KEYS = Credentials("access", "secret")
_ENTRIES = ordered([Entry(ANY, "", True, frozenset({PUB})), Entry(TOPIC, "t", False, frozenset({SUB}))])
_ACCOUNTS = Accounts({"access": Account("access", b"secret", _ENTRIES)})


# ---- answers of servers ----


class Answering(Remote):
    """A server that answers each request by the next of some frames."""

    def __init__(self, frames: Iterable[Frame]) -> None:
        super().__init__("broker:10911", RemotingSettings(give_up_after=0.0, in_flight=1))
        self._frames = deque(frames)

    def _attempt(self, window: Any) -> Frame:
        if not self._frames:
            raise ConnectionLost(f"{self.address} closed the connection")
        return self._frames.popleft()


def answers(content: bytes) -> None:
    """Whatever a server answers, the client gets values of their types, or a RemotingError."""
    broker = Broker("broker:10911", RemotingSettings())
    broker.remote = Answering(map(_drawn, content[1:].split(_AFTER_FRAME)))
    _ASKS[content[0] % len(_ASKS) if content else 0](broker)


def _drawn(part: bytes) -> Frame:
    """The answer's code, the number in its fields, its remark, its body."""
    head, _, body = part.partition(_AFTER_HEADER)
    code, remark = (head[0], head[-1]) if head else (0, 0)
    number = head[1:-1].decode(errors="replace")
    fields = {"offset": number, "nextBeginOffset": number} if number else {}
    return Frame(code, ANSWER, 1, fields, _REMARKS[remark % len(_REMARKS)], body)


_REMARKS = (
    "",
    "can not find message by the offset",
    "store getMessage return null",
    "NoSuchElementException",
    "\x1b[2J",
)


def _pulled(broker: Broker) -> None:
    asked = QueueRange(HALF_TOPIC, 0, 2, 9)
    next_offset = asked.start
    for piece in pull(broker, asked):
        assert next_offset == piece.first < piece.next <= asked.end
        next_offset = piece.next
        if isinstance(piece, Chunk):
            try:
                records = checked("broker:10911", asked, piece, HALF)
            except Corrupt:
                continue
            assert len(records) <= piece.next - piece.first
        else:
            assert isinstance(piece, Hole)
    assert next_offset == asked.end


def _looked_up(broker: Broker) -> None:
    list(pull(broker, QueueRange(OP_TOPIC, 0, 0, 3)))


def _topics(broker: Broker) -> None:
    assert all(type(name) is str and type(number) is int for name, number in broker.topics().items())


def _brokers(broker: Broker) -> None:
    for each in name_servers._brokers_at(broker.remote):
        assert all(type(text) is str for text in (each.name, each.cluster, each.address))


def _finals(broker: Broker) -> None:
    request = query_finals("orders", f"{1:032X}")
    found = prepared_offsets(broker, request, broker.remote.answer(request))
    assert all(type(each) is int for each in found)


def _stored(broker: Broker) -> None:
    found = stored_at(broker, 100)
    assert found is None or type(found.topic) is str


def _offsets(broker: Broker) -> None:
    assert all(-(2**63) <= each < 2**63 for each in broker.min_offsets([("t", 0), ("t", 1)]))
    broker.check_offset("t", 0)


def _said(broker: Broker) -> None:
    broker.role()
    assert type(broker.log_end().end) is int
    assert type(broker.clock().shown) is int


_ASKS: Sequence[Callable[[Broker], None]] = (
    *(_pulled, _looked_up, _topics, _brokers, _finals, _stored, _offsets, _said),
)


def _answered(ask: Callable[[Broker], None], *found: bytes) -> bytes:
    return bytes([_ASKS.index(ask)]) + _AFTER_FRAME.join(found)


def _sent(code: int = 0, body: bytes = b"", remark: int = 0, number: object = "") -> bytes:
    return bytes([code]) + str(number).encode() + bytes([remark]) + _AFTER_HEADER + body


def _some_answers() -> Iterator[bytes]:
    ends, records = (_sent(number=0), _sent(number=9)), [half(n, queue_offset=n).at(100) for n in range(2, 9)]
    yield _answered(_pulled, *ends, _sent(body=b"".join(records), number=9))
    yield _answered(_pulled, *ends, _sent(body=b"".join(records[1:3]), number=5), _sent(20, number=9))
    index = orjson.dumps({"queueData": [{"physicOffset": 100}] * 3})
    views = [_sent(body=half(n, queue_offset=n).at(100)) for n in range(2)]
    yield _answered(_looked_up, *ends, _sent(17), _sent(body=index), *views, _sent(1, remark=1))
    yield _answered(_topics, _sent(body=b'{"topicConfigTable":{"t":{"readQueueNums":4}}}'))
    table = b'{"brokerAddrTable":{"b":{"cluster":"c","brokerAddrs":{0:"h:1",1:"h:2"}}}}'
    yield _answered(_brokers, _sent(body=table))
    yield _answered(_finals, _sent(body=final(1, 100).at(500)))
    yield _answered(_stored, _sent(body=half(1).at(100)))
    yield _answered(_offsets, _sent(number=1), _sent(number=2), _sent(number=3))
    about = {"runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]", "bootTimestamp": "1750000000000"}
    about |= {"commitLogMaxOffset": "9", "dispatchBehindBytes": "0"}
    said = _sent(body=orjson.dumps({"table": about}))
    yield _answered(_said, _sent(body=b"brokerName=b\nbrokerRole=SLAVE\n"), said, said)


TARGETS = (
    Target("frames", frames, _streams, (BadFrame,)),
    Target("requests", requests, _unframed_requests, (BadFrame,)),
    Target("answers", answers, _some_answers, (RemotingError,)),
)
