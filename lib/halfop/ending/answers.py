"""A batch of answers sent to a broker, and what each of its codes means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from halfop.ending.endings import State
from halfop.ending.guard import Verdict
from halfop.ending.plan import COMMIT, RESUME
from halfop.rocketmq.codes import AnswerCode
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.requests import Header
from halfop.rocketmq.wire.client import Broker
from halfop.rocketmq.wire.ends import HalfPlace, end_transaction, resume_check
from halfop.rocketmq.wire.remoting import Lost

_GONE = "find prepared transaction message failed"
_MISMATCH = ("producer group wrong", "state table offset wrong", "commit log offset wrong")
_BUSY = (AnswerCode.SYSTEM_BUSY, AnswerCode.SERVICE_NOT_AVAILABLE, AnswerCode.FLOW_CONTROL)


class Sent(NamedTuple):
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


def send(broker: Broker, verdicts: Sequence[Verdict]) -> Iterator[Sent]:
    """Sends each answer at most once. After a loss, those that were not sent are not among the outcomes."""
    outcomes = broker.remote.stream_once([_request(each) for each in verdicts])
    for verdict, (_, answer) in zip(verdicts, outcomes, strict=False):
        yield _lost(verdict, answer) if isinstance(answer, Lost) else _answered(verdict, answer)


def _request(verdict: Verdict) -> Header:
    row, place = verdict.row, verdict.place
    if row.kind == RESUME:
        return resume_check(row.real_topic or "", place.commit_log_offset)
    half = HalfPlace(row.producer_group, row.uniq_key, row.real_topic, *place)
    return end_transaction(half, row.kind == COMMIT and not verdict.closes)


def _lost(verdict: Verdict, error: Lost) -> Sent:
    return Sent(verdict, "UNKNOWN", None, str(error), again=True, elsewhere=True)


def _answered(verdict: Verdict, answer: Frame) -> Sent:
    if answer.code in _BUSY:
        return Sent(verdict, None, answer.code, answer.remark, again=True)
    if answer.code == AnswerCode.SLAVE_NOT_AVAILABLE:
        return Sent(verdict, None, answer.code, answer.remark, again=True, elsewhere=True)
    if answer.code == AnswerCode.FLUSH_DISK_TIMEOUT:  # a gateway's slow disk may have it yet
        return Sent(verdict, "UNKNOWN", answer.code, answer.remark, again=True)
    state = "SENT" if verdict.closes else _state(answer)  # whatever it says: its final message is there
    return Sent(verdict, state, answer.code, answer.remark or None)


def _state(answer: Frame) -> State:
    remark = answer.remark.lower()
    if answer.code == AnswerCode.SUCCESS:
        return "SENT"
    if _GONE in remark:
        return "GONE"
    return "MISMATCH" if any(text in remark for text in _MISMATCH) else "FAILED"
