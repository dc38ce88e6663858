"""The messages of the gateway's log, and what is known of them: half messages, their ends, and their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

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


class Half(NamedTuple):
    """A half message in the log, as far as ends and questions need it.

    `topic` and `queue` are the real ones, `immunity` is CHECK_IMMUNITY_TIME_IN_SECONDS as the producer gave it.
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


class HalfGone(LookupError):
    """The log no longer has the half message: its file was removed after it had expired. Nothing was written."""


class Ended(NamedTuple):
    """The fate of an END_TRANSACTION: it may be answered once the log is flushed to `end`.

    ENDED: it was the first. REPEATED: it has been said before, so nothing was written. OPPOSED: it is the first that
    says the opposite of what stands, so an op message was written, and nothing is delivered.
    """

    kind: Literal["ENDED", "REPEATED", "OPPOSED"]
    end: int


class QueueOffsets(NamedTuple):
    """A queue's first offset, and the one after its last flushed message."""

    first: int
    next: int


class Pulled(NamedTuple):
    """Records of a queue back to back, as a pull's answer has them, and the offset after the last of them."""

    records: list[bytes]
    next: int


class Topic(NamedTuple):
    """A topic as routes and a broker's topic table have it."""

    read_queues: int
    write_queues: int
    perm: int = 6


@dataclass(frozen=True)
class Identity:
    """The store's owner: the gateway's name, and an id of its own that was made with the store."""

    name: str
    created: str
