"""END_TRANSACTION: its header, and the checks that a broker makes before a transaction ends."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from halfop.gateway.fields import a_flag, a_long, an_int, text
from halfop.gateway.frames import Request
from halfop.gateway.log.messages import End, Half, Outcome
from halfop.gateway.refused import Refused
from halfop.rocketmq.numbers import parse_long
from halfop.rocketmq.wire.codes import COMMIT_TYPE, NOT_TYPE, ROLLBACK_TYPE, AnswerCode
from halfop.settings.model import RuleSettings

_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_ID = 255


class EndRequest(NamedTuple):
    """The header of END_TRANSACTION; `kind` is COMMIT_TYPE, ROLLBACK_TYPE, or NOT_TYPE, which is not answered."""

    group: str
    state_table_offset: int
    commit_log_offset: int
    kind: int
    from_check: bool
    transaction_id: str | None

    @property
    def ends(self) -> bool:
        return self.kind in (COMMIT_TYPE, ROLLBACK_TYPE)

    def end(self, at_ms: int) -> End:
        """The end that it asks for, if it was found to be in time at that instant."""
        outcome: Outcome = "COMMIT" if self.kind == COMMIT_TYPE else "ROLLBACK"
        return End(outcome, self.from_check, self.group, self.transaction_id, at_ms)


def end_request(request: Request) -> EndRequest:
    """The header's fields. Raises Refused."""
    fields = request.fields
    kind = an_int(fields, "commitOrRollback")
    if kind not in (NOT_TYPE, COMMIT_TYPE, ROLLBACK_TYPE):
        raise Refused(AnswerCode.SYSTEM_ERROR, "commitOrRollback field wrong")
    return EndRequest(
        text(fields, "producerGroup"),
        a_long(fields, "tranStateTableOffset"),
        a_long(fields, "commitLogOffset"),
        kind,
        a_flag(fields, "fromTransactionCheck"),
        _id(fields.get("transactionId")),
    )


def _id(text: str | None) -> str | None:
    """The transaction's id, to be kept with its end: none that would change the other properties of an op message."""
    return text if text is not None and len(text) <= _LONGEST_ID and text.isprintable() else None


def check(asked: EndRequest, half: Half | None, now_ms: int, rules: RuleSettings) -> Half:
    """The half message that the request names. Raises Refused with the broker's codes and remarks, in its order."""
    if half is None:
        raise not_found()
    if not asked.from_check and half.immunity and now_ms - half.born_ms > _immune_ms(half, rules):
        raise Refused(AnswerCode.ILLEGAL_OPERATION, "TOO_LATE: its check immunity is over, so it is asked about")
    if half.group != asked.group:
        raise Refused(AnswerCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != asked.state_table_offset:
        raise Refused(AnswerCode.SYSTEM_ERROR, "The transaction state table offset wrong")
    return half


def _immune_ms(half: Half, rules: RuleSettings) -> int:
    """How long a producer may end the transaction without having been asked: its own immunity, or the timeout."""
    seconds, timeout = parse_long(half.immunity), _timeout(half, rules) // _MILLISECOND
    return timeout if seconds is None or seconds == -1 else max(seconds * 1000, timeout)


def _timeout(half: Half, rules: RuleSettings) -> timedelta:
    for own in (rules.topics.get(half.topic), rules.groups.get(half.group)):
        if own is not None and own.transaction_timeout is not None:
            return own.transaction_timeout
    return rules.transaction_timeout


def not_found() -> Refused:
    """A new one for each request: an exception that is raised again keeps the frames of all before."""
    return Refused(AnswerCode.SYSTEM_ERROR, "Find prepared transaction message failed")
