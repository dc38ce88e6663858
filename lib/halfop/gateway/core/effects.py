"""Input and output of the gateway's core: instants, the log and rows go in, effects come out.

An effect is something that the server is to do, in the order in which the core returns them. The core itself does
nothing: it has no clock, thread, socket, file or lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import NamedTuple, Protocol

from halfop.gateway.core.clients import Client
from halfop.gateway.core.messages import (
    End,
    FoundRecords,
    Half,
    HalfMessage,
    Outcome,
    PulledRecords,
    QueueOffsets,
    Topic,
)
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.store.consumequeue import Unit


class Instant(NamedTuple):
    """A moment by two clocks: `wall` has seconds since 1970, `steady` seconds that nobody sets back."""

    wall: float
    steady: float

    @property
    def ms(self) -> int:
        return int(self.wall * 1000)

    @property
    def at(self) -> datetime:
        """The moment as tables have it."""
        return datetime.fromtimestamp(self.wall, timezone.utc)


class LogView(Protocol):
    """The log, as the core reads it. `open_halves` has those that are not durable yet, too; all else is durable."""

    @property
    def flushed_to(self) -> int: ...

    @property
    def unflushed(self) -> int: ...

    @property
    def open_halves(self) -> Mapping[int, Half]: ...

    @property
    def topics(self) -> Mapping[str, Topic]: ...

    def half_at(self, physical_offset: int) -> Half | None: ...

    def record(self, physical_offset: int) -> bytes | None: ...

    def outcome(self, half: Half) -> Outcome | None: ...

    def readable_ms(self) -> int: ...

    def offsets(self, topic: str, queue: int) -> QueueOffsets: ...

    def offset_at(self, topic: str, queue: int, millis: int) -> int: ...

    def pull(self, topic: str, queue: int, offset: int, count: int) -> PulledRecords: ...

    def units(self, topic: str, queue: int, offset: int, count: int) -> list[Unit]: ...

    def find(
        self, text: bytes, wanted: Callable[[bytes], bool], since_ms: int, until_ms: int, most: int
    ) -> FoundRecords: ...

    def disk_used(self) -> float: ...


# the upper bounds of a histogram, in seconds
BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0, 10.0)


_WRITTEN = ("_ENDED", "_OPPOSED")  # ends with an op message
_MOST_KINDS = 200  # of refusals: a client can name any request


class Counts:
    """Counts since the start, which only rise, and how long answers have waited for the disk."""

    def __init__(self) -> None:
        self.sent = self.traces = self.given_up = self.connections_refused = self.bad_frames = 0
        self.ended: Counter[str] = Counter()
        self._refused: Counter[tuple[int | None, int]] = Counter()
        self.questions: Counter[str] = Counter()
        self.within, self.seconds = [0] * (len(BOUNDS) + 1), 0.0

    @property
    def refused(self) -> Mapping[tuple[int | None, int], int]:
        """Refused requests by their code and the answer's; of too many kinds the request is None."""
        return self._refused

    @property
    def stored(self) -> int:
        """Messages that were stored: half messages, op messages, and final ones."""
        ops = sum(number for end, number in self.ended.items() if end.endswith(_WRITTEN))
        return self.sent + ops + self.ended["COMMIT_ENDED"]

    def refuse(self, request: int, code: int) -> None:
        """Counts a refused request."""
        is_known = (request, code) in self._refused or len(self._refused) < _MOST_KINDS
        self._refused[request if is_known else None, code] += 1

    def waited(self, seconds: float) -> None:
        """Counts an answer that waited so long for the disk."""
        self.within[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds


# ---- rows ----


class CheckRequest(NamedTuple):
    """A row of check_requests: a question that a run has asked for."""

    request_id: str
    broker_name: str
    group: str
    topic: str
    queue_offset: int
    physical_offset: int
    run_id: int
    requested_at: datetime


class Delivery(NamedTuple):
    """A row of check_deliveries."""

    request_id: str
    broker_name: str
    producer_group: str
    outcome: str
    at: datetime
    answered_after: int | None = None
    client: str | None = None
    remark: str | None = None


# ---- effects ----


class Answer(NamedTuple):
    """Sends the frame of an answer."""

    client: Client
    frame: bytes


class Ask(NamedTuple):
    """Sends the frame of a question about a half message."""

    client: Client
    half: Half
    frame: bytes


class AppendHalf(NamedTuple):
    """Appends a half message to the log; `Core.half_stored` gets its place."""

    message: HalfMessage
    client: Client
    request: Frame


class AppendEnd(NamedTuple):
    """Ends a half message in the log; `Core.end_stored` gets what became of that."""

    half: Half
    end: End
    client: Client
    request: Frame


class AddTopic(NamedTuple):
    """Adds a topic to the log's table."""

    name: str
    topic: Topic


class Note(NamedTuple):
    """Adds a row to check_deliveries."""

    row: Delivery


class RefusedRequest(NamedTuple):
    """Logs that a request was refused. `is_audited`: it was an END_TRANSACTION, or administration.

    `account`: the access key of the one that has signed it.
    """

    client: Client
    request: Frame
    code: int
    remark: str
    is_audited: bool
    account: str | None


class EndTaken(NamedTuple):
    """Adds to the audit trail that an END_TRANSACTION was taken."""

    client: Client
    half: Half
    outcome: str
    fate: str
    from_check: bool


class AccountShown(NamedTuple):
    """Adds to the audit trail that a client was shown an account, and so perhaps a secret."""

    client: Client
    request: Frame
    account: str


class Read(NamedTuple):
    """Answers the request by a read that takes long, and may be called in any thread; it may raise Refused.

    A search takes seconds, so it must not hold up other reads.
    """

    client: Client
    request: Frame
    read: Callable[[], bytes]
    is_search: bool = False


class FindRoute(NamedTuple):
    """Answers the request with the route that name servers have of a topic, or else with `own`."""

    client: Client
    request: Frame
    topic: str
    own: bytes | None


Seldom = AddTopic | Note | RefusedRequest | EndTaken | AccountShown | Read | FindRoute
Effect = Answer | Ask | AppendHalf | AppendEnd | Seldom
Effects = Sequence[Effect]
