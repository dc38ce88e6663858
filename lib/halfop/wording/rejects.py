"""What a call has rejected, in its summary and as warnings: each reason with number, example, and what is allowed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from halfop.frame.summary import Summary, add_counts
from halfop.wording.meanings import REJECTS, urgency

_LANDS_LATER = "Land its half message: it then finds the op"
_OWN_HEADER = "A header names what its half message has"
# What is allowed, or what to do. The text of a bad row of a file says itself what was expected.
ALLOWED = {
    "CONFLICT": "A transaction has one end: ask its producer which one is true",
    "KEY_REUSED": "A key is one message for ever: land --accept-rewind begins the broker's new life",
    "REDUNDANT": "Nothing is to do",
    "HALF_REJECTED": "Land the half message again, corrected",
    "HALF_NEVER_LANDED": _LANDS_LATER,
    "HALF_BEFORE_LANDING": _LANDS_LATER,
    "WRONG_PRODUCER_GROUP": _OWN_HEADER,
    "WRONG_STATE_TABLE_OFFSET": _OWN_HEADER,
    "WRONG_COMMIT_LOG_OFFSET": _OWN_HEADER,
    "TOO_LATE": "A producer ends a message within the immunity that it gave it; later it answers a check",
    "ILLEGAL_TAG": "An op message has tag d",
    "NULL_BODY": "An op message's body is half offsets, joined by commas",
    "GARBAGE_OFFSET": "An op item is a whole number of at least 0, without spaces",
    "NO_OUTCOME": "An outcome is COMMIT or ROLLBACK",
    "BAD_REAL_TOPIC": "A topic has 1 to 127 characters: letters a to z and A to Z, digits, _ - % and |",
    "BAD_REAL_QUEUE": "REAL_QID is a whole number of at least 0",
    "SYSTEM_TOPIC": "A topic of its own, whose name RocketMQ does not reserve",
    "UNKNOWN": "Only what has landed and is discarded can be resumed",
    "ENDED": "Only what is discarded can be resumed",
    "OPEN": "Only what is discarded can be resumed",
    "LOST_BY_BROKER": "Nothing is to do: what was open there is discarded",
    "LOST_RANGE": "Repair it: a later landing reads it",
    "FOUND_RANGE": "Nothing is to do",
}


class Reject(NamedTuple):
    """The rejects of one kind and reason: their number, and where and what one of them is."""

    kind: str
    reason: str
    rows: int
    place: str
    detail: str

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.reason}"


def tell(log: logging.Logger, who: str, summary: Summary, found: Iterable[Reject]) -> None:
    """Adds rejects to the summary, and warns of each reason; what matters most comes first."""
    every = sorted(found, key=lambda each: (urgency(each.reason), -each.rows, each.name))
    add_counts(summary.extra.setdefault("rejected", {}), {each.name: each.rows for each in every})
    for each in every:
        log.warning("%s rejected %s", who, _worded(each))


def _worded(each: Reject) -> str:
    meaning = f" ({REJECTS[each.reason]})" if each.reason in REJECTS else ""
    example = ": ".join(filter(None, (each.place, each.detail)))
    allowed = f". {ALLOWED[each.reason]}" if each.reason in ALLOWED else ""
    rows = "1 row" if each.rows == 1 else f"{each.rows:,} rows"
    return f"{rows} as {each.name}{meaning}; one of them: {example}{allowed}. Table rejected has all"
