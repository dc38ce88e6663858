"""A run as it opened: what it pinned, its instant, settings and part of a backlog, and the clocks of its queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from halfop.frame.errors import TransientError
from halfop.frame.units import EPOCH
from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS, topics_of
from halfop.rules import VERSION
from halfop.settings.model import Count, Settings
from halfop.settings.values import Ask
from halfop.warehouse.progress import GATEWAY, TABLE, counting, progress_rows
from halfop.warehouse.tables import NO_TABLE, Warehouse

# Landing commits halves, then ops, then progress: pinned the other way round, a run never believes ops complete
# that it does not see.
INPUTS = (
    "landing_progress",
    "op_messages",
    "final_messages",
    "broker_discards",
    "half_messages",
    "resumes",
    "check_deliveries",
    "decisions",
)


_BEHIND = (
    "%s ends at version %d, but run %d has seen version %d: it was put back or made again, or its storage lists it "
    "late. Start again; if this error stays, call `examine --repair` (local disk), or put back copies of all tables of "
    "one moment"
)


@dataclass(frozen=True)
class Slice:
    """One range of half queue offsets of a backlog; `bounds` part the slices.

    `ops_repeat`: two op rows of the backlog share a key, so each slice must look at all op rows.
    """

    number: int = 1
    bounds: tuple[int, ...] = ()
    ops_repeat: bool = False

    @property
    def of(self) -> int:
        return len(self.bounds) + 1

    @property
    def from_offset(self) -> int | None:
        """The lowest offset, inclusive; None for the first slice."""
        return self.bounds[self.number - 2] if self.number > 1 else None

    @property
    def to_offset(self) -> int | None:
        """The highest offset, exclusive; None for the last slice."""
        return self.bounds[self.number - 1] if self.number < self.of else None


@dataclass(frozen=True)
class Debt:
    """A sink that a run was closed without, because the user parked it."""

    run_id: int
    sink: str


@dataclass(frozen=True)
class Run:
    """The facts that determine everything a run decides and writes."""

    run_id: int
    now: datetime
    inputs: Mapping[str, int]
    inputs_before: Mapping[str, int]
    settings: Settings
    slice: Slice = field(default_factory=Slice)
    rules_version: str = VERSION
    owed: tuple[Debt, ...] = ()
    decided: int = 0  # rows of `decisions`, known when it has closed
    left_open: int = 0  # CHECK, WAIT and EARLY_OP among them
    asks: Mapping[str, bool] = field(default_factory=dict)  # whether it asks or only watches, by broker
    delivered: Mapping[str, bool] = field(default_factory=dict)  # whether only delivered questions count, by broker

    @property
    def now_micros(self) -> int:
        """Its instant in epoch microseconds."""
        return (self.now - EPOCH) // timedelta(microseconds=1)

    @property
    def watched(self) -> frozenset[str]:
        """The brokers that it only watches."""
        return frozenset(broker for broker, asks in self.asks.items() if not asks)

    def asks_at(self, broker: str) -> bool:
        """Returns whether it asks the producers of a broker's messages; landing_progress may lack the broker."""
        return self.asks.get(broker, asks_at(self.settings.rules.ask))

    @property
    def counting_delivered(self) -> frozenset[str]:
        """The brokers for which only delivered questions count."""
        return frozenset(broker for broker, delivered in self.delivered.items() if delivered)

    def counts_delivered_at(self, broker: str) -> bool:
        """Returns whether only delivered questions about a broker's messages count; `delivered` may lack the broker."""
        return self.delivered.get(broker, counts_delivered_at(self.settings.rules.count))

    @property
    def first(self) -> bool:
        """Returns whether no run has decided anything yet, so that there is nothing to look up."""
        return self.run_id == 1 or self.inputs["decisions"] == NO_TABLE


BROKERS_OWN = ("STORE", "BROKER")  # sources that are a broker, which asks by itself


def pinned_now(warehouse: Warehouse, last: Run | None, *names: str) -> dict[str, int]:
    """The tables' versions. Raises TransientError if a table ends before a version that the last run has read or made.

    A table that was removed is left to whoever reads it.
    """
    pins = {name: warehouse.version(name) for name in names}
    if last is not None:
        seen = dict(last.inputs) | {"decisions": last.inputs["decisions"] + (last.decided > 0)}
        for name, pin in pins.items():
            if NO_TABLE < pin < seen[name]:
                raise TransientError(_BEHIND % (warehouse.path(name), pin, last.run_id, seen[name]))
    return pins


