"""A batch of answers sent to a broker, what each of its codes means, and what the broker shows of their effects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from pyspark.sql import functions as F

from halfop.columns.keys import HALF_KEY, KEY_COLUMNS, Key, key_of
from halfop.ending.guard import Guard, Verdict
from halfop.ending.owner import Owner
from halfop.ending.plan import COMMIT, RESUME, ROLLBACK, PlannedPlace, Row
from halfop.ending.table import Clerk, Ending, Endings, State
from halfop.landing.progress import instant, next_instant
from halfop.landing.table_rows import RESOLVE
from halfop.planning.counts import covers, ranges_of
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.names import END_TAG, AnswerCode
from halfop.rocketmq.requests import Header
from halfop.rocketmq.wire.client import Broker, HalfPlace, end_transaction, resume_check
from halfop.rocketmq.wire.remoting import ConnectionLost
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold
from halfop.warehouse.where import all_of, equal

_GONE = "find prepared transaction message failed"
_MISMATCH = ("producer group wrong", "state table offset wrong", "commit log offset wrong")
_BUSY = (AnswerCode.SYSTEM_BUSY, AnswerCode.SERVICE_NOT_AVAILABLE, AnswerCode.FLOW_CONTROL)


class SentAnswer(NamedTuple):
    """A request's outcome. `again`: the row needs another look and perhaps another request, because the broker was
    busy (no state), or has perhaps not met or not stored this one (UNKNOWN); `elsewhere`: by a new connection, to the
    master then.
    """

    verdict: Verdict
    state: State | None
    code: int | None = None
    remark: str | None = None
    again: bool = False
    elsewhere: bool = False


def send(broker: Broker, verdicts: Sequence[Verdict]) -> Iterator[SentAnswer]:
    """Sends each answer at most once. After a loss, those that were not sent are not among the outcomes."""
    outcomes = broker.remote.stream_once([_request(each) for each in verdicts])
    for verdict, (_, answer) in zip(verdicts, outcomes, strict=False):
        yield _lost(verdict, answer) if isinstance(answer, ConnectionLost) else _answered(verdict, answer)


def _request(verdict: Verdict) -> Header:
    row, place = verdict.row, verdict.place
    if row.kind == RESUME:
        return resume_check(row.real_topic or "", place.commit_log_offset)
    half = HalfPlace(row.producer_group, row.uniq_key, row.real_topic, *place)
    return end_transaction(half, row.kind == COMMIT and not verdict.closes)


def _lost(verdict: Verdict, error: ConnectionLost) -> SentAnswer:
    return SentAnswer(verdict, "UNKNOWN", None, str(error), again=True, elsewhere=True)


def _answered(verdict: Verdict, answer: Frame) -> SentAnswer:
    if answer.code in _BUSY:
        return SentAnswer(verdict, None, answer.code, answer.remark, again=True)
    if answer.code == AnswerCode.SLAVE_NOT_AVAILABLE:
        return SentAnswer(verdict, None, answer.code, answer.remark, again=True, elsewhere=True)
    if answer.code == AnswerCode.FLUSH_DISK_TIMEOUT:  # a gateway's slow disk may have it yet
        return SentAnswer(verdict, "UNKNOWN", answer.code, answer.remark, again=True)
    state = "SENT" if verdict.closes else _state(answer)  # whatever it says: its final message is there
    return SentAnswer(verdict, state, answer.code, answer.remark or None)


def _state(answer: Frame) -> State:
    remark = answer.remark.lower()
    if answer.code == AnswerCode.SUCCESS:
        return "SENT"
    if _GONE in remark:
        return "GONE"
    return "MISMATCH" if any(text in remark for text in _MISMATCH) else "FAILED"


class TakenRow(NamedTuple):
    """A row to whose answer the broker said yes, and the half message that it named."""

    row: Row
    place: PlannedPlace


@dataclass(frozen=True)
class Effects:
    """The look after the answers. The guard has read the queues long enough after them."""

    owner: Owner
    guard: Guard

    def going_on(
        self, answers: Sequence[TakenRow], once: Collection[Key] = (), earlier: Collection[Key] = ()
    ) -> list[Row]:
        """Returns rows that end what goes on: later copies of what was ended are rolled back.

        A broker that dies can lose op messages, and one that takes its place final messages, too. So a later copy of
        what we committed is rolled back only if the broker shows the commit, and `once` more the answer itself is
        looked at if its own op message is missing: a landing would take the copy's for the end. Of lost commits only
        those of `earlier` calls are repeated.
        """
        live = [(each, self.guard.live_copy(each.row)) for each in answers if each.row.kind != RESUME]
        opened = [(each, place) for each, place in live if place is not None]
        finals = self.guard.finals(self.owner, [each.row for each, _ in opened])
        found: dict[Key, Row] = {}
        for n, (each, place) in enumerate(opened):
            row, has_later = each.row, place.queue_offset > each.place.queue_offset
            committed = row.kind == COMMIT and self._committed(each, finals.get(n))
            if row.kind == ROLLBACK:
                again = not has_later
            elif committed:
                again = bool(finals.get(n)) and not self._has_op(*each)
            else:
                again = row.key in earlier and self.guard.is_there(self.owner, *each)
            if again and row.key in once:
                found[row.key] = row
            elif has_later and (committed or row.kind == ROLLBACK):
                swept = _rolled_back(row, place)
                found[swept.key] = swept
        return list(found.values())

    def _committed(self, taken: TakenRow, finals: Sequence[int] | None) -> bool:
        """Without an index, a broker's answer is all that shows it."""
        row, place = taken
        return finals is None or self._delivered(row, finals) > 0 or self._has_op(row, place)

    def seen(self, answers: Sequence[TakenRow]) -> Iterator[tuple[TakenRow, State, str]]:
        """Yields the answers whose effects can be seen by now, each with what the broker shows of it."""
        finals = self.guard.finals(self.owner, [each.row for each in answers])
        for n, each in enumerate(answers):
            delivered = self._delivered(each.row, finals[n]) if n in finals else None
            if found := self._effect(each, delivered):
                yield each, *found

    def _effect(self, taken: TakenRow, delivered: int | None) -> tuple[State, str] | None:
        row, place = taken
        outcome = self.guard.outcome_of(row, place)
        if outcome is not None and outcome != row.kind:
            return "ENDED_MEANWHILE", f"its op message says {outcome}"
        wanted = 1 if row.kind == COMMIT else 0
        if delivered is not None and delivered > wanted:
            return "FAILED", f"delivered {delivered} times: somebody else has ended it, too"
        if not self._shown(taken, delivered is not None) or (delivered is not None and delivered < wanted):
            return None
        return "VERIFIED", "its new copy is there" if row.kind == RESUME else "its op message is there"

    def _shown(self, taken: TakenRow, counted: bool) -> bool:
        """The op message of the live copy counts, too, if deliveries were counted: the other one may have been lost."""
        row, place = taken
        if row.kind == RESUME:
            return len(self.guard.places(row)) > len(row.places)
        return self.guard.live_copy(row) is None and (counted or self._has_op(row, place))

    def _has_op(self, row: Row, place: PlannedPlace) -> bool:
        return self.guard.op_at(row, place) is not None

    def _delivered(self, row: Row, finals: Sequence[int]) -> int:
        own = {place.commit_log_offset for place in self.guard.places(row)}
        return sum(final in own for final in finals)


