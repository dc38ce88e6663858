"""The decision table, line by line in its order: one look at one half message."""

from __future__ import annotations

from dataclasses import replace

from halfop.columns.lives import Lost
from model import reference as m
from model.strategies import BAD_TOPICS, ODD_TOPICS, SYSTEM_TOPICS

from support.rows import instant
from support.rules.rule_case import Case
from support.rules.rule_words import HOUR, MINUTE, NOW, SECOND, asked, commit, half, rollback

RULES = m.Settings(
    groups={"quick": m.Override(transaction_timeout=1 * SECOND), "twice": m.Override(check_max=2)},
    topics={"Slow": m.Override(transaction_timeout=20 * SECOND), "Once": m.Override(check_max=1)},
)

UNDELIVERABLE = [
    *[
        Case(
            f"1 topic {n}",
            [half(real_topic=topic), commit()],
            "REJECT BAD_REAL_TOPIC",
            ["HALF BAD_REAL_TOPIC", "OP HALF_REJECTED"],
        )
        for n, topic in enumerate(BAD_TOPICS)
    ],
    *[
        Case(f"1 deliverable topic {topic[:20]}", [half(real_topic=topic), commit()], "COMMIT PRODUCER")
        for topic in ODD_TOPICS
    ],
    *[
        Case(f"1 queue {text}", [half(real_qid=text)], "REJECT BAD_REAL_QUEUE", ["HALF BAD_REAL_QUEUE"])
        for text in (None, "x", "-1")
    ],
    *[
        Case(f"1 system {topic}", [half(real_topic=topic)], "REJECT SYSTEM_TOPIC", ["HALF SYSTEM_TOPIC"])
        for topic in SYSTEM_TOPICS
    ],
]

ENDED = [
    Case("2 commit", [half(), commit()], "COMMIT PRODUCER"),
    Case("2 commit from a check", [half(), commit(from_check=True)], "COMMIT CHECK"),
    Case("2 commit not from a check", [half(), commit(from_check=False)], "COMMIT PRODUCER"),
    Case("3 rollback", [half(), rollback()], "ROLLBACK PRODUCER"),
    Case("3 rollback from a check", [half(), rollback(from_check=True)], "ROLLBACK CHECK"),
    Case("2 without a group", [half(group=None), commit()], "COMMIT PRODUCER"),
    Case("10a no group", [half(group=None)], "DISCARD NO_PRODUCER_GROUP"),
    Case("10a empty group", [half(group="")], "DISCARD NO_PRODUCER_GROUP"),
    Case("9 before 10a", [half(group=None, age=SECOND)], "WAIT IMMUNE"),
    Case("1 before 10a", [half(group=None, real_topic="")], "REJECT BAD_REAL_TOPIC", ["HALF BAD_REAL_TOPIC"]),
]

GIVEN_UP = [
    Case("5 asked too often", [asked(15, MINUTE)], "DISCARD CHECKED_TOO_OFTEN"),
    Case("5 asked once less", [asked(14, MINUTE)], "CHECK TIMEOUT"),
    Case("5 not yet answered", [asked(15, MINUTE - 1)], "WAIT CHECKED_RECENTLY"),
    Case("5 before 6", [asked(15, MINUTE, age=80 * HOUR)], "DISCARD CHECKED_TOO_OFTEN"),
    Case("5 a group's own maximum", [asked(2, MINUTE, group="twice")], "DISCARD CHECKED_TOO_OFTEN"),
    Case("5 a topic's own maximum", [asked(1, MINUTE, real_topic="Once")], "DISCARD CHECKED_TOO_OFTEN"),
    Case("5 a topic wins", [asked(1, MINUTE, real_topic="Once", group="twice")], "DISCARD CHECKED_TOO_OFTEN"),
    Case("5 before 8", [asked(15, MINUTE, immunity="3000")], "DISCARD CHECKED_TOO_OFTEN"),
    Case("6 expired", [half(age=72 * HOUR + 1)], "DISCARD EXPIRED"),
    Case("6 not yet", [half(age=72 * HOUR)], "CHECK TIMEOUT"),
    Case("6 not yet answered", [asked(1, MINUTE - 1, age=80 * HOUR)], "WAIT CHECKED_RECENTLY"),
    Case("6 answer overdue", [asked(1, MINUTE, age=80 * HOUR)], "DISCARD EXPIRED"),
    Case("6 before 7", [half(age=80 * HOUR, store=NOW)], "DISCARD EXPIRED"),
    Case("6 before 8", [half(age=80 * HOUR, immunity="9223372036854776")], "DISCARD EXPIRED"),
]

