"""Half messages and their ends: what a gateway knows of them, and what becomes of an end. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from halfop.gateway.core.clients import Client

Outcome = Literal["COMMIT", "ROLLBACK"]
OUTCOMES: tuple[Outcome, ...] = ("COMMIT", "ROLLBACK")


class HalfMessage(NamedTuple):
    """A half message to be stored: its fields, and its properties in RocketMQ's text form.

    The properties have REAL_TOPIC, REAL_QID, PGROUP and what else a broker's half message has. The other fields after
    `properties` are what ends and questions need of them; recovery reads them from the properties again. `born_host` is
    the address (4 or 16 bytes) and the port (4 bytes), as records have it.
    """

    body: bytes
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int
    properties: bytes
    topic: str
    queue: int
    group: str
    uniq_key: str | None
    immunity: str | None
    sender: Client | None = None


class Half(NamedTuple):
    """A half message in the log, as far as ends and questions need it.

    `topic` and `queue` are the real ones, `immunity` is CHECK_IMMUNITY_TIME_IN_SECONDS as the producer gave it.
    `sender` is None if a process before this one took it.
    """

    queue_offset: int
    physical_offset: int
    size: int
    store_ms: int
    born_ms: int
    topic: str
    queue: int
    group: str
    uniq_key: str | None
    immunity: str | None
    sender: Client | None = None

    @property
    def end(self) -> int:
        """The physical offset after it: it is durable once the log is flushed to here."""
        return self.physical_offset + self.size


class End(NamedTuple):
    """A producer's END_TRANSACTION of a half message; `from_check` is None if that is no longer known.

    `at_ms` is the instant at which it was found to be in time: the op is born then, so that the rules find the same.
    None: now.
    """

    outcome: Outcome
    from_check: bool | None
    group: str
    transaction_id: str | None
    at_ms: int | None = None


Fate = Literal["ENDED", "REPEATED", "OPPOSED", "GONE"]


class Ended(NamedTuple):
    """The fate of an END_TRANSACTION: it may be answered once the log is flushed to `end`.

    ENDED: it was the first. REPEATED: it has been said before, so nothing was written. OPPOSED: it is the first that
    says the opposite of what stands, so an op message was written, and nothing is delivered. GONE: the log no longer
    has the half message, whose file was removed after it had expired; nothing was written.
    """

    kind: Fate
    end: int


class QueueOffsets(NamedTuple):
    """A queue's first offset, and the one after its last flushed message."""

    first: int
    next: int


class PulledRecords(NamedTuple):
    """Records of a queue back to back, as a pull's answer has them, and the offset after the last of them."""

    records: list[bytes]
    next: int


class FoundRecords(NamedTuple):
    """Records that were searched for, and since when the log was searched; None: as far back as was asked for."""

    records: list[bytes]
    since_ms: int | None


class Topic(NamedTuple):
    """A topic as routes and a broker's topic table have it."""

    read_queues: int
    write_queues: int
    perm: int = 6


_OUTCOME, OPPOSED = 3, 4  # of a byte: the place in OUTCOMES, plus one; whether the opposite was said, too


class State:
    """Open half messages by physical offset, and the outcomes of all that the log still has, a byte each."""

    def __init__(self, first: int = 0, outcomes: bytes = b"", halves: Iterable[Half] = ()) -> None:
        """`first`: the queue offset of the first half message; `outcomes` from there on, and the open ones of them."""
        self._first, self._outcomes = first, bytearray(outcomes)
        self._open = {half.physical_offset: half for half in halves}

    @property
    def open(self) -> Mapping[int, Half]:
        return self._open

    def add(self, half: Half) -> None:
        """Adds the next half message of the queue."""
        self._open[half.physical_offset] = half
        self._outcomes.append(0)

    def fate(self, half: Half, outcome: Outcome) -> Fate:
        """Returns the fate of an end with that outcome, if it comes now; a half message has at most two of them."""
        at = half.queue_offset - self._first
        if at < 0:
            return "GONE"
        stands = self.outcome(half.queue_offset)
        if stands is None:
            return "ENDED"
        return "REPEATED" if stands == outcome or self._outcomes[at] & OPPOSED else "OPPOSED"

    def end(self, half: Half, outcome: Outcome) -> None:
        """Notes an end: the first one stands, and another one opposes it."""
        at = half.queue_offset - self._first
        self._open.pop(half.physical_offset, None)
        self._outcomes[at] |= OPPOSED if self._outcomes[at] else OUTCOMES.index(outcome) + 1

    def outcome(self, queue_offset: int) -> Outcome | None:
        """How the half message ended; None if it is open, or the log no longer has it."""
        at = queue_offset - self._first
        code = self._outcomes[at] & _OUTCOME if 0 <= at < len(self._outcomes) else 0
        return OUTCOMES[code - 1] if code else None

    def first_open(self) -> int | None:
        """The lowest physical offset of an open half message; None if none is open."""
        return next(iter(self._open), None)

    def remove_before(self, queue_offset: int, physical_offset: int) -> list[Half]:
        """Forgets half messages that the log no longer has; returns those of them that were open."""
        del self._outcomes[: max(queue_offset - self._first, 0)]
        self._first = max(queue_offset, self._first)
        lost = []
        for at in self._open:
            if at >= physical_offset:
                break
            lost.append(at)
        return [self._open.pop(at) for at in lost]
