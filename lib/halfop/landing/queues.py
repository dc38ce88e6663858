"""Queues of a broker by name, and the part of a queue that a landing brings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Queue(NamedTuple):
    """A broker's queue of half messages, or of the ops that belong to them: both have the same number."""

    broker_name: str
    queue_id: int


@dataclass(frozen=True)
class OffsetSpan:
    """A queue's rows that a landing brings: lowest and highest offset, newest store time (epoch microseconds).

    If `whole`, no offset between them is missing; else one may be, or nobody has looked.
    """

    lowest: int
    highest: int
    newest: int
    whole: bool = False

    def joined(self, other: OffsetSpan) -> OffsetSpan:
        lowest, highest = min(self.lowest, other.lowest), max(self.highest, other.highest)
        touching = other.lowest <= self.highest + 1 and self.lowest <= other.highest + 1
        whole = self.whole and other.whole and touching
        return OffsetSpan(lowest, highest, max(self.newest, other.newest), whole)
