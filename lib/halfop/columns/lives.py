"""The lives of a broker. It lost the end of its log, or was rebuilt: offsets that have landed are other messages now.

A user accepts that once. Messages below the *cut*, the first offset that differs, stand; from there on a new life
begins, under a name of its own: `broker-a~2` after `broker-a`, then `broker-a~3`. Each life has rows of its own in
landing_progress, and these have its cuts. A message belongs to the last life whose cut is not above its offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column
from pyspark.sql import functions as F

from halfop.rocketmq.names import HALF_TOPICS, OP_TOPICS

Cuts = Mapping[int, int]  # by half queue


class Life(NamedTuple):
    """A later life: its cuts in half queues and op queues, and where in the log its half messages begin.

    Up to `stands_to` the log of the earlier lives still stands.
    """

    number: int
    name: str
    halves: Cuts
    ops: Cuts
    log: Cuts
    begun_at: datetime | None
    stands_to: int = 0


class Lost(NamedTuple):
    """Half messages of a queue that the broker lost: those from an offset on, when a later life began."""

    broker_name: str
    queue_id: int
    from_offset: int
    at: datetime | None


@dataclass(frozen=True)
class Lives:
    """All lives of a broker: the first under the broker's own name, and later ones in their order."""

    broker_name: str
    later: Sequence[Life] = field(default_factory=tuple)

    @property
    def names(self) -> list[str]:
        return [self.broker_name, *(life.name for life in self.later)]

    @property
    def current(self) -> str:
        """The name that new messages land under."""
        return self.names[-1]

    @property
    def number(self) -> int:
        """The number of the current life; the first is 1."""
        return len(self.names)

    @property
    def half_cuts(self) -> list[Cuts]:
        return [life.halves for life in self.later]

    @property
    def op_cuts(self) -> list[Cuts]:
        return [life.ops for life in self.later]

    @property
    def log_cuts(self) -> list[Cuts]:
        return [life.log for life in self.later]

    def upto(self, name: str) -> Lives:
        """The lives up to the one of that name, as they were while it was the current one."""
        return Lives(self.broker_name, tuple(self.later[: self.names.index(name)]))

    def lost(self) -> list[Lost]:
        """The ranges that a later life's cut has taken from each earlier one; the lowest cut counts."""
        found = []
        for number, name in enumerate(self.names):
            after = self.later[number:]
            for queue in sorted({queue for life in after for queue in life.halves}):
                cut, at = min((life.halves.get(queue, 0), life.number, life.begun_at) for life in after)[::2]
                found.append(Lost(name, queue, cut, at))
        return found


def lives_of(progress: Iterable[Mapping[str, Any]], broker_name: str) -> Lives:
    """The lives of a broker, by its own name, from the rows of landing_progress."""
    mine: dict[int, list[Mapping[str, Any]]] = {}
    for row in progress:
        if row["life_of"] == broker_name and row["life"] is not None:
            mine.setdefault(row["life"], []).append(row)
    return Lives(broker_name, tuple(_life(number, rows) for number, rows in sorted(mine.items())))


def all_lives(progress: Sequence[Mapping[str, Any]]) -> list[Lives]:
    """The lives of all brokers that have had several."""
    return [lives_of(progress, name) for name in sorted({row["life_of"] for row in progress} - {None})]


def all_lost(progress: Sequence[Mapping[str, Any]]) -> tuple[Lost, ...]:
    """The losses of all brokers."""
    return tuple(lost for lives in all_lives(progress) for lost in lives.lost())


def name_of(broker_name: str, number: int) -> str:
    """The name of a broker's later life."""
    return f"{broker_name}~{number}"


def own_name(name: str) -> str:
    """The name that a broker has in its first life, from that of any of its lives."""
    before, sign, number = name.rpartition("~")
    return before if sign and number.isdecimal() else name


def _life(number: int, rows: Sequence[Mapping[str, Any]]) -> Life:
    def cuts(topics: Sequence[str], column: str) -> Cuts:
        return {r["queue_id"]: r[column] for r in rows if r["topic"] in topics and r[column] is not None}

    halves, ops = cuts(HALF_TOPICS, "cut_offset"), cuts(OP_TOPICS, "cut_offset")
    begun_at = min((row["begun_at"] for row in rows if row["begun_at"] is not None), default=None)
    places = cuts(HALF_TOPICS, "cut_log_offset").values()
    log = {0: max(places)} if places else {}  # a broker has one log, and two half queues at most
    stands_to = max([*places, *cuts(OP_TOPICS, "cut_log_offset").values()], default=0)
    return Life(number, rows[0]["broker_name"], halves, ops, log, begun_at, stands_to)


def owners(cuts: Sequence[Cuts], queues: npt.NDArray[Any], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Returns the number of the life that each offset belongs to; 0 is the first one."""
    found = np.zeros(len(offsets), np.int32)
    known, codes = np.unique(queues, return_inverse=True)
    for number, of in enumerate(cuts, 1):
        found[offsets >= np.array([of.get(int(q), 0) for q in known], np.int64)[codes]] = number
    return found


def owner(cuts: Sequence[Cuts], queue: Column, offset: Column) -> Column:
    """Returns the number of the life that each offset belongs to, as a Column."""

    def later(found: Column, life: tuple[int, Cuts]) -> Column:
        number, of = life
        cut = reduce(lambda rest, each: F.when(queue == each[0], F.lit(each[1])).otherwise(rest), of.items(), F.lit(0))
        return F.when(offset >= cut, F.lit(number)).otherwise(found)

    return reduce(later, enumerate(cuts, 1), F.lit(0))
