"""The last look before an answer leaves: what the broker itself shows of each transaction at this moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from halfop.columns.keys import Key
from halfop.ending.owner import Owner, Tails
from halfop.ending.plan import COMMIT, RESUME, ROLLBACK, PlannedPlace, Row
from halfop.ending.table import State
from halfop.rocketmq.names import HALF_TOPICS
from halfop.rocketmq.wire.client import Broker, Stored, prepared_offsets, query_finals, stored_at
from halfop.rocketmq.wire.remote import Patience


class Verdict(NamedTuple):
    """The result of a look: `state` is None if an answer may be sent, which names the half message at `place`.

    `closes`: it was delivered, and its op message was lost; a rollback makes another one, and delivers nothing.
    """

    row: Row
    place: PlannedPlace
    state: State | None = None
    remark: str | None = None
    closes: bool = False


@dataclass
class Guard:
    """Looks at the transactions of one broker, whose queues are read on by their `tails`, by queue id."""

    tails: Mapping[int, Tails]
    asks_index: bool
    is_gateway: bool = False

    def look(self, owner: Owner, rows: Sequence[Row], in_doubt: Collection[Key] = ()) -> list[Verdict]:
        """Returns a verdict a row. Rows in doubt may have been sent before, long enough ago to be seen."""
        if not self.is_gateway:  # that shows a message as soon as it has it
            _wait_for_queues_and_index(owner.broker)
        for tails in self.tails.values():
            tails.catch_up(owner.broker)
        finals, lost = self.finals(owner, rows), self._lost(owner, rows)
        found = [self._verdict(row, finals.get(n), row.key in in_doubt, lost.get(n)) for n, row in enumerate(rows)]
        return [self._resumed(owner, each, in_doubt) if each.row.kind == RESUME else each for each in found]

    def places(self, row: Row) -> tuple[PlannedPlace, ...]:
        """Returns all half messages of a transaction that are known now, the live copy last."""
        return (*row.places, *self.tails[row.key.queue_id].copies(row))

    def has_checked(self, owner: Owner, sent: Iterable[tuple[Row, PlannedPlace]]) -> bool:
        """Returns whether the broker's check has passed all of these places."""
        highest: dict[int, PlannedPlace] = {}
        for row, place in sent:
            highest[row.key.queue_id] = max(place, highest.get(row.key.queue_id, place))
        return all(self.tails[queue].has_checked(owner.broker, place) for queue, place in highest.items())

    def live_copy(self, row: Row) -> PlannedPlace | None:
        """Returns the live copy of a transaction; None if an op message names it."""
        live = self.places(row)[-1]
        return live if self.op_at(row, live) is None else None

    def op_at(self, row: Row, place: PlannedPlace) -> int | None:
        """Returns the op message that names a half message of a transaction; None if there is none."""
        return self.tails[row.key.queue_id].op_of(place)

    def is_there(self, owner: Owner, row: Row, place: PlannedPlace) -> bool:
        """Returns whether the log has a half message of a transaction still, and so all that came after it."""
        stored = stored_at(owner.broker, place.commit_log_offset)
        return stored is not None and _is_of(stored, row)

    def op_of(self, row: Row) -> tuple[int, PlannedPlace] | None:
        """Returns the op message that ended a transaction, and the half message that it names; None if none did."""
        found = ((self.op_at(row, place), place) for place in self.places(row))
        return next(((op, place) for op, place in found if op is not None), None)

    def outcome_of(self, row: Row, place: PlannedPlace) -> str | None:
        """Returns how a transaction ended that was ended at a place, if the broker shows that."""
        return self.tails[row.key.queue_id].outcome_of(place)

    def finals(self, owner: Owner, rows: Sequence[Row]) -> dict[int, list[int]]:
        """Returns the places in the log that the broker's final messages name, by the row's number; none unasked."""
        if not self.asks_index:
            return {}
        asked = [n for n, row in enumerate(rows) if row.real_topic and row.origin != "SWEEP"]
        requests = [query_finals(str(rows[n].real_topic), rows[n].uniq_key) for n in asked]
        answers = owner.broker.remote.stream(requests)
        return {n: prepared_offsets(owner.broker, *each) for n, each in zip(asked, answers, strict=True)}

    def _lost(self, owner: Owner, rows: Sequence[Row]) -> dict[int, str]:
        """Returns why a half message is no longer where it was, by the row's number.

        A broker compares group and offsets only: if its log lost its end, it would end the message that is there now.
        A log loses nothing before what it still has, so the last one is looked at, and others only if that is gone.
        """
        lives = {n: self.places(row)[-1] for n, row in enumerate(rows)}
        found = dict[int, str]()
        for n in sorted(lives, key=lambda each: lives[each].commit_log_offset, reverse=True):
            stored = stored_at(owner.broker, lives[n].commit_log_offset)
            if stored is not None and _is_of(stored, rows[n]):
                break
            found[n] = _NOT_THERE if stored is None else _ANOTHER
        return found

    def _verdict(self, row: Row, finals: Sequence[int] | None, in_doubt: bool, lost: str | None) -> Verdict:
        places = self.places(row)
        live = places[-1]
        if delivered := [place for place in places if place.commit_log_offset in (finals or ())]:
            has_op = self.op_at(row, delivered[0]) is not None
            return _delivered(row, delivered[0], in_doubt, has_op)
        if lost == _ANOTHER:  # an op that names its offset may name the other one
            return Verdict(row, live, "GONE", lost)
        if (op := self.op_of(row)) is not None:
            return _ended(row, op, in_doubt, finals is not None, self.outcome_of(row, op[1]))
        if row.kind == COMMIT and finals:
            remark = f"a final message with this UNIQ_KEY is there, of the half message at {finals[0]}: end it by hand"
            return Verdict(row, live, "FAILED", remark)
        if row.kind == COMMIT and in_doubt and finals is None and not self.is_gateway:
            return Verdict(row, live, "UNKNOWN", "it may have been sent, and without an index nobody knows")
        return Verdict(row, live, "GONE" if lost else None, lost)

    def _resumed(self, owner: Owner, verdict: Verdict, in_doubt: Collection[Key]) -> Verdict:
        """Lets a message be resumed only if the broker's check walks no copy of it, and its half message is there."""
        row = verdict.row
        if verdict.state is not None:
            return verdict
        if copies := self.tails[row.key.queue_id].copies(row):
            remark = f"the broker has put back a copy at {copies[-1].queue_offset}"
            return Verdict(row, row.places[-1], "SENT" if row.key in in_doubt else "ENDED_MEANWHILE", remark)
        stored = stored_at(owner.broker, row.places[-1].commit_log_offset)
        mine = (row.places[-1].queue_offset, row.producer_group)
        if stored is None or not _is_of(stored, row) or (stored.queue_offset, stored.producer_group) != mine:
            return Verdict(row, row.places[-1], "GONE", _NOT_THERE)
        return Verdict(row, row.places[-1])


