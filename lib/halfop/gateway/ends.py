"""END_TRANSACTION: what it asks for, and the checks that a broker makes before a transaction ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from halfop.gateway.log.messages import End, Half, Outcome
from halfop.gateway.refused import Refused, header_of
from halfop.rocketmq.codes import AnswerCode
from halfop.rocketmq.frames import Frame
from halfop.rocketmq.numbers import parse_long
from halfop.rocketmq.requests import COMMIT_TYPE, NOT_TYPE, ROLLBACK_TYPE, EndTransaction
from halfop.settings.model import RuleSettings

_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_ID = 255


def end_request(request: Frame) -> EndTransaction:
    """Returns the request's header, without an id that would change the other properties of an op message."""
    asked = header_of(EndTransaction, request)
    if asked.commit_or_rollback not in (NOT_TYPE, COMMIT_TYPE, ROLLBACK_TYPE):
        raise Refused(AnswerCode.SYSTEM_ERROR, "commitOrRollback field wrong")
    given = asked.transaction_id
    fits = given is None or (len(given) <= _LONGEST_ID and given.isprintable())
    return asked if fits else replace(asked, transaction_id=None)


def end_of(asked: EndTransaction, at_ms: int) -> End:
    """Returns the end that is asked for, if it was found to be in time at that instant."""
    outcome: Outcome = "COMMIT" if asked.commit_or_rollback == COMMIT_TYPE else "ROLLBACK"
    return End(outcome, asked.from_transaction_check, asked.producer_group, asked.transaction_id, at_ms)


def check(asked: EndTransaction, half: Half | None, now_ms: int, rules: RuleSettings) -> Half:
    """The half message that the request names. Raises Refused with the broker's codes and remarks, in its order."""
    if half is None:
        raise not_found()
    if not asked.from_transaction_check and half.immunity and now_ms - half.born_ms > _immune_ms(half, rules):
        raise Refused(AnswerCode.ILLEGAL_OPERATION, "TOO_LATE: its check immunity is over, so it is asked about")
    if half.group != asked.producer_group:
        raise Refused(AnswerCode.SYSTEM_ERROR, "The producer group wrong")
    if half.queue_offset != asked.tran_state_table_offset:
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