WAITING = [
    Case("7 fresh", [half(store=NOW)], "WAIT FRESH"),
    Case("7 stored later", [half(store=NOW + 1)], "WAIT FRESH"),
    Case("7 not fresh", [half(store=NOW - 1)], "CHECK TIMEOUT"),
    Case("8 immune", [half(age=30 * SECOND, immunity="30")], "WAIT IMMUNE"),
    Case("8 immune no more", [half(age=30 * SECOND + 1, immunity="30")], "CHECK TIMEOUT"),
    Case("8 shorter than the timeout", [half(age=1001, immunity="1")], "CHECK TIMEOUT"),
    Case("8 born in the future", [half(age=-1, store=NOW - 1, immunity="0")], "WAIT IMMUNE"),
    Case("8 a negative immunity is over at age 0", [half(age=0, store=NOW - 1, immunity="-5")], "CHECK TIMEOUT"),
    Case("9 within the timeout", [half(age=6 * SECOND)], "WAIT IMMUNE"),
    Case("9 past the timeout", [half(age=6 * SECOND + 1)], "CHECK TIMEOUT"),
    Case("9 age 0", [half(age=0, store=NOW - 1)], "WAIT IMMUNE"),
    Case("9 a group's timeout", [half(age=1001, group="quick")], "CHECK TIMEOUT"),
    Case("9 a topic's timeout", [half(age=20 * SECOND, real_topic="Slow")], "WAIT IMMUNE"),
    Case("9 a topic wins", [half(age=20 * SECOND, real_topic="Slow", group="quick")], "WAIT IMMUNE"),
    Case("10 checked recently", [asked(1, MINUTE - 1)], "WAIT CHECKED_RECENTLY"),
    Case("10 checked long ago", [asked(1, MINUTE)], "CHECK TIMEOUT"),
    Case("11 skewed clock", [half(age=-1, store=NOW - 1)], "CHECK CLOCK_SKEW"),
    Case("11 timeout", [half()], "CHECK TIMEOUT"),
]

# Within the timeout of 6 s, at 7 s, and after 30 s
IMMUNITIES = [
    Case(f"immunity {text!r} at {age}", [half(age=age, immunity=text)], wanted)
    for text, age, wanted in [
        *[
            (text, 6000, "WAIT IMMUNE")
            for text in ("-1", "abc", " 30", "30 ", "1.5", "1e3", "\u0663", "9223372036854775808")
        ],
        *[(text, 6001, "CHECK TIMEOUT") for text in ("-1", "abc", " 30", "1.5", "9223372036854775808", "")],
        ("", 6000, "WAIT IMMUNE"),
        ("0", 1, "CHECK TIMEOUT"),
        ("-7", 1, "CHECK TIMEOUT"),
        ("+30", 30_000, "WAIT IMMUNE"),
        ("030", 30_001, "CHECK TIMEOUT"),
        ("9223372036854775", 72 * HOUR, "WAIT IMMUNE"),
        ("9223372036854776", 72 * HOUR, "WAIT IMMUNE"),
        ("9223372036854775807", 72 * HOUR, "WAIT IMMUNE"),
        ("-9223372036854775808", 1, "CHECK TIMEOUT"),
    ]
]
IMMUNITIES.append(Case("immunity of a topic", [half(age=20_000, real_topic="Slow", immunity="x")], "WAIT IMMUNE"))

# text → what the first look makes of a message that was stored 5 s ago, a recent check; and its check times after it
CHECK_TIMES: list[tuple[str | None, str, int]] = [
    (None, "CHECK TIMEOUT", 1),
    ("", "CHECK TIMEOUT", 1),
    ("x", "CHECK TIMEOUT", 1),
    ("1.0", "CHECK TIMEOUT", 1),
    (" 1", "CHECK TIMEOUT", 1),
    ("99999999999", "CHECK TIMEOUT", 1),
    ("0", "CHECK TIMEOUT", 1),
    ("-3", "CHECK TIMEOUT", -2),
    ("+2", "WAIT CHECKED_RECENTLY", 2),
    ("15", "WAIT CHECKED_RECENTLY", 15),
]
TIMES = [(Case(f"check times {text!r}", [asked(text, 5000)], wanted), times) for text, wanted, times in CHECK_TIMES]

CLOCK = [
    Case("clock stands before the first landing", [half(age=80 * HOUR)], "WAIT FRESH", known={0: None}),
    Case("clock stands at known_until", [half(age=HOUR)], "WAIT IMMUNE", known={0: NOW - HOUR + 6000}),
    Case("clock one on", [half(age=HOUR, store=NOW - HOUR)], "CHECK TIMEOUT", known={0: NOW - HOUR + 6001}),
    Case("clock never beyond now", [half(age=6000)], "WAIT IMMUNE", known={0: NOW + HOUR}),
    Case("clock of a queue without progress", [half(age=6001)], "CHECK TIMEOUT", listed=False),
    Case("clock and landed check", [asked(15, -1, age=HOUR)], "WAIT FRESH"),
]

