"""Ranges of a log or a queue that could not be read: rows of `rejected`. A repaired range is read later."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from halfop.columns.lives import Lives
from halfop.frame.summary import Summary
from halfop.landing.progress import instant
from halfop.warehouse.lock import hold_rejected
from halfop.warehouse.progress import COMMIT_LOG
from halfop.warehouse.schema import REJECTED
from halfop.warehouse.tables import NO_TABLE, Warehouse
from halfop.warehouse.where import all_of, equal
from halfop.wording import Reject, warn_of

log = logging.getLogger("halfop.land")

LOST, FOUND = "LOST_RANGE", "FOUND_RANGE"


class Range(NamedTuple):
    """Physical offsets of the commit log, or offsets of a queue; what it held is older than `until` (microseconds)."""

    since: int
    upto: int
    topic: str = COMMIT_LOG
    queue: int = 0
    until: int | None = None


@dataclass
class Ranges:
    """The lost ranges of a broker's life, and the `news` of them that are still to be written.

    `earlier`: those of the lives before, as far as they stand.
    """

    broker_name: str
    all: list[Range] = field(default_factory=list)
    news: list[tuple[str, Range, str, str]] = field(default_factory=list)
    earlier: list[Range] = field(default_factory=list)

    @property
    def of_log(self) -> list[tuple[int, int]]:
        return [(each.since, each.upto) for each in self.all if each.topic == COMMIT_LOG]

    @property
    def of_queues(self) -> list[Range]:
        return [each for each in self.all if each.topic != COMMIT_LOG]

    @property
    def unread_log(self) -> list[tuple[int, int]]:
        """What no life of the broker has read of its log: it may hold how a transaction ended."""
        return [*self.of_log, *((each.since, each.upto) for each in self.earlier if each.topic == COMMIT_LOG)]

    @property
    def unread_queues(self) -> list[Range]:
        return [*self.of_queues, *(each for each in self.earlier if each.topic != COMMIT_LOG)]

    @property
    def gone(self) -> list[str]:
        """The ranges among the news that are lost, in words."""
        return [_detail(lost, code, text) for reason, lost, code, text in self.news if reason == LOST]

    def add(self, lost: Range, code: str, text: str) -> None:
        if lost not in self.all:
            self.all.append(lost)
            self.news.append((LOST, lost, code, text))

    def add_hole(self, lost: Range) -> None:
        self.add(lost, "hole", f"queue {lost.queue} of {lost.topic}: the broker no longer has it")

    def found(self, again: Range, text: str) -> None:
        self.all.remove(again)
        self.news.append((FOUND, again, "repaired", text))


def known(warehouse: Warehouse, broker_name: str) -> Ranges:
    """Returns what earlier landings lost and none has found since; few, because each is a fault of its own."""
    if warehouse.version(REJECTED) == NO_TABLE:
        return Ranges(broker_name)
    rows = warehouse.read(REJECTED, where=all_of(equal("kind", "RANGE"), equal("broker_name", broker_name)))
    lost, found = ({each for _, each in recorded(rows, reason)} for reason in (LOST, FOUND))
    return Ranges(broker_name, sorted(lost - found, key=_in_order))


def of_lives(warehouse: Warehouse, lives: Lives) -> Ranges:
    """Returns those of the current life, with those of the earlier ones."""
    found = known(warehouse, lives.current)
    for number, name in enumerate(lives.names[:-1]):
        stands = min(life.stands_to for life in lives.later[number:])
        ranges = known(warehouse, name)
        found.earlier += [Range(since, min(upto, stands)) for since, upto in ranges.of_log if since < stands]
        found.earlier += ranges.of_queues
    return found


def _in_order(lost: Range) -> tuple[object, ...]:
    """Sorts ranges of one place, too: not of each is known how old it is."""
    return *lost[:-1], -1 if lost.until is None else lost.until


def recorded(rejected: DataFrame, reason: str) -> set[tuple[str, Range]]:
    """Returns the ranges of one reason among rows of `rejected`, each with its broker."""
    rows = rejected.where((F.col("kind") == "RANGE") & (F.col("reason") == reason))
    until = F.unix_micros("range_until").alias("until")
    found = rows.select("broker_name", "range_from", "range_to", "range_topic", "queue_id", until).collect()
    return {(broker_name, Range(*place)) for broker_name, *place in found}


def record(warehouse: Warehouse, ranges: Ranges, landed_at: int, summary: Summary) -> None:
    """Writes the news of the ranges to `rejected`, and warns of them."""
    if not ranges.news:
        return
    about = {"kind": "RANGE", "broker_name": ranges.broker_name, "rejected_at": instant(landed_at)}
    rows = [about | _row(lost, code, text) | {"reason": reason} for reason, lost, code, text in ranges.news]
    with hold_rejected(warehouse):
        warehouse.make(REJECTED)
        warehouse.commit(REJECTED, rows)
    warn_of(log, "this landing", summary, _rejects(ranges))
    ranges.news.clear()


def _rejects(ranges: Ranges) -> list[Reject]:
    number = Counter(reason for reason, *_ in ranges.news)
    first = {reason: _detail(lost, code, text) for reason, lost, code, text in reversed(ranges.news)}
    return [Reject("RANGE", reason, n, ranges.broker_name, first[reason]) for reason, n in number.items()]


def _row(lost: Range, code: str, text: str) -> dict[str, object]:
    span = {"queue_id": lost.queue, "range_from": lost.since, "range_to": lost.upto, "range_topic": lost.topic}
    return span | {"range_until": instant(lost.until), "detail": _detail(lost, code, text)}


def _detail(lost: Range, code: str, text: str) -> str:
    return f"{lost.topic} from {lost.since} to {lost.upto}: {text} ({code})"
