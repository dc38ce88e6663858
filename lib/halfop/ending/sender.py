"""Ends the transactions of one broker: batch by batch, never twice, with a record before and after each.

The record is what makes a kill harmless. INTENDED is there for good before the first byte of a batch leaves. A row that
is INTENDED and has no result may have been sent: the next call waits until the broker must show it, looks, and only
then sends. The same holds for a lost connection.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import chain
from typing import TypeVar

from halfop.columns.keys import Key
from halfop.ending.answers import Effects, SentAnswer, TakenRow, send
from halfop.ending.guard import Guard
from halfop.ending.owner import LandedEnds, Masters, NoMaster, Owner, Tails, since
from halfop.ending.plan import COMMIT, Row
from halfop.ending.table import IN_DOUBT, Clerk, Ending, Endings
from halfop.frame.errors import InputRefused
from halfop.frame.units import EPOCH
from halfop.rocketmq.wire.remote import Patience
from halfop.rocketmq.wire.remoting import ConnectionLost, Unreachable

BATCH = 500
_SWEEPS, _MOST_LOSSES = 20, 3
_LONGEST_WAIT = 120.0  # seconds
_LONGEST_ROUND = timedelta(seconds=60)  # of a broker's check: its MAX_PROCESS_TIME_LIMIT
_LOG = logging.getLogger("halfop.ending")


@dataclass
class BrokerPart:
    """One broker's part of a plan: how to reach it, and how far its queues have landed."""

    name: str
    where: Masters
    landed: Mapping[int, LandedEnds]
    no_index: bool = False
    batch: int = BATCH


