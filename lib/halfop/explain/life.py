"""One transaction: its half keys, and the rows of all tables about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql import Row

from halfop.columns.keys import QUEUE, Key, key_of
from halfop.landing.table_rows import RESOLVE
from halfop.rules.reasons import Reason

Rows = list[Row]
# of a half row, as decisions carry it: a corrected row differs in some of these
CONTENT = ("commit_log_offset", "uniq_key", "producer_group", "real_topic", "real_queue_id")
_BUT_ITS_GROUP = ({*CONTENT} - {"producer_group"}) | {"store_timestamp"}
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
    erasures: Rows = field(default_factory=list)
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
        """The half message that stands for it.

        Of several rows of its key that is the one that its last decision is about; after a reject, the newest.
        """
        if not self.halves:
            return None
        key, last = key_of(max(self.halves, key=_stored)), self.last
        rows = [row for row in self.halves if key_of(row) == key]
        if last is None or key_of(last) != key:
            return rows[0]
        standing = rows if last["decision"] == "REJECT" else [row for row in rows if _is_about(last, row)]
        return max(standing or rows[:1], key=lambda row: int(row["landed_at"]))

    @property
    def is_corrected(self) -> bool:
        """Returns whether another row has landed since its half message was rejected."""
        return self.last is not None and self.half is not None and not _is_about(self.last, self.half)

    @property
    def has_got_its_group(self) -> bool:
        """Returns whether it has landed with a producer group since a decision on a row that lacks one."""
        last, half = self.last, self.half
        if last is None or half is None or last["producer_group"]:
            return False
        rows = [row for row in self.halves if row["producer_group"] and key_of(row) == key_of(last)]
        return any(_agree(row, half, _BUT_ITS_GROUP) for row in rows)

    @property
    def resume_waits(self) -> bool:
        """Returns whether a resume waits for the next run: a run that has seen one decides on it or rejects it."""
        taken = {row["resumed_at"] for row in self.decisions} - {None}
        refused = [row for row in self.rejects if row["kind"] == "RESUME"]
        return len(self.resumes) > len(taken) + len(refused)

    @property
    def unused_ops(self) -> Rows:
        """Ops with an outcome that no run has rejected: unless the message has ended, they wait for the next one.

        One that was rejected without an outcome has got it since.
        """
        rejects = [row for row in self.rejects if row["kind"] == "OP" and row["reason"] != "NO_OUTCOME"]
        sound = [op for op in self.ops if op["outcome"] in ("COMMIT", "ROLLBACK")]
        return [op for op in sound if not any(is_op(reject, op) for reject in rejects)]

    def is_ours(self, op_offset: int | None) -> bool:
        """Returns whether `end` or `resolve` wrote the op message of that offset, for a broker that lands by files."""
        return any(row["op_offset"] == op_offset and row["source"] == RESOLVE for row in self.ops)

    def may_be_ours(self, outcome: str | None) -> bool:
        """Returns whether `end` or `resolve` gave its broker this outcome: who gave an op, a broker does not say."""
        return any(row["kind"] == outcome and row["state"] in ("SENT", "VERIFIED") for row in self.endings)

    @property
    def first_half(self) -> Row:
        """The half message that was stored first; the others are copies."""
        return min(self.halves, key=_stored)

    def place(self, key: Key) -> str:
        """The offset of a copy, or its whole key if copies are on several brokers."""
        return str(key.queue_offset) if len({each.broker_name for each in self.keys}) == 1 else str(key)


def _is_about(decision: Row, half: Row) -> bool:
    """Returns whether a decision was made about a half row with this content."""
    return _agree(decision, half, CONTENT)


def _agree(one: Row, other: Row, columns: Iterable[str]) -> bool:
    return all((one[name] or None) == (other[name] or None) for name in columns)


def is_op(reject: Row, op: Row) -> bool:
    """Returns whether a reject is about this item of an op message, which may name many half messages."""
    place = (*(op[c] for c in QUEUE), op["op_offset"], op["item"])
    same_item = tuple(reject[c] for c in (*QUEUE, "queue_offset", "item")) == place
    return same_item and reject["half_offset"] in (None, op["queue_offset"])


def _stored(half: Row) -> tuple[int, int]:
    return half["store_timestamp"] or 0, half["queue_offset"]


def by_clock(decision: Row) -> bool:
    """Returns whether one of the lines 5 to 11 made a decision: those look at the queue clock."""
    return decision["decision"] in ("CHECK", "WAIT", "DISCARD") and decision["reason"] not in _BY_BROKER
