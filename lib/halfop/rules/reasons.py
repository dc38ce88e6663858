"""Reasons of decisions and of rejects: each once, in the order of docs/rules.md, with its words for people.

`LINES` is the decision table of that page. The table of Columns, explain, the report and the warnings take names and
words from here; this module imports nothing, and every room may read it.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import NamedTuple

_LAND_HALF = "Land its half message: it then finds the op"
_HEADER = "A header names what its half message has"
_DISCARDED = "Only what is discarded can be resumed"


@unique
class Reason(Enum):
    """A reason by its name in the tables, with its rule's words; rejects also say what is allowed, or what to do.

    `plain` says it to people who do not know the rules, if the words do not.
    """

    # of the decision table
    BAD_REAL_TOPIC = (
        "no or illegal REAL_TOPIC",
        "A topic has 1 to 127 characters: letters a to z and A to Z, digits, _ - % and |",
    )
    BAD_REAL_QUEUE = "no, non-numeric or negative REAL_QID", "REAL_QID is a whole number of at least 0"
    SYSTEM_TOPIC = (
        "a real topic that RocketMQ never lets a client send to",
        "A real topic has a name that RocketMQ does not reserve",
    )
    PRODUCER = "the producer ended its transaction"
    CHECK = "the producer answered a check"
    FINAL = "a broker's final message is the proof; its op was lost"
    BROKER_DISCARDED = "the broker itself gave it up (see put-back copies)", "", "the broker itself gave it up"
    LOST_BY_BROKER = (
        "it had landed, and its broker lost it with the end of its log",
        "There is nothing to do: what was open there is discarded",
    )
    FORGOTTEN_BY_BROKER = (
        "its broker keeps it in RocksDB, and has forgotten it by its own limit and interval",
        "",
        "its broker asked as often as it does, and forgot it",
    )
    CHECKED_TOO_OFTEN = (
        "check times ≥ transaction_check_max, and never checked or last checked at least transaction_check_interval "
        "ago",
        "",
        "its producer was asked transaction_check_max times, and did not answer",
    )
    EXPIRED = (
        "age > file_reserved_time, and never checked or last checked at least transaction_check_interval ago",
        "",
        "older than file_reserved_time",
    )
    FRESH = "store_timestamp ≥ queue clock", "", "newer than what is known of its queue's ops"
    IMMUNE = "young enough to be left alone, by its own immunity or transaction_timeout"
    CHECKED_RECENTLY = "it was checked less than transaction_check_interval ago"
    NO_PRODUCER_GROUP = (
        "no PGROUP: nobody can ever be asked. A discard, no reject: an op that lands later still ends it "
        "(≠ broker: it counts fifteen questions to nobody)",
        "",
        "it names no producer group, so nobody can be asked",
    )
    CHECK_LIMIT = "rules.checks_a_run questions have been given to older messages of its group in this run"
    TIMEOUT = "old enough to ask"
    CLOCK_SKEW = "born in the future, so asked at once"
    # of the page's other parts: of decisions, rejected ops and resumes
    BROKER_ASKS = (
        "line 5, 6, 10a or 11 would ask or discard, but halfop only watches: the broker does that",
        "",
        "halfop only watches: the broker asks and discards",
    )
    END_NOT_SEEN = "halfop only watched, and watch_for has passed without an end"
    HALF_REJECTED = (
        "its half message was rejected; a corrected one that lands later finds its ops",
        "Land the half message again, corrected",
    )
    GARBAGE_OFFSET = "an op item that is no half offset", "An op item is a whole number of at least 0, without spaces"
    ILLEGAL_TAG = "an op message with another tag than d", "An op message has tag d"
    NULL_BODY = "an op message without a body", "An op message's body is half offsets, joined by commas"
    NO_OUTCOME = "an op without COMMIT or ROLLBACK; it ends nothing", "An outcome is COMMIT or ROLLBACK"
    WRONG_PRODUCER_GROUP = "an op whose header names another producer group; the message stays open", _HEADER
    WRONG_STATE_TABLE_OFFSET = "an op whose header names another half offset; the message stays open", _HEADER
    WRONG_COMMIT_LOG_OFFSET = "an op whose header names another commit log offset; the message stays open", _HEADER
    TOO_LATE = (
        "an end that came after the message's own immunity; the message stays open",
        "A producer ends a message within the immunity that it gave it; later it answers a check",
    )
    REDUNDANT = "an op that says again how the transaction had ended; harmless", "There is nothing to do"
    CONFLICT = (
        "an op that says the opposite of how the transaction had ended; the first end stands",
        "A transaction has one end: ask its producer which one is true. If `end` has committed it "
        "(table endings), it may be the rollback of a later copy, and there is nothing to do",
    )
    HALF_NEVER_LANDED = (
        "an op whose half message has not landed within file_reserved_time; if it lands later, it finds the op",
        _LAND_HALF,
    )
    HALF_BEFORE_LANDING = (
        "an op of a half message before the first that landed, or (RocksDB) from whose place none has landed; "
        "if it lands later, it finds the op",
        f"{_LAND_HALF}. If it ended, and `maintain` removed it, there is nothing to do",
    )
    AFTER_DISCARD = "a valid op landed after the message had been discarded"
    UNKNOWN = "a resume of a message that has not landed", "Only what has landed and is discarded can be resumed"
    ENDED = "a resume of a message that has ended", _DISCARDED
    OPEN = "a resume of a message that is open", _DISCARDED
    KEY_REUSED = (
        "another message or op under a key that stands: a broker was rebuilt under its old name",
        "A key is one message for ever: land --accept-rewind begins the broker's new life",
    )
    ALREADY_ENDED = "a put-back copy that landed after its transaction had ended"
    # ranges that a landing could not read: docs/landing.md
    LOST_RANGE = "a part of a broker's log that could not be read", "Repair it: a later landing reads it"
    FOUND_RANGE = "a lost part of a broker's log that was read later", "There is nothing to do"

    def __init__(self, words: str, allowed: str = "", plain: str = "") -> None:
        self.words, self.allowed, self.plain = words, allowed, plain or words

    @property
    def line(self) -> Line:
        """The first line that gives this reason."""
        return next(line for line in LINES if self in line.reasons)


class Line(NamedTuple):
    """A line of the decision table: its number and decision, and when it holds: as its only reason says, or `when`."""

    number: str
    decision: str
    reasons: tuple[Reason, ...]
    when: str = ""

    @property
    def holds(self) -> str:
        return self.when or self.reasons[0].words


LINES = (
    Line(
        "1",
        "REJECT",
        (Reason.BAD_REAL_TOPIC, Reason.BAD_REAL_QUEUE, Reason.SYSTEM_TOPIC),
        "it cannot ever be delivered: no or illegal REAL_TOPIC, no, non-numeric or negative REAL_QID, a real topic "
        "that RocketMQ never lets a client send to (its NOT_ALLOWED_SEND set, and rmq_sys_… in any case)",
    ),
    Line("2", "COMMIT", (Reason.PRODUCER, Reason.CHECK, Reason.FINAL), "a valid op names it, outcome commit"),
    Line("3", "ROLLBACK", (Reason.PRODUCER, Reason.CHECK), "a valid op names it, outcome rollback"),
    Line("4", "DISCARD", (Reason.BROKER_DISCARDED,)),
    Line(
        "4a",
        "DISCARD",
        (Reason.LOST_BY_BROKER,),
        "its broker lost all copies of it (see lives of a broker), and it has not been resumed since",
    ),
    Line("4b", "DISCARD", (Reason.FORGOTTEN_BY_BROKER,)),
    Line("5", "DISCARD", (Reason.CHECKED_TOO_OFTEN,)),
    Line("6", "DISCARD", (Reason.EXPIRED,)),
    Line("7", "WAIT", (Reason.FRESH,)),
    Line("8", "WAIT", (Reason.IMMUNE,), "it carries CHECK_IMMUNITY_TIME_IN_SECONDS and age ≤ that immunity"),
    Line("9", "WAIT", (Reason.IMMUNE,), "it carries none, and 0 ≤ age ≤ transaction_timeout"),
    Line("10", "WAIT", (Reason.CHECKED_RECENTLY,)),
    Line("10a", "DISCARD", (Reason.NO_PRODUCER_GROUP,)),
    Line("10b", "WAIT", (Reason.CHECK_LIMIT,)),
    Line("11", "CHECK", (Reason.TIMEOUT, Reason.CLOCK_SKEW), "otherwise"),
)
_WITHOUT_REASON = {
    "SUPERSEDED": "a later put-back copy stands for the transaction",
    "EARLY_OP": "an op that waits, because its half message has not landed",
}
_URGENT, HARMLESS = (Reason.CONFLICT, Reason.KEY_REUSED), (Reason.REDUNDANT, Reason.FOUND_RANGE)


def known(name: str | None) -> Reason | None:
    """Returns the reason of that name; None for a fault of an input row, which says itself what was expected."""
    return Reason.__members__.get(name or "")


def words(name: str | None) -> str:
    """Returns what a reason says to people, empty if it is none of these."""
    found = known(name)
    return found.words if found else ""


def allowed(name: str) -> str:
    """Returns what is allowed, or what to do, about a reject; empty if the reason is none of these."""
    found = known(name)
    return found.allowed if found else ""


def meaning(decision: str, reason: str | None) -> str:
    """Returns why a decision was made; some decisions have no reason beside them."""
    return words(reason) or _WITHOUT_REASON.get(decision, "")


def plain(decision: str, reason: str | None) -> str:
    """Returns why a decision was made, to people who do not know the rules."""
    found = known(reason)
    return found.plain if found else meaning(decision, reason)


def line(decision: str, reason: str | None, own_immunity: bool = False) -> Line | None:
    """Returns the line of the table that held, if one did. Lines 8 and 9 have one decision and reason."""
    found = [each for each in LINES if each.decision == decision and known(reason) in each.reasons]
    return found[0 if own_immunity else -1] if found else None


def urgency(reason: str) -> int:
    """Returns what sorts rejects: marks of a double delivery or of a rebuilt broker first, harmless ones last."""
    return -1 if known(reason) in _URGENT else int(known(reason) in HARMLESS)