def _rolled_back(row: Row, live: PlannedPlace) -> Row:
    key = row.key._replace(queue_offset=live.queue_offset)
    return row._replace(key=key, kind=ROLLBACK, origin="SWEEP", places=(live,))


# ---- answers for brokers that nobody reaches, because their messages land by files: op rows ----

_OPS = "op_messages"
_WAIT = timedelta(minutes=10)  # for a landing
# Above every offset of a broker: what a producer has answered counts first, if a run sees both. Half offsets from there
# on keep their own, as another item.
FIRST_OFFSET = 2**62


def land_answers(
    warehouse: KernelWarehouse, rows: Sequence[Row], made: datetime, clerk: Clerk, endings: Endings
) -> None:
    """Lands an op row for each transaction that has none of ours yet; a reconcile then decides.

    A second call after a kill writes the same rows, of the plan's instant `made`, so they count once.
    """
    with hold(warehouse, "landing", _WAIT):
        warehouse.make(_OPS)
        answered = _answered_before(warehouse, rows)
        todo = [row for row in rows if row.key not in answered]
        endings.record([clerk.ending(row, "INTENDED", sent=row.places[-1]) for row in todo])
        at = next_instant(warehouse)
        warehouse.commit(_OPS, [_op(row, made) | {"landed_at": instant(at)} for row in todo])
    sent = [clerk.ending(row, "SENT", "an op row has landed: a reconcile decides", sent=row.places[-1]) for row in todo]
    others = [row for row in rows if row.key in answered]
    endings.record(sent + [_before(clerk, row, answered[row.key]) for row in others])


def _before(clerk: Clerk, row: Row, outcome: str) -> Ending:
    """The record of a half message whose op row has landed before: that stands, also if another plan made it."""
    state: State = "SENT" if outcome == row.kind else "ENDED_MEANWHILE"
    return clerk.ending(row, state, f"an op row with {outcome} had landed", sent=row.places[-1])


def _answered_before(warehouse: KernelWarehouse, rows: Sequence[Row]) -> dict[Key, str]:
    """The outcomes of half messages for which an op row of ours has landed."""
    keys = warehouse.frame([row.key for row in rows], KEY_COLUMNS)
    near = covers(ranges_of(keys, "queue_offset"), "half_offset")
    if near is None:
        return {}
    ops = warehouse.read(_OPS, where=all_of(near, equal("source", RESOLVE)))
    named = ops.select("broker_name", "queue_id", F.col("half_offset").alias("queue_offset"), "outcome")
    found = named.join(keys, HALF_KEY, "left_semi").collect()
    return {key_of(row): row["outcome"] for row in found}


def _op(row: Row, made: datetime) -> dict[str, object]:
    live = row.places[-1]
    header = {"producer_group": row.producer_group, "uniq_key": row.uniq_key, "commit_log_offset": live[1]}
    return {
        "broker_name": row.key.broker_name,
        "queue_id": row.key.queue_id,
        "queue_offset": FIRST_OFFSET | live.queue_offset,
        "item": live.queue_offset // FIRST_OFFSET,
        "tag": END_TAG,
        "body": str(live.queue_offset),
        "half_offset": live.queue_offset,
        "outcome": row.kind,
        "from_check": True,
        "born_timestamp": made,
        "store_timestamp": made,
        "tran_state_table_offset": live.queue_offset,
        "source": RESOLVE,
        **header,
    }
