"""Op messages: their items, headers and order, and keys that are used again: one look at one half message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from model.strategies import op_rows

from support.rules.rule_case import Case, Landed
from support.rules.rule_words import ANOTHER_MESSAGE, LONG_MAX, NOW, SECOND, batch, commit, half, headed, op, rollback

ITEMS = [
    *[
        Case(f"item {text!r}", [half(), *batch(text)], "COMMIT PRODUCER")
        for text in ("0", "+0", "00", "-0", "0,", ",0", ",,0,,")
    ],
    *[
        Case(f"garbage {text!r}", [half(), *batch(f"{text},0")], "COMMIT PRODUCER", ["OP GARBAGE_OFFSET"])
        for text in (" 0", "0 ", "0.0", "x", "-1", "9223372036854775808", "\u0660")
    ],
    Case(
        "a row that names a negative offset", [half(), commit(half_offset=-1)], "CHECK TIMEOUT", ["OP GARBAGE_OFFSET"]
    ),
    Case("garbage alone", [half(), *batch(" 0")], "CHECK TIMEOUT", ["OP GARBAGE_OFFSET"]),
    Case("several of garbage", [half(), *batch("x,0,y")], "COMMIT PRODUCER", ["OP GARBAGE_OFFSET"] * 2),
    Case("empty items", [half(), replace(commit(), body=",", half_offset=None)], "CHECK TIMEOUT"),
    Case(
        "a batch of commits and rollbacks",
        [half(), half(1), *op_rows(("", 0), 0, "1,0,", ["COMMIT", "ROLLBACK"], NOW)],
        "ROLLBACK PRODUCER",
    ),
    Case(
        "no double on the way", [half(), half(LONG_MAX - 1), commit(LONG_MAX), commit(LONG_MAX - 1, 1)], "CHECK TIMEOUT"
    ),
    *[Case(f"tag {tag}", [half(), commit(tag=tag)], "CHECK TIMEOUT", ["OP ILLEGAL_TAG"]) for tag in (None, "D", "dd")],
    Case("no body", [half(), commit(body=None, half_offset=None)], "CHECK TIMEOUT", ["OP NULL_BODY"]),
    Case("empty body", [half(), commit(body="", half_offset=None)], "CHECK TIMEOUT", ["OP NULL_BODY"]),
    *[
        Case(f"outcome {text}", [half(), op(text)], "CHECK TIMEOUT", ["OP NO_OUTCOME"])
        for text in (None, "UNKNOWN", "commit")
    ],
]

HEADERS = [
    Case("header that is right", [half(), headed()], "COMMIT PRODUCER"),
    Case("header of another group", [half(), headed(group="other")], "CHECK TIMEOUT", ["OP WRONG_PRODUCER_GROUP"]),
    Case(
        "header of another offset",
        [half(), headed(tran_state_table_offset=1)],
        "CHECK TIMEOUT",
        ["OP WRONG_STATE_TABLE_OFFSET"],
    ),
    Case(
        "header of another place",
        [half(), headed(commit_log_offset=1)],
        "CHECK TIMEOUT",
        ["OP WRONG_COMMIT_LOG_OFFSET"],
    ),
    Case(
        "group before offset",
        [half(), headed(group="x", tran_state_table_offset=9, commit_log_offset=9)],
        "CHECK TIMEOUT",
        ["OP WRONG_PRODUCER_GROUP"],
    ),
    Case(
        "offset before place",
        [half(), headed(tran_state_table_offset=9, commit_log_offset=9)],
        "CHECK TIMEOUT",
        ["OP WRONG_STATE_TABLE_OFFSET"],
    ),
    Case("header in parts", [half(), headed(group=None, commit_log_offset=None)], "COMMIT PRODUCER"),
    Case("no header is trusted", [half(), commit()], "COMMIT PRODUCER"),
    Case(
        "a wrong one leaves the way to a right one",
        [half(), headed(group="x"), rollback(offset=1)],
        "ROLLBACK PRODUCER",
        ["OP WRONG_PRODUCER_GROUP"],
    ),
    *[
        Case(
            f"header of no group {group!r}",
            [half(group=group), headed(group="g")],
            "DISCARD NO_PRODUCER_GROUP",
            ["OP WRONG_PRODUCER_GROUP"],
        )
        for group in (None, "")
    ],
]


def late(took: int, immunity: str | None, **columns: Any) -> list[Landed]:
    return [half(age=100 * SECOND, immunity=immunity), headed(born=NOW - 100 * SECOND + took, **columns)]


_HEADER = ("group", "tran_state_table_offset", "commit_log_offset", "uniq_key")
_ONLY = {field: dict.fromkeys(other for other in _HEADER if other != field) for field in _HEADER}

TOO_LATE = [
    Case("late", late(30_001, "30"), "CHECK TIMEOUT", ["OP TOO_LATE"]),
    Case("just in time", late(30_000, "30"), "COMMIT PRODUCER"),
    Case("the timeout where it is longer", late(6_000, "1"), "COMMIT PRODUCER"),
    Case("late after the timeout", late(6_001, "1"), "CHECK TIMEOUT", ["OP TOO_LATE"]),
    Case("late with garbage for an immunity", late(6_001, "x"), "CHECK TIMEOUT", ["OP TOO_LATE"]),
    Case("never late for ever", late(99_000, "9223372036854776"), "COMMIT PRODUCER"),
    Case("never late without own immunity", late(99_000, None), "COMMIT PRODUCER"),
    Case("never late with an empty immunity", late(99_000, ""), "COMMIT PRODUCER"),
    Case("never late from a check", late(99_000, "1", from_check=True), "COMMIT CHECK"),
    Case("never late where nobody knows", late(99_000, "1", from_check=None), "COMMIT PRODUCER"),
    Case("never late where a gateway has judged it", late(99_000, "1", source="GATEWAY"), "COMMIT PRODUCER"),
    Case(
        "a gateway's header is checked all the same",
        late(0, "1", source="GATEWAY", group="x"),
        "CHECK TIMEOUT",
        ["OP WRONG_PRODUCER_GROUP"],
    ),
    *[
        Case(
            f"late with {field} alone for a header", late(6_001, "1", **_ONLY[field]), "CHECK TIMEOUT", ["OP TOO_LATE"]
        )
        for field in _ONLY
    ],
    Case(
        "never late without a header",
        [half(age=100 * SECOND, immunity="1"), commit(from_check=False)],
        "COMMIT PRODUCER",
    ),
]

SEVERAL = [
    Case("lowest offset", [half(), commit(offset=7), rollback(offset=5)], "ROLLBACK PRODUCER", ["OP CONFLICT"]),
    Case(
        "lowest item",
        [half(), *op_rows(("", 0), 0, "0,0", ["ROLLBACK", "COMMIT"], NOW)],
        "ROLLBACK PRODUCER",
        ["OP CONFLICT"],
    ),
    Case(
        "lowest offset before lowest item",
        [half(), half(1), *op_rows(("", 0), 3, "1,0", ["COMMIT"], NOW), rollback(offset=4)],
        "COMMIT PRODUCER",
        ["OP CONFLICT"],
    ),
    Case("the same twice", [half(), commit(offset=7), commit(offset=5)], "COMMIT PRODUCER", ["OP REDUNDANT"]),
    Case("lowest valid one", [half(), op(None, offset=1), rollback(offset=2)], "ROLLBACK PRODUCER", ["OP NO_OUTCOME"]),
    Case("offsets are numbers", [half(), commit(offset=10), rollback(offset=9)], "ROLLBACK PRODUCER", ["OP CONFLICT"]),
    Case("rows that landed twice", [half(), half(), commit(), commit()], "COMMIT PRODUCER"),
    Case("one key, two outcomes", [half(), commit(), rollback()], "COMMIT PRODUCER", ["OP CONFLICT"]),
]

# The first is old enough to be asked about, the second is not.
TWO_UNDER_A_KEY: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("store time", {"commit_log_offset": 8}, {"store": NOW - 9 * SECOND, "commit_log_offset": 7}),
    (
        "place in the log",
        {"commit_log_offset": 7, "uniq_key": "z"},
        {"store": NOW - 10 * SECOND, "commit_log_offset": 8, "uniq_key": "a"},
    ),
    ("key", {"uniq_key": "a", "group": "z"}, {"store": NOW - 10 * SECOND, "uniq_key": "z", "group": "a"}),
]

REUSED = [
    *[
        Case(f"reused {[*other]}", [half(), half(**other)], "CHECK TIMEOUT", ["HALF KEY_REUSED"])
        for other in ANOTHER_MESSAGE
    ],
    Case("reused op", [half(), half(1), commit(), commit(store=NOW)], "COMMIT PRODUCER", ["OP KEY_REUSED"]),
    Case(
        "reused, without a group",
        [half(group=None, uniq_key=None), half(group=None, uniq_key=None, store=NOW - 5000)],
        "DISCARD NO_PRODUCER_GROUP",
        ["HALF KEY_REUSED"],
    ),
    *[
        Case(
            f"reused: the lower {name} is the first",
            [half(**first), half(age=SECOND, **second)],
            "CHECK TIMEOUT",
            ["HALF KEY_REUSED"],
        )
        for name, first, second in TWO_UNDER_A_KEY
    ],
    Case("garbled, then corrected", [half(real_qid="x"), half()], "CHECK TIMEOUT"),
    Case(
        "garbled, and then without a group",
        [half(real_qid="x"), half(group=None, commit_log_offset=7)],
        "DISCARD NO_PRODUCER_GROUP",
        ["HALF KEY_REUSED"],
    ),
    Case(
        "garbled, and another garbled one",
        [half(real_qid="x"), half(real_qid="y", commit_log_offset=7)],
        "REJECT BAD_REAL_QUEUE",
        ["HALF BAD_REAL_QUEUE", "HALF KEY_REUSED"],
    ),
    Case(
        "an op offset of two sources",
        [half(), commit(store=NOW, source="RESOLVE"), commit()],
        "COMMIT PRODUCER",
        ["OP REDUNDANT"],
    ),
    Case(
        "a long text",
        [half(), replace(commit(), body="x" * 300, half_offset=None)],
        "CHECK TIMEOUT",
        ["OP GARBAGE_OFFSET"],
    ),
    Case("an op offset of two lives", [half(), half(1), commit(), commit(1, store=NOW, life=2)], "COMMIT PRODUCER"),
]
