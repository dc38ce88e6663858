"""The meaning of decisions and reasons, in the words of docs/rules.md: here once, for all readers."""

from __future__ import annotations

from typing import NamedTuple


class LineText(NamedTuple):
    """A line of the decision table: its number, and when it holds."""

    number: str
    holds: str


NEVER_DELIVERED = LineText(
    "1",
    "it cannot ever be delivered: no or illegal REAL_TOPIC, no, non-numeric or negative REAL_QID, a real topic that "
    "RocketMQ never lets a client send to (its NOT_ALLOWED_SEND set, and rmq_sys_… in any case)",
)
COMMITTED = LineText("2", "a valid op names it, outcome commit")
ROLLED_BACK = LineText("3", "a valid op names it, outcome rollback")
OWN_IMMUNITY = LineText("8", "it carries CHECK_IMMUNITY_TIME_IN_SECONDS and age ≤ that immunity")
OTHERWISE = LineText("11", "otherwise")

# Lines 8 and 9 have one reason: see `line`.
LINES = {
    ("REJECT", "BAD_REAL_TOPIC"): NEVER_DELIVERED,
    ("REJECT", "BAD_REAL_QUEUE"): NEVER_DELIVERED,
    ("REJECT", "SYSTEM_TOPIC"): NEVER_DELIVERED,
    ("COMMIT", "PRODUCER"): COMMITTED,
    ("COMMIT", "CHECK"): COMMITTED,
    ("COMMIT", "FINAL"): COMMITTED,
    ("ROLLBACK", "PRODUCER"): ROLLED_BACK,
    ("ROLLBACK", "CHECK"): ROLLED_BACK,
    ("DISCARD", "BROKER_DISCARDED"): LineText("4", "the broker itself gave it up (see put-back copies)"),
    ("DISCARD", "LOST_BY_BROKER"): LineText(
        "4a", "its broker lost all copies of it (see lives of a broker), and it has not been resumed since"
    ),
    ("DISCARD", "CHECKED_TOO_OFTEN"): LineText(
        "5",
        "check times ≥ transaction_check_max, and never checked or last checked at least transaction_check_interval "
        "ago",
    ),
    ("DISCARD", "EXPIRED"): LineText(
        "6", "age > file_reserved_time, and never checked or last checked at least transaction_check_interval ago"
    ),
    ("WAIT", "FRESH"): LineText("7", "store_timestamp ≥ queue clock"),
    ("WAIT", "IMMUNE"): LineText("9", "it carries none, and 0 ≤ age ≤ transaction_timeout"),
    ("WAIT", "CHECKED_RECENTLY"): LineText("10", "it was checked less than transaction_check_interval ago"),
    ("DISCARD", "NO_PRODUCER_GROUP"): LineText(
        "10a",
        "no PGROUP: nobody can ever be asked. A discard, no reject: an op that lands later still ends it "
        "(≠ broker: it counts fifteen questions to nobody)",
    ),
    ("WAIT", "CHECK_LIMIT"): LineText(
        "10b", "rules.checks_a_run questions have been given to older messages of its group in this run"
    ),
    ("CHECK", "TIMEOUT"): OTHERWISE,
    ("CHECK", "CLOCK_SKEW"): OTHERWISE,
}
# Decisions without a line of their own in that table.
OTHERS = {
    ("WAIT", "BROKER_ASKS"): "line 5, 6, 10a or 11 would ask or discard, but halfop only watches: the broker does that",
    ("DISCARD", "END_NOT_SEEN"): "halfop only watched, and watch_for has passed without an end",
    ("COMMIT", "AFTER_DISCARD"): "a valid op landed after the message had been discarded, outcome commit",
    ("ROLLBACK", "AFTER_DISCARD"): "a valid op landed after the message had been discarded, outcome rollback",
    ("SUPERSEDED", "ALREADY_ENDED"): "a put-back copy that landed after its transaction had ended",
    ("SUPERSEDED", "NONE"): "a later put-back copy stands for the transaction",
    ("EARLY_OP", "NONE"): "an op that waits, because its half message has not landed",
}
# The reason beside the line.
WHY = {
    "PRODUCER": "the producer ended its transaction",
    "CHECK": "the producer answered a check",
    "FINAL": "a broker's final message is the proof; its op was lost",
    "BAD_REAL_TOPIC": "no or illegal REAL_TOPIC",
    "BAD_REAL_QUEUE": "no, non-numeric or negative REAL_QID",
    "SYSTEM_TOPIC": "a real topic that RocketMQ never lets a client send to",
    "IMMUNE": "young enough to be left alone",
    "TIMEOUT": "old enough to ask",
    "CLOCK_SKEW": "born in the future, so asked at once",
}
REJECTS = {
    "CONFLICT": "an op that says the opposite of how the transaction had ended; the first end stands",
    "KEY_REUSED": "another message or op under a key that stands: a broker was rebuilt under its old name",
    "REDUNDANT": "an op that says again how the transaction had ended; harmless",
    "HALF_REJECTED": "an op of a half message that was rejected; a corrected one that lands later finds it",
    "HALF_NEVER_LANDED": (
        "an op whose half message has not landed within file_reserved_time; if it lands later, it finds the op"
    ),
    "HALF_BEFORE_LANDING": (
        "an op of a half message from before the first that landed; if it lands later, it finds the op"
    ),
    "WRONG_PRODUCER_GROUP": "an op whose header names another producer group; the message stays open",
    "WRONG_STATE_TABLE_OFFSET": "an op whose header names another half offset; the message stays open",
    "WRONG_COMMIT_LOG_OFFSET": "an op whose header names another commit log offset; the message stays open",
    "TOO_LATE": "the end of a message with its own immunity that came after it; the message stays open",
    "ILLEGAL_TAG": "an op message with another tag than d",
    "NULL_BODY": "an op message without a body",
    "GARBAGE_OFFSET": "an op item that is no half offset",
    "NO_OUTCOME": "an op without COMMIT or ROLLBACK; the message stays open",
    "BAD_REAL_TOPIC": "a half message with no or illegal REAL_TOPIC",
    "BAD_REAL_QUEUE": "a half message with no, non-numeric or negative REAL_QID",
    "SYSTEM_TOPIC": "a half message to a topic that RocketMQ never lets a client send to",
    "UNKNOWN": "a resume of a message that has not landed",
    "ENDED": "a resume of a message that has ended",
    "OPEN": "a resume of a message that is open",
    "LOST_BY_BROKER": "offsets that had landed, and that the broker lost with the end of its log",
    "LOST_RANGE": "a part of a broker's log that could not be read",
    "FOUND_RANGE": "a lost part of a broker's log that was read later",
}
# Reasons that are in neither come between.
_URGENT, _HARMLESS = ("CONFLICT", "KEY_REUSED"), ("REDUNDANT", "FOUND_RANGE")


def line(decision: str, reason: str | None, own_immunity: bool = False) -> LineText | None:
    """Returns the line of the table that held."""
    if reason == "IMMUNE" and own_immunity:
        return OWN_IMMUNITY
    return LINES.get((decision, reason or "NONE"))


def meaning(decision: str, reason: str | None) -> str:
    """Returns a reason in a few words."""
    key = (decision, reason or "NONE")
    if key == ("WAIT", "IMMUNE"):
        return "age ≤ its own immunity, or transaction_timeout if it has none"
    found = WHY.get(key[1]) or OTHERS.get(key)
    return found or (LINES[key].holds if key in LINES else "")


def urgency(reason: str) -> int:
    """Returns what sorts reasons of rejects: the marks of a double delivery or a rebuilt broker come first."""
    return -1 if reason in _URGENT else int(reason in _HARMLESS)
