"""Stories in which halfop does what the broker does not: each is a feature."""

from __future__ import annotations

from typing import Any

from model import reference as m

from support.rules.rule_case import Case
from support.rules.rule_words import (
    HOUR,
    LONG_MAX,
    MINUTE,
    NOW,
    SECOND,
    asked,
    commit,
    half,
    rollback,
)

RUNS = [NOW, NOW + MINUTE - 1, NOW + MINUTE, NOW + 2 * MINUTE, NOW + 72 * HOUR, NOW + 72 * HOUR + MINUTE]
STORY_RULES = m.Settings(groups={"once": m.Override(check_max=1), "twice": m.Override(check_max=2)})
ASKED_ONCE = ["CHECK TIMEOUT", "WAIT CHECKED_RECENTLY", "DISCARD CHECKED_TOO_OFTEN"]
OPEN = ["CHECK TIMEOUT", "WAIT CHECKED_RECENTLY", "CHECK TIMEOUT", "CHECK TIMEOUT", "DISCARD EXPIRED", ""]


def once(**columns: Any) -> m.Half:
    return half(group="once", **columns)


UNLIKE_THE_BROKER = [
    Case(
        "time does not pass while ops do not land: no needless check",
        [half(age=5 * SECOND)],
        ["WAIT IMMUNE"] * 5 + ["CHECK TIMEOUT"],
        known=dict.fromkeys(range(5), NOW) | {5: NOW + 1001},
    ),
    Case(
        "time does not pass while ops do not land: no wrong discard",
        {0: [once()], 5: [commit()]},
        ["CHECK TIMEOUT"] + ["WAIT CHECKED_RECENTLY"] * 4 + ["COMMIT PRODUCER"],
        known=dict.fromkeys(range(5), NOW),
    ),
    Case(
        "raised within its own immunity without asking: never checked",
        [asked(15, 0, age=10 * SECOND, store=NOW - 4 * SECOND, immunity="6")],
        OPEN,
    ),
    Case(
        "raised after its own immunity: checked",
        [asked(15, 0, age=10 * SECOND, store=NOW - 4 * SECOND + 1, immunity="6")],
        ["WAIT CHECKED_RECENTLY", "DISCARD CHECKED_TOO_OFTEN", "", "", "", ""],
    ),
    Case(
        "no discard before every landed op is heard: checked too often",
        [asked(15, MINUTE), commit(offset=LONG_MAX)],
        ["COMMIT PRODUCER", "", "", "", "", ""],
    ),
    Case(
        "no discard before every landed op is heard: expired",
        [half(age=80 * HOUR), rollback()],
        ["ROLLBACK PRODUCER", "", "", "", "", ""],
    ),
    Case("a wait never counts as a check", [half(immunity="3600")], ["WAIT IMMUNE"] * 4 + ["DISCARD EXPIRED", ""]),
    Case(
        "one open message never hides another",
        [half(1, store=NOW + 99 * HOUR), half(2, immunity="999999"), half(3, age=10 * SECOND)],
        OPEN,
        offset=3,
    ),
    Case("the last check gets its time to be answered", [once()], [*ASKED_ONCE, "", "", ""]),
    Case(
        "the last check gets its time to be answered: and is",
        {0: [once()], 1: [commit()]},
        ["CHECK TIMEOUT", "COMMIT PRODUCER", "", "", "", ""],
    ),
    Case("nothing is put back", [half()], OPEN),
    Case(
        "a second commit delivers nothing",
        {0: [half(), commit()], 1: [commit(offset=1)]},
        ["COMMIT PRODUCER", "", "", "", "", ""],
        ["OP REDUNDANT"],
    ),
    Case("an op after a discard shows", {0: [once()], 3: [commit()]}, [*ASKED_ONCE, "COMMIT AFTER_DISCARD", "", ""]),
    Case(
        "a resumed message that lands again stays open",
        {0: [half(age=72 * HOUR + 1)], 2: [half(age=72 * HOUR + 1)]},
        ["DISCARD EXPIRED", *OPEN[:1], "WAIT CHECKED_RECENTLY", "CHECK TIMEOUT", "CHECK TIMEOUT", "DISCARD EXPIRED"],
        resumes={1: [0]},
    ),
    Case(
        "the age of a resumed message counts from the resume",
        [half(age=72 * HOUR + 1)],
        ["DISCARD EXPIRED", *OPEN[:1], "WAIT CHECKED_RECENTLY", "CHECK TIMEOUT", "CHECK TIMEOUT", "DISCARD EXPIRED"],
        resumes={1: [0]},
    ),
]
