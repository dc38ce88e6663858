"""One transaction: its half keys, and the rows of all tables about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql import Row

from halfop.columns.keys import Key
from halfop.rules.reasons import Reason

Rows = list[Row]
_BY_BROKER = (Reason.BROKER_DISCARDED.name, Reason.LOST_BY_BROKER.name)


@dataclass
class MessageLife:
    """One transaction: its half keys, of which the last stands for it, and all rows about it."""

    keys: list[Key]
    halves: Rows = field(default_factory=list)
    decisions: Rows = field(default_factory=list)
    ops: Rows = field(default_factory=list)
    requests: Rows = field(default_factory=list)
    deliveries: Rows = field(default_factory=list)
    rejects: Rows = field(default_factory=list)
    resumes: Rows = field(default_factory=list)
    endings: Rows = field(default_factory=list)
    finals: Rows = field(default_factory=list)
    discards: Rows = field(default_factory=list)
    clocks: dict[int, str] = field(default_factory=dict)  # its queue's clock in runs that left it open or discarded it

    @property
    def last(self) -> Row | None:
        """The decision that stands."""
        own = [row for row in self.decisions if row["decision"] not in ("SUPERSEDED", "EARLY_OP")] or self.decisions
        return max(own, key=lambda row: row["run_upto"], default=None)

    @property
    def half(self) -> Row | None:
        """The half message that stands for it."""
        return max(self.halves, key=_stored, default=None)

    @property
    def first_half(self) -> Row:
        """The half message that was stored first; the others are copies."""
        return min(self.halves, key=_stored)

    def place(self, key: Key) -> str:
        """The offset of a copy, or its whole key if copies are on several brokers."""
        return str(key.queue_offset) if len({each.broker_name for each in self.keys}) == 1 else str(key)


def _stored(half: Row) -> tuple[int, int]:
    return half["store_timestamp"] or 0, half["queue_offset"]


def by_clock(decision: Row) -> bool:
    """Returns whether one of the lines 5 to 11 made a decision: those look at the queue clock."""
    return decision["decision"] in ("CHECK", "WAIT", "DISCARD") and decision["reason"] not in _BY_BROKER


# ---- half keys ----


def key_of(row: Row) -> Key:
    """Returns the half key of a row."""
    return Key(row["broker_name"], row["queue_id"], row["queue_offset"])


def linked(decision: Row) -> set[Key]:
    """Returns the keys of all copies that a decision knows of."""
    copies = {key_of(copy) for copy in decision["copies"] or ()}
    by = superseded_by(decision)
    return copies if by is None else copies | {by}


def superseded_by(decision: Row) -> Key | None:
    """Returns the key of the copy that stands for this one."""
    return _other(decision, "superseded_by", "superseded_by_broker", "superseded_by_queue")


def named_copy(decision: Row) -> Key | None:
    """Returns the key of the copy that the op of an ended transaction names, if it is another one."""
    return _other(decision, "copy_offset", "copy_broker", "copy_queue")


def _other(row: Row, offset: str, broker: str, queue: str) -> Key | None:
    if row[offset] is None:
        return None
    if row[broker] is None:
        return key_of(row)._replace(queue_offset=row[offset])
    return Key(row[broker], row[queue], row[offset])


def grouped(keys: Iterable[Key], decisions: Rows) -> list[list[Key]]:
    """Returns the keys by transaction."""
    of = {key: {key} for key in keys}
    for row in decisions:
        together = set[Key]().union(*(of[key] for key in {key_of(row), *linked(row)} & of.keys()))
        of |= dict.fromkeys(together, together)
    return [list(group) for group in sorted({tuple(sorted(group)) for group in of.values()})]