def _wait_for_queues_and_index(broker: Broker) -> None:
    """Waits until the broker shows all that its log has now: it fills its queues and its index a little later.

    Raises Unreachable if that takes too long.
    """
    now, patience = broker.log_end(), Patience(_LONGEST_LAG)
    end = now.end
    while now.shown_to < end:
        patience.pause(f"{broker.remote.address} does not show the last {end - now.shown_to} bytes of its log yet")
        now = broker.log_end()


_LONGEST_LAG = 60.0  # seconds
_NOT_THERE = "the half message is not in the broker's log"
_ANOTHER = "another message is at its place in the broker's log, which has lost its end"


def _is_of(stored: Stored, row: Row) -> bool:
    return stored.topic in HALF_TOPICS and stored.uniq_key == row.uniq_key


def _delivered(row: Row, place: PlannedPlace, in_doubt: bool, has_op: bool) -> Verdict:
    if row.kind == COMMIT and in_doubt and not has_op:
        return Verdict(row, place, closes=True)
    if row.kind == COMMIT:
        return Verdict(row, place, "SENT" if in_doubt else "ALREADY_COMMITTED", "its final message is there")
    return Verdict(row, place, "ENDED_MEANWHILE", "its final message is there: it was committed")


def _ended(row: Row, op: tuple[int, PlannedPlace], in_doubt: bool, asked: bool, outcome: str | None) -> Verdict:
    number, place = op
    text = f"op message {number} names half message {place.queue_offset}{f': {outcome}' if outcome else ''}"
    same = outcome == row.kind if outcome else asked and row.kind == ROLLBACK  # nothing was delivered
    ours = in_doubt and same
    return Verdict(row, place, "SENT" if ours else "ENDED_MEANWHILE", text)
