"""A gateway's core played without a process: a log in memory, a clock that a test moves, clients that take frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any, NamedTuple

from halfop.gateway.core.accounts import PUB, Account, Entry
from halfop.gateway.core.accounts import TOPIC as TOPICS
from halfop.gateway.core.clients import Client
from halfop.gateway.core.core import Core
from halfop.gateway.core.effects import (
    AddTopic,
    Answer,
    AppendEnd,
    AppendHalf,
    Ask,
    CheckRequest,
    Delivery,
    Effect,
    Instant,
    Note,
)
from halfop.gateway.core.messages import (
    End,
    Ended,
    FoundRecords,
    Half,
    HalfMessage,
    Outcome,
    PulledRecords,
    QueueOffsets,
    State,
    Topic,
)
from halfop.gateway.core.reads import Description
from halfop.gateway.log.records import half_message
from halfop.rocketmq.frames import ONE_WAY, Frame, Splitter
from halfop.rocketmq.message import Place
from halfop.rocketmq.names import HALF_TOPIC, OP_TOPIC
from halfop.rocketmq.properties import packed
from halfop.rocketmq.requests import COMMIT_TYPE, NOT_TYPE, ROLLBACK_TYPE, EndTransaction, SendMessageV2
from halfop.rocketmq.store.consumequeue import Unit
from halfop.rocketmq.wire.remoting import VERSION, Credentials
from halfop.settings.model import Settings

from support.gateway.gateway_log import BORN_MS, CLIENT, HOST

GROUP, TOPIC = "pg", "orders"
BROKER = Description("gw", "halfop", "10.0.0.2:10911", "id", False, HOST)
_OP_BYTES = 200
_KINDS = {"COMMIT": COMMIT_TYPE, "ROLLBACK": ROLLBACK_TYPE, None: NOT_TYPE}


def account(key: str, *topics: str, secret: bytes = b"secret", actions: Iterable[str] = (PUB,)) -> Account:
    """An account that may do the actions on the topics, and nothing else."""
    return Account(key, secret, tuple(Entry(TOPICS, topic, False, frozenset(actions)) for topic in topics))


class MemoryLog:
    """A log in memory, which is durable up to where the test says."""

    def __init__(self) -> None:
        self.flushed_to = self.end = 0
        self.topics: dict[str, Topic] = {}
        self.halves: dict[int, Half] = {}
        self.ops: list[tuple[int, Outcome]] = []
        self.delivered: list[int] = []
        self._state, self._records = State(), dict[int, bytes]()
        self.searched_since_ms: int | None = None

    @property
    def unflushed(self) -> int:
        return self.end - self.flushed_to

    @property
    def open_halves(self) -> Mapping[int, Half]:
        return self._state.open

    def half_at(self, physical_offset: int) -> Half | None:
        half = self.halves.get(physical_offset)
        return half if half is not None and half.end <= self.flushed_to else None

    def record(self, physical_offset: int) -> bytes | None:
        return self._records.get(physical_offset) if self.half_at(physical_offset) else None

    def readable_ms(self) -> int:
        return BORN_MS

    def offsets(self, topic: str, queue: int) -> QueueOffsets:
        known = {HALF_TOPIC: len(self.halves), OP_TOPIC: len(self.ops)}
        return QueueOffsets(0, known.get(topic, 0))

    def offset_at(self, topic: str, queue: int, millis: int) -> int:
        return 0

    def pull(self, topic: str, queue: int, offset: int, count: int) -> PulledRecords:
        return PulledRecords([], offset)

    def units(self, topic: str, queue: int, offset: int, count: int) -> list[Unit]:
        return []

    def outcome(self, half: Half) -> Outcome | None:
        return self._state.outcome(half.queue_offset)

    def find(
        self, text: bytes, wanted: Callable[[bytes], bool], since_ms: int, until_ms: int, most: int
    ) -> FoundRecords:
        known = [record for at, record in self._records.items() if self.half_at(at) and text in record]
        return FoundRecords([each for each in known if wanted(each)][:most], self.searched_since_ms)

    def disk_used(self) -> float:
        return 0.25

    def append_half(self, given: HalfMessage) -> Half:
        message = half_message(given, HOST)
        place = Place(len(self.halves), self.end, message.size(), BORN_MS)
        of = given.topic, given.queue, given.group
        half = Half(*place, given.born_ms, *of, given.uniq_key, given.immunity, given.sender)
        self.halves[half.physical_offset] = half
        self._records[half.physical_offset] = message.packed(place)
        self._state.add(half)
        self.end = half.end
        return half

    def append_end(self, half: Half, end: End) -> Ended:
        fate = self._state.fate(half, end.outcome)
        if fate in ("ENDED", "OPPOSED"):
            if (fate, end.outcome) == ("ENDED", "COMMIT"):
                self.delivered.append(half.queue_offset)
            self.ops.append((half.queue_offset, end.outcome))
            self._state.end(half, end.outcome)
            self.end += _OP_BYTES
        return Ended(fate, self.end)

    def remove(self, half: Half) -> None:
        """Removes the half message and all before it, as files are removed that are too old."""
        self._state.remove_before(half.queue_offset + 1, half.end)


class Answered(NamedTuple):
    """An answer that a client got, and when by the steady clock."""

    client: Client
    frame: Frame
    at: float


class Game:
    """A core with its log, its clock, and the table of deliveries; what it sends is kept."""

    def __init__(self, settings: Settings | None = None, broker: Description = BROKER) -> None:
        self.log, self.table, self.requests = MemoryLog(), list[Delivery](), list[CheckRequest]()
        self.now = Instant(BORN_MS / 1000, 0.0)
        self.credentials: Credentials | None = None  # by which requests are signed
        self.answers, self.asked, self.effects = list[Answered](), list[Ask](), list[Effect]()
        self._settings, self._broker, self._opaques = settings or Settings(), broker, count(1)
        self.core = self._made()

    def _made(self) -> Core:
        core = Core(self.log, self._broker, self._settings, Random(1), self.now)
        self.do(core.tick(self.now))
        return core

    # ---- clock, disk and process ----

    def passes(self, seconds: float) -> None:
        self.now = Instant(self.now.wall + seconds, self.now.steady + seconds)

    def tick(self, seconds: float = 0.1) -> None:
        self.passes(seconds)
        self.do(self.core.tick(self.now))

    def flush(self, to: int | None = None) -> None:
        """Makes the log durable up to there, or all of it."""
        self.log.flushed_to = self.log.end if to is None else to
        self.do(self.core.flushed(self.log.flushed_to, self.now))

    def restart(self) -> None:
        """Ends the process, and begins another: log and tables stay, and it takes the requests that were not sent."""
        self.flush()
        self.core = self._made()
        self._take(self.requests)

    def _take(self, requests: Iterable[CheckRequest]) -> None:
        """Gives the core requests as they are read from the tables, with what was sent before."""
        sent = {row.request_id: row.at for row in self.table if row.outcome == "SENT"}
        before = {(each.broker_name, each.physical_offset): sent[each.request_id] for each in self.sent_requests()}
        left = [each for each in requests if each.request_id not in sent]
        self.do(self.core.want(left, before, self.now))

    def sent_requests(self) -> list[CheckRequest]:
        """The requests that were sent, in the order of their questions."""
        known = {each.request_id: each for each in self.requests}
        return [known[row.request_id] for row in self.table if row.outcome == "SENT"]

    # ---- what a producer does ----

    def client(self, *groups: str, host: bytes = CLIENT) -> Client:
        """A client that has connected, and has said that it is of these groups."""
        client = Client(host, "client")
        for group in groups:
            self.core.producers.add(group, client)
        return client

    def sends(self, client: Client, one_way: bool = False, **properties: Any) -> Frame:
        """A send; returns the request, which is answered after a flush."""
        text = packed({"TRAN_MSG": "true", "PGROUP": GROUP, **properties})
        header = SendMessageV2(GROUP, TOPIC, 0, 4, BORN_MS, 0, properties=text)
        return self.asks(client, header, b"body", one_way)

    def half(self, client: Client, **properties: Any) -> Half:
        """A durable half message."""
        self.sends(client, **properties)
        self.flush()
        return next(reversed(self.log.halves.values()))

    def ends(self, client: Client, half: Half, outcome: Outcome | None, one_way: bool = False, **changed: Any) -> Frame:
        """An end of a half message; `changed` fields of the request."""
        fields = {"from_transaction_check": False, "transaction_id": half.uniq_key, "topic": half.topic, **changed}
        group, place = fields.pop("group", half.group), fields.pop("place", half.physical_offset)
        offset = fields.pop("offset", half.queue_offset)
        return self.asks(client, EndTransaction(group, offset, place, _KINDS[outcome], **fields), b"", one_way)

    def asks(self, client: Client, header: Any, body: bytes = b"", one_way: bool = False) -> Frame:
        """A request of a client; returns it."""
        fields = header.fields() if self.credentials is None else self.credentials.signed(header.fields(), body)
        flag = ONE_WAY if one_way else 0
        request = Frame(header.code, flag, next(self._opaques), fields, body=body, version=VERSION)
        self.do(self.core.request(client, request, self.now))
        return request

    def answer_to(self, request: Frame) -> Frame | None:
        """The answer that came; None if none did. There is never a second one."""
        found = [each.frame for each in self.answers if each.frame.opaque == request.opaque]
        assert len(found) <= 1
        return found[0] if found else None

    # ---- what runs do ----

    def wants(self, half: Half, request_id: str, ago: float = 0.0, **changed: Any) -> CheckRequest:
        """A question that a run has asked for so many seconds ago, as the gateway takes it now."""
        at = self.now.at - timedelta(seconds=ago)
        places = half.queue_offset, half.physical_offset
        request = CheckRequest(request_id, BROKER.name, half.group, half.topic, *places, 1, at)._replace(**changed)
        self.requests.append(request)
        self._take([request])
        return request

    def outcomes(self, request: CheckRequest) -> list[str]:
        return [row.outcome for row in self.table if row.request_id == request.request_id]

    # ---- what the server does ----

    def do(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, AppendHalf):
                self.do(self.core.half_stored(effect, self.log.append_half(effect.message), self.now))
            elif isinstance(effect, AppendEnd):
                self.do(self.core.end_stored(effect, self.log.append_end(effect.half, effect.end), self.now))
            elif isinstance(effect, AddTopic):
                self.log.topics[effect.name] = effect.topic
            elif isinstance(effect, Note):
                self.table.append(effect.row)
            elif isinstance(effect, Ask):
                self.asked.append(effect)
            elif isinstance(effect, Answer):
                (frame,) = Splitter(1 << 20).feed(effect.frame)
                self.answers.append(Answered(effect.client, frame, self.now.steady))
            else:
                self.effects.append(effect)