@dataclass
class Sender:
    """Sends the answers of one plan to one broker.

    `known` is what earlier calls have recorded, by half key; `lately`: when any plan last sent this broker anything.
    """

    broker: BrokerPart
    clerk: Clerk
    endings: Endings
    known: Mapping[Key, Ending]
    lately: datetime | None = None
    _rows: Sequence[Row] = ()
    _ended: Sequence[Row] = ()
    _reached: bool = False
    _results: list[Ending] = field(default_factory=list)
    _sent: dict[Key, TakenRow] = field(default_factory=dict)
    _verified: set[Key] = field(default_factory=set)
    _repeated: set[Key] = field(default_factory=set)
    _last: datetime = EPOCH

    def end(self, rows: Sequence[Row], ended: Sequence[Row] = ()) -> None:
        """Ends these transactions, then sweeps: later copies of them are rolled back, and what is ended is verified.

        `ended`: transactions that a killed call has ended and not swept, and whose end has landed meanwhile.
        """
        self._rows, self._ended = rows, ended
        with ExitStack() as kept:
            self._route(kept)
            try:
                for row in ended:
                    self._remember(row, verified=True)
                todo = [row for row in rows if not self._was_sent(row)]
                self._wait_for_doubts(todo)
                for batch in _batches(todo, self.broker.batch):
                    self._batch(batch, kept)
                self._sweep(kept)
            finally:
                self._record()

    # ---- the way to the broker ----

    def _route(self, kept: ExitStack, in_doubt: bool = False) -> None:
        """Connects to the master that there is now; whatever another one has shown counts no more.

        `in_doubt`: what it may have met of our requests can be seen when this returns.
        """
        patience = Patience(self.broker.where.settings.give_up_after)
        while True:
            kept.close()
            try:
                self._owner: Owner = kept.enter_context(self.broker.where.owner(self.broker.name, self._reached))
                self._refuse_without_index()
                self._guard = Guard(self._tails(), self._owner.has_index, self._owner.is_gateway)
            except (NoMaster, *_NO_ANSWER) as error:
                patience.pause(str(error))
                continue
            self._reached = True
            if in_doubt:  # only now: a broker that stood still goes on with what it had met before
                time.sleep(self._owner.clears_doubt.total_seconds())
            return

    def _refuse_without_index(self) -> None:
        if self._owner.shows_commits or self.broker.no_index or all(row.kind != COMMIT for row in self._rows):
            return
        problem = f"broker {self.broker.name} keeps no index (messageIndexEnable=false)"
        hint = "nobody can ask it whether a message was committed; --no-index commits without asking"
        raise InputRefused(self._owner.broker.remote.address, None, problem, hint)

    def _tails(self) -> dict[int, Tails]:
        found, rows = {}, (*self._rows, *self._ended)
        for queue in {row.key.queue_id for row in rows}:
            landed = self.broker.landed.get(queue, LandedEnds())
            swept = [self.known[row.key] for row in self._ended if row.key.queue_id == queue]
            start = since(landed, self._owner.broker, queue, swept) if swept else landed
            found[queue] = Tails(start, queue, [row for row in rows if row.key.queue_id == queue])
        return found

    # ---- what earlier calls have done ----

    def _was_sent(self, row: Row) -> bool:
        """Remembers a row that is SENT or VERIFIED for the sweep."""
        known = self.known.get(row.key)
        if known is None or known.state not in ("SENT", "VERIFIED"):
            return False
        self._remember(row, known.state == "VERIFIED")
        return True

    def _remember(self, row: Row, verified: bool) -> None:
        known = self.known[row.key]
        self._sent[row.key] = TakenRow(row, known.sent or row.places[-1])
        self._verified |= {row.key} if verified else set()
        self._last = max(self._last, known.at)

    def _wait_for_doubts(self, rows: Sequence[Row]) -> None:
        """Waits until the broker must show what an earlier call may have sent: up to its end, when nobody knows."""
        if any(map(self._in_doubt, rows)):
            time.sleep(self._owner.clears_doubt.total_seconds())
        elif rows and self.lately:
            self._wait_until(self.lately + self._owner.settles)

    def _in_doubt(self, row: Row) -> bool:
        return row.key in self.known and self.known[row.key].state in IN_DOUBT

    def _wait_until(self, instant: datetime) -> None:
        left = (instant - datetime.now(timezone.utc)).total_seconds()
        if left > 0:
            time.sleep(min(left, _LONGEST_WAIT))

    # ---- one batch ----

    def _batch(self, rows: Sequence[Row], kept: ExitStack, sent_before: bool = False) -> None:
        """Ends some transactions; returns once each has a result. Raises Unreachable if it takes too long."""
        doubts = {row.key for row in rows if sent_before or self._in_doubt(row)}
        self._results += [self.clerk.ending(row, "INTENDED", sent=row.places[-1]) for row in rows]
        self._record()
        patience, todo = Patience(self.broker.where.settings.give_up_after), list(rows)
        while todo:
            try:
                outcomes = self._looked_and_sent(todo, doubts)
            except _NO_ANSWER as error:  # to the look: nothing was sent
                patience.pause(str(error))
                self._route(kept, bool(doubts))
                continue
            done = {each.verdict.row.key for each in outcomes if not each.again}
            todo = [row for row in todo if row.key not in done]
            if todo:
                doubts |= {each.verdict.row.key for each in outcomes if each.state == "UNKNOWN"}
                self._before_another(todo, outcomes, patience, kept)

    def _looked_and_sent(self, rows: Sequence[Row], doubts: set[Key]) -> list[SentAnswer]:
        """Returns the outcomes of all rows but those that a loss has kept from being sent; all are noted."""
        verdicts = self._guard.look(self._owner, rows, doubts)
        known = [SentAnswer(each, each.state, None, each.remark) for each in verdicts if each.state is not None]
        answers = send(self._owner.broker, [each for each in verdicts if each.state is None])
        return [self._noted(each) for each in chain(known, answers)]

    def _noted(self, sent: SentAnswer) -> SentAnswer:
        row, place = sent.verdict.row, sent.verdict.place
        if sent.state is not None:
            self._results.append(self.clerk.ending(row, sent.state, sent.remark, sent.code, place))
        if sent.state == "SENT":
            self._sent[row.key], self._last = TakenRow(row, place), datetime.now(timezone.utc)
        return sent

    def _before_another(
        self, todo: Sequence[Row], outcomes: Sequence[SentAnswer], patience: Patience, kept: ExitStack
    ) -> None:
        """Waits until the broker has room, or must show what it has met of the requests whose answers were lost."""
        again = [each for each in outcomes if each.again]
        self._record()
        why = again[0].remark if again else None
        patience.pause(f"broker {self.broker.name}: {len(todo)} answers are left: {why or 'the connection was lost'}")
        if not again or any(each.elsewhere for each in again):
            self._route(kept, any(each.state == "UNKNOWN" for each in again))

    def _record(self) -> None:
        rows, self._results = self._results, []
        if rows:
            self.endings.record(rows)

    # ---- afterwards ----

    def _sweep(self, kept: ExitStack) -> None:
        """Rolls back copies that the broker put back while it did not see our answers yet, and verifies the answers.

        A broker that checks again and again in a second may put back another copy meanwhile: then this is repeated.
        """
        losses = 0
        for _ in range(_SWEEPS if self._sent else 0):
            try:
                self._record()
                if not (copies := self._swept(kept)):
                    return
            except _NO_ANSWER:
                if (losses := losses + 1) > _MOST_LOSSES:
                    raise
                self._route(kept)
                continue
            _LOG.info("broker %s has put back %d copies of what was ended", self.broker.name, copies)

    def _swept(self, kept: ExitStack) -> int:
        """Returns how many transactions went on, and were rolled back."""
        self._wait_until(self._last + self._owner.settles)
        self._wait_for_check()
        self._guard.look(self._owner, ())
        answers, once = list(self._sent.values()), self._sent.keys() - self._verified - self._repeated
        earlier = {key for key, each in self.known.items() if each.state == "SENT"}
        copies = Effects(self._owner, self._guard).going_on(answers, once, earlier)
        self._repeated |= {row.key for row in copies} & once
        for batch in _batches(copies, self.broker.batch):
            self._batch(batch, kept, sent_before=True)
        self._verify(Effects(self._owner, self._guard))
        return len(copies)

    def _wait_for_check(self) -> None:
        """Waits until a round of the broker's check that began before our answers could be seen puts nothing back."""
        if self._owner.is_gateway:  # it puts nothing back
            return
        deadline = self._last + self._owner.settles + self._owner.check_interval + _LONGEST_ROUND
        pause = min(1.0, max(0.05, self._owner.check_interval.total_seconds() / 10))
        while datetime.now(timezone.utc) < deadline:
            if self._guard.has_checked(self._owner, self._sent.values()):
                return
            time.sleep(pause)

    def _verify(self, effects: Effects) -> None:
        """Notes what the broker shows by now of the answers that it has taken."""
        unsure = [each for key, each in self._sent.items() if key not in self._verified]
        for batch in _batches(unsure, self.broker.batch):
            for (row, place), state, remark in effects.seen(batch):
                self._verified.add(row.key)
                self._results.append(self.clerk.ending(row, state, remark, sent=place))


_NO_ANSWER = (ConnectionLost, Unreachable)
T = TypeVar("T")


def _batches(rows: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (rows[start : start + size] for start in range(0, len(rows), size))