OBSERVED = [
    Case("observed: line 5", [asked(15, MINUTE)], "WAIT BROKER_ASKS"),
    Case("observed: line 6", [half(age=80 * HOUR)], "WAIT BROKER_ASKS"),
    Case("observed: line 11", [half()], "WAIT BROKER_ASKS"),
    Case("observed: for 7 d less 1 ms", [half(age=7 * 24 * HOUR - 1)], "WAIT BROKER_ASKS"),
    Case("observed: for 7 d", [half(age=7 * 24 * HOUR)], "DISCARD END_NOT_SEEN"),
    Case("observed: for 7 d, asked too often", [asked(15, MINUTE, age=7 * 24 * HOUR)], "DISCARD END_NOT_SEEN"),
    Case("observed: for 7 d, immune", [half(age=7 * 24 * HOUR, store=NOW)], "DISCARD END_NOT_SEEN"),
    Case("observed: for 7 d, just asked", [asked(1, MINUTE - 1, age=7 * 24 * HOUR)], "WAIT CHECKED_RECENTLY"),
    Case("observed: after 7 d, line 2", [half(age=8 * 24 * HOUR), commit()], "COMMIT PRODUCER"),
    Case("observed: line 11, skewed", [half(age=-1, store=NOW - 1)], "WAIT BROKER_ASKS"),
    Case("observed: line 1", [half(real_topic="")], "REJECT BAD_REAL_TOPIC", ["HALF BAD_REAL_TOPIC"]),
    Case("observed: line 2", [half(), commit()], "COMMIT PRODUCER"),
    Case("observed: line 7", [half(store=NOW)], "WAIT FRESH"),
    Case("observed: line 9", [half(age=6000)], "WAIT IMMUNE"),
    Case("observed: line 10", [asked(1, MINUTE - 1)], "WAIT CHECKED_RECENTLY"),
]

# What a broker lost: from that offset on, at that instant, in a queue of the case's broker or of another one.
LOST_RUNS = [NOW, NOW + MINUTE]
_OPEN = ["CHECK TIMEOUT", "CHECK TIMEOUT"]
_GIVEN_UP = ["DISCARD LOST_BY_BROKER", ""]


def _copies(case: str) -> list[m.Half]:
    """An original and its copy, which gets the case's name in its key."""
    return [half(4, uniq_key=f"k of {case}"), half(6, uniq_key="k", check_times="1")]


def _lost(name: str, case: Case, since: int, *, at: int = NOW, queue: int = 0, broker: str = "") -> tuple[Case, Lost]:
    return replace(case, name=name), Lost(broker or name, queue, since, instant(at))


LOST = [
    _lost("4a at the cut", Case("", [half(5)], _GIVEN_UP, offset=5), 5),
    _lost("4a below the cut", Case("", [half(4)], _OPEN, offset=4), 5),
    _lost("4a another broker's cut", Case("", [half(5)], _OPEN, offset=5), 5, broker="another"),
    _lost("4a another queue's cut", Case("", [half(5)], _OPEN, offset=5), 5, queue=1),
    _lost("4a after 2", Case("", [half(5), commit(5)], ["COMMIT PRODUCER", ""], offset=5), 5),
    _lost("4a before 5", Case("", [asked(15, MINUTE, offset=5)], _GIVEN_UP, offset=5), 5),
    _lost("4a before 7", Case("", [half(5, store=NOW + MINUTE)], _GIVEN_UP, offset=5), 5),
    _lost("4a all copies", Case("", _copies("4a all copies"), _GIVEN_UP, offset=6), 4),
    _lost(
        "4a a copy stands",
        Case("", _copies("4a a copy stands"), ["WAIT CHECKED_RECENTLY", "CHECK TIMEOUT"], offset=6),
        5,
    ),
    _lost("4a resumed since", Case("", [half(5)], [_GIVEN_UP[0], _OPEN[0]], resumes={1: [5]}, offset=5), 5),
    _lost(
        "4a resumed at that instant",
        Case("", [half(5)], [_GIVEN_UP[0], _OPEN[0]], resumes={1: [5]}, offset=5),
        5,
        at=NOW + MINUTE,
    ),
    _lost(
        "4a resumed before", Case("", [half(5)], [_GIVEN_UP[0]] * 2, resumes={1: [5]}, offset=5), 5, at=NOW + MINUTE + 1
    ),
]