def pinned_inputs(warehouse: Warehouse, last: Run | None = None) -> dict[str, int]:
    """Returns the pins of a run that opens now, after the last one."""
    return with_all_queues(warehouse, lambda: pinned_now(warehouse, last, *INPUTS))


def with_all_queues(warehouse: Warehouse, pin: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Returns pins by which each queue that halfop has begun to land has its progress.

    A queue without progress is taken to be known until now. So all is pinned again if one has begun meanwhile.
    """
    pins = pin()
    while _has_begun(warehouse, pins[TABLE]):
        pins = pin()
    return pins


def _has_begun(warehouse: Warehouse, version: int) -> bool:
    """Returns whether a queue has got a clock, or a broker another source that counts, after a version."""
    newest = warehouse.version(TABLE)
    return newest > version and _begun(warehouse, newest) != _begun(warehouse, version)


def _begun(warehouse: Warehouse, version: int) -> tuple[object, object]:
    rows = progress_rows(warehouse, version)
    return {clock[:2] for clock in clocks(rows)}, sources(rows)


def asks(ask: Ask, progress: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Returns whether halfop asks, by broker, for all brokers of landing_progress."""
    return {broker: asks_at(ask, source) for broker, source in sources(progress).items()}


def asks_at(ask: Ask, source: str | None = None) -> bool:
    """Returns whether halfop asks for a broker that landed so; None: by files, or by a user's own pipeline."""
    return source not in BROKERS_OWN if ask == "auto" else ask


def counts_delivered(count: Count, progress: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Returns whether a question counts only when it is delivered, by broker, for all brokers of landing_progress."""
    return {broker: counts_delivered_at(count, source) for broker, source in sources(progress).items()}


def counts_delivered_at(count: Count, source: str | None = None) -> bool:
    """Returns whether a question about a message of a broker that landed so counts only when it is delivered."""
    return source == GATEWAY if count == "auto" else count == "delivered"


def sources(progress: Iterable[Mapping[str, Any]]) -> dict[str, str | None]:
    """Returns the source that counts of each broker; None: not one of halfop's landings."""
    every: dict[str, list[str | None]] = {}
    for row in progress:
        every.setdefault(row["broker_name"], []).append(row["source"])
    return {broker: counting(found) for broker, found in sorted(every.items())}


# ---- the clock of each queue, by which its messages age: how far its landing has come ----


_TOPICS = (*HALF_TOPICS, *OP_TOPICS, None)


class Clock(NamedTuple):
    """The instant up to which the ops of a queue have landed, and the half offsets that have."""

    broker_name: str
    queue_id: int
    known_until: datetime | None
    next_offset: int | None
    first_offset: int | None
    forgets_after: int | None = None  # microseconds, of transactions in RocksDB, if the broker has said that


def clocks(progress: Iterable[Mapping[str, Any]]) -> list[Clock]:
    """Returns the clocks by landing_progress; a queue without a row for its op topic goes by the rows that it has.

    Queues of final messages and of discard records have none; a user's own pipeline may leave the topic out.
    """
    ordered = sorted((row for row in progress if row["topic"] in _TOPICS), key=_queue)
    return [_clock(*queue, list(rows)) for queue, rows in groupby(ordered, key=_queue)]


def late_clocks(known: Iterable[Clock], now: datetime, check_interval: timedelta) -> list[Clock]:
    """Clocks that are more than the check interval before `now`: the op logs of their queues have not landed."""
    due = now - check_interval
    return [clock for clock in known if clock.known_until is None or clock.known_until < due]


def _queue(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["broker_name"], row["queue_id"]


def _clock(broker_name: str, queue_id: int, rows: list[Mapping[str, Any]]) -> Clock:
    of_half, of_op = ([row for row in rows if row["topic"] == topic] for topic in topics_of(queue_id))
    return Clock(
        broker_name,
        queue_id,
        known_until=max(_given(of_op or rows, "known_until"), default=None),
        next_offset=max(_given(of_half, "next_offset"), default=None),
        first_offset=min(_given(of_half, "first_offset"), default=None),
        forgets_after=max(_given(of_half, "forgets_after"), default=None),
    )


def _given(rows: list[Mapping[str, Any]], column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def known_before(warehouse: Warehouse, run: Run) -> list[dict[str, Any]] | None:
    """Returns how far each queue had landed when the run before pinned its inputs.

    None if that was so long ago that log clean-up has removed the version: then anything may have landed before.
    """
    version = run.inputs_before[TABLE]
    if version != NO_TABLE and not warehouse.keeps(TABLE, version):
        return None
    return progress_rows(warehouse, version)
