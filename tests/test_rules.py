"""The rules read a second time: each of their lines as cases, in their order.

A run costs seconds whatever it decides, so the cases of a section share one run, each with a broker of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import model as m
import pytest
import rows as r
from chispa import assert_df_equality
from halfop.warehouse.tables import Warehouse
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from strategies import BAD_TOPICS, ODD_TOPICS, SYSTEM_TOPICS, op_rows

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
NOW = 1_750_000_000_000
LONG_MAX = m.LONG_MAX

RULES = m.Settings(
    groups={"quick": m.Override(transaction_timeout=1 * SECOND), "twice": m.Override(check_max=2)},
    topics={"Slow": m.Override(transaction_timeout=20 * SECOND), "Once": m.Override(check_max=1)},
)

Landed = m.Half | m.Op


# ---- words for cases ----


def half(offset: int = 0, age: int = 10 * SECOND, **columns: Any) -> m.Half:
    """A half message that is `age` old at NOW, stored at once."""
    given: dict[str, Any] = {
        "commit_log_offset": offset % 1000 * 100,
        "uniq_key": f"k{offset}",
        "group": "g",
        "real_topic": "T",
        "real_qid": "3",
        "born": NOW - age,
        "store": NOW - age,
        "body": b"half %d" % (offset % 1000),
    }
    return m.Half("", 0, offset, **(given | columns))


def asked(times: int | str | None, ago: int, **columns: Any) -> m.Half:
    """The copy that the broker's check wrote `ago` before NOW: a half message that lands with check times."""
    text = None if times is None else str(times)
    return half(**({"age": ago + HOUR, "store": NOW - ago, "check_times": text} | columns))


def op(outcome: str | None = "COMMIT", of: int = 0, offset: int = 0, **columns: Any) -> m.Op:
    return replace(op_rows(("", 0), offset, str(of), [outcome], NOW - SECOND)[0], **columns)


def commit(of: int = 0, offset: int = 0, **columns: Any) -> m.Op:
    return op("COMMIT", of, offset, **columns)


def rollback(of: int = 0, offset: int = 0, **columns: Any) -> m.Op:
    return op("ROLLBACK", of, offset, **columns)


def batch(text: str, outcome: str = "COMMIT", offset: int = 0) -> list[m.Op]:
    return op_rows(("", 0), offset, text, [outcome], NOW - SECOND)


def headed(**columns: Any) -> m.Op:
    """A commit that carries the producer's END_TRANSACTION header, right where nothing else is said."""
    right: dict[str, Any] = {"group": "g", "tran_state_table_offset": 0, "commit_log_offset": 0, "uniq_key": "k0"}
    return commit(**(right | {"from_check": False} | columns))


@dataclass(frozen=True)
class Case:
    """What lands before the first run (or before each), and what each run makes of the half message at `offset`.

    `wanted` has one text a run: decision and reason, "" where the run does not look at it. `rejects` holds all that is
    rejected, as "OP CONFLICT". `known`: the queue's known_until, by default the landing's instant; without `listed` the
    queue has no landing_progress row.
    """

    name: str
    lands: Sequence[Landed] | Mapping[int, Sequence[Landed]]
    wanted: str | Sequence[str]
    rejects: Sequence[str] = ()
    known: Mapping[int, int | None] = field(default_factory=dict)
    listed: bool = True
    resumes: Mapping[int, Sequence[int]] = field(default_factory=dict)
    offset: int = 0

    def landing(self, run: int) -> Sequence[Landed]:
        return self.lands.get(run, ()) if isinstance(self.lands, Mapping) else self.lands if run == 0 else ()


def played(
    warehouse: Warehouse, cases: Sequence[Case], rules: m.Settings, runs: Sequence[int], layout: r.Layout = "single"
) -> None:
    """Land and run all cases side by side: the rows of run n land at its instant."""
    for run, now in enumerate(runs):
        rows = [replace(row, broker=case.name) for case in cases for row in case.landing(run)]
        known = {(case.name, 0): case.known.get(run, now) for case in cases if case.listed}
        halves = [row for row in rows if isinstance(row, m.Half)]
        r.land(warehouse, halves, [row for row in rows if isinstance(row, m.Op)], now, known)
        r.resume(warehouse, [(case.name, 0, offset) for case in cases for offset in case.resumes.get(run, ())], now)
        r.run(warehouse, rules, now, layout=layout)


def by_the_model(case: Case, rules: m.Settings, runs: Sequence[int]) -> tuple[list[str], list[str]]:
    """What the reference model decides of a case, and what it rejects."""
    model, decided = m.Model(rules), []
    for run, now in enumerate(runs):
        rows = case.landing(run)
        known = {("", 0): case.known.get(run, now)} if case.listed else {}
        halves, ops = [row for row in rows if isinstance(row, m.Half)], [row for row in rows if isinstance(row, m.Op)]
        model.land(halves, ops, now, known)
        for offset in case.resumes.get(run, ()):
            model.resume(("", 0, offset), now)
        decided.append(_text({d.key[2]: d for d in model.run(now)}.get(case.offset)))
    return decided, sorted(f"{row.kind} {row.reason}" for row in model.rejected)


@dataclass(frozen=True)
class Outcome:
    """What became of every case of a section."""

    warehouse: Warehouse
    decided: Mapping[str, Sequence[str]]
    times: Mapping[str, Sequence[int]]
    rejected: Mapping[str, list[str]]


def outcome(
    warehouse: Warehouse, cases: Sequence[Case], rules: m.Settings, runs: Sequence[int], layout: r.Layout = "single"
) -> Outcome:
    assert len({case.name for case in cases}) == len(cases)
    played(warehouse, cases, rules, runs, layout)
    by_run = [{d.key: d for d in r.decisions(warehouse, run)} for run in range(1, len(runs) + 1)]
    found = {case.name: [of.get((case.name, 0, case.offset)) for of in by_run] for case in cases}
    decided = {name: [_text(decision) for decision in of] for name, of in found.items()}
    times = {name: [decision.check_times if decision else -1 for decision in of] for name, of in found.items()}
    rejected: dict[str, list[str]] = {case.name: [] for case in cases}
    for row in warehouse.read("rejected").select("broker_name", "kind", "reason").collect():
        rejected.setdefault(row["broker_name"], []).append(f"{row['kind']} {row['reason']}")
    return Outcome(warehouse, decided, times, rejected)


def _text(decision: m.Decision | None) -> str:
    return " ".join(part for part in (decision.decision, decision.reason) if part) if decision else ""


def check(found: Outcome, case: Case) -> None:
    wanted = [case.wanted] if isinstance(case.wanted, str) else list(case.wanted)
    assert found.decided[case.name] == wanted
    assert sorted(found.rejected[case.name]) == sorted(case.rejects)


def named(case: Case) -> str:
    return case.name


# ---- one look: the decision table and its details, op messages ----

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
        for text in (None, "x")
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
    Case("4 no group", [half(group=None)], "REJECT NO_PRODUCER_GROUP", ["HALF NO_PRODUCER_GROUP"]),
    Case("4 empty group", [half(group="")], "REJECT NO_PRODUCER_GROUP", ["HALF NO_PRODUCER_GROUP"]),
    Case("1 before 4", [half(group=None, real_topic="")], "REJECT BAD_REAL_TOPIC", ["HALF BAD_REAL_TOPIC"]),
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

ITEMS = [
    *[
        Case(f"item {text!r}", [half(), *batch(text)], "COMMIT PRODUCER")
        for text in ("0", "+0", "00", "-0", "0,", ",0", ",,0,,")
    ],
    *[
        Case(f"garbage {text!r}", [half(), *batch(f"{text},0")], "COMMIT PRODUCER", ["OP GARBAGE_OFFSET"])
        for text in (" 0", "0 ", "0.0", "x", "-1", "9223372036854775808", "\u0660")
    ],
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
            "REJECT NO_PRODUCER_GROUP",
            ["HALF NO_PRODUCER_GROUP", "OP WRONG_PRODUCER_GROUP"],
        )
        for group in (None, "")
    ],
]


def late(took: int, immunity: str | None, **columns: Any) -> list[Landed]:
    return [half(age=100 * SECOND, immunity=immunity), headed(born=NOW - 100 * SECOND + took, **columns)]


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

CLOCK = [
    Case("clock stands before the first landing", [half(age=80 * HOUR)], "WAIT FRESH", known={0: None}),
    Case("clock stands at known_until", [half(age=HOUR)], "WAIT IMMUNE", known={0: NOW - HOUR + 6000}),
    Case("clock one on", [half(age=HOUR, store=NOW - HOUR)], "CHECK TIMEOUT", known={0: NOW - HOUR + 6001}),
    Case("clock never beyond now", [half(age=6000)], "WAIT IMMUNE", known={0: NOW + HOUR}),
    Case("clock of a queue without progress", [half(age=6001)], "CHECK TIMEOUT", listed=False),
    Case("clock and landed check", [asked(15, -1, age=HOUR)], "WAIT FRESH"),
]

ANOTHER_MESSAGE: list[dict[str, Any]] = [{"commit_log_offset": 7}, {"store": NOW - 5000}, {"uniq_key": "other"}]
REUSED = [
    *[
        Case(f"reused {[*other]}", [half(), half(**other)], "CHECK TIMEOUT", ["HALF KEY_REUSED"])
        for other in ANOTHER_MESSAGE
    ],
    Case("reused op", [half(), half(1), commit(), commit(store=NOW)], "COMMIT PRODUCER", ["OP KEY_REUSED"]),
    Case("garbled, then corrected", [half(real_qid="x"), half()], "CHECK TIMEOUT"),
]

ONE_LOOK = [
    *UNDELIVERABLE,
    *ENDED,
    *GIVEN_UP,
    *WAITING,
    *IMMUNITIES,
    *[case for case, _ in TIMES],
    *ITEMS,
    *HEADERS,
    *TOO_LATE,
    *SEVERAL,
    *CLOCK,
    *REUSED,
]


# ---- one run after the other ----

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

STORIES = [
    Case(
        "asked as often as it may be",
        [half(group="twice")],
        ["CHECK TIMEOUT", "WAIT CHECKED_RECENTLY", "CHECK TIMEOUT", "DISCARD CHECKED_TOO_OFTEN", "", ""],
    ),
    Case(
        "born in the future",
        [half(age=-1, store=NOW - 1)],
        ["CHECK CLOCK_SKEW", *OPEN[1:4], "CHECK TIMEOUT", "DISCARD EXPIRED"],
    ),
    Case("a rollback after a discard", {0: [once()], 3: [rollback()]}, [*ASKED_ONCE, "ROLLBACK AFTER_DISCARD", "", ""]),
    Case(
        "two ops after a discard",
        {0: [once()], 3: [rollback(), commit(offset=1)], 4: [commit(offset=2)]},
        [*ASKED_ONCE, "ROLLBACK AFTER_DISCARD", "", ""],
        ["OP CONFLICT"] * 2,
    ),
    Case(
        "an invalid op after a discard",
        {0: [once()], 3: [headed(group="x")]},
        [*ASKED_ONCE, "", "", ""],
        ["OP WRONG_PRODUCER_GROUP"],
    ),
    Case(
        "late ops say the same or the opposite, whatever their offsets",
        {0: [half(), commit(offset=5)], 1: [commit(offset=1)], 2: [rollback(offset=0)], 3: [rollback(offset=9)]},
        ["COMMIT PRODUCER", "", "", "", "", ""],
        ["OP CONFLICT", "OP CONFLICT", "OP REDUNDANT"],
    ),
    Case(
        "rows that land again",
        {0: [half(), commit()], 1: [half(), commit()], 3: [commit(), half()]},
        ["COMMIT PRODUCER", "", "", "", "", ""],
    ),
    Case("an open row that lands again", {0: [half()], 1: [half()], 3: [half()]}, OPEN),
    Case("a discarded row that lands again", {0: [once()], 3: [once()]}, [*ASKED_ONCE, "", "", ""]),
    Case(
        "an op before its half", {0: [commit()], 2: [half()]}, ["EARLY_OP", "EARLY_OP", "COMMIT PRODUCER", "", "", ""]
    ),
    Case(
        "an op before its half lands again",
        {0: [commit()], 1: [commit()], 2: [half(), commit()]},
        ["EARLY_OP", "EARLY_OP", "COMMIT PRODUCER", "", "", ""],
    ),
    Case(
        "an op before its half is not valid",
        {0: [headed(group="x")], 2: [half()]},
        ["EARLY_OP", "EARLY_OP", "CHECK TIMEOUT", "CHECK TIMEOUT", "DISCARD EXPIRED", ""],
        ["OP WRONG_PRODUCER_GROUP"],
    ),
    Case(
        "an op before its half's queue",
        {0: [commit()], 1: [half(1)]},
        ["EARLY_OP", "", "", "", "", ""],
        ["OP HALF_BEFORE_LANDING"],
    ),
    Case("an op before its half's queue, at once", [half(1), commit()], [""] * 6, ["OP HALF_BEFORE_LANDING"]),
    Case(
        "an op whose half never lands",
        [half(4), half(6), commit(5)],
        ["EARLY_OP"] * 4 + ["", ""],
        ["OP HALF_NEVER_LANDED"],
        offset=5,
    ),
    Case(
        "an op whose half never lands: since it landed",
        {0: [half(4), half(6)], 1: [commit(5)]},
        ["", *["EARLY_OP"] * 4, ""],
        ["OP HALF_NEVER_LANDED"],
        offset=5,
    ),
    Case("an op whose half may still land", [half(4), commit(5)], ["EARLY_OP"] * 6, offset=5),
    Case(
        "a half in a hole that lands in time",
        {0: [half(4), half(6), commit(5)], 3: [half(5)]},
        ["EARLY_OP"] * 3 + ["COMMIT PRODUCER", "", ""],
        offset=5,
    ),
    *[
        Case(f"reused {[*other]}", {0: [half()], 1: [half(**other)]}, OPEN, ["HALF KEY_REUSED"])
        for other in ANOTHER_MESSAGE
    ],
    Case(
        "reused after the end",
        {0: [half(), commit()], 1: [half(uniq_key="other")]},
        ["COMMIT PRODUCER", "", "", "", "", ""],
        ["HALF KEY_REUSED"],
    ),
    Case(
        "reused after a discard",
        {0: [once()], 3: [once(uniq_key="other")]},
        [*ASKED_ONCE, "", "", ""],
        ["HALF KEY_REUSED"],
    ),
    Case(
        "reused op",
        {0: [half(), commit()], 1: [rollback(store=NOW)]},
        ["COMMIT PRODUCER", "", "", "", "", ""],
        ["OP KEY_REUSED"],
    ),
    Case(
        "a corrected half",
        {0: [half(real_qid="x")], 1: [half()]},
        ["REJECT BAD_REAL_QUEUE", "CHECK TIMEOUT", "WAIT CHECKED_RECENTLY", "CHECK TIMEOUT", "DISCARD EXPIRED", ""],
        ["HALF BAD_REAL_QUEUE"],
    ),
    Case(
        "a corrected half and its op",
        {0: [half(real_topic="a b"), commit()], 1: [half(), commit()]},
        ["REJECT BAD_REAL_TOPIC", "COMMIT PRODUCER", "", "", "", ""],
        ["HALF BAD_REAL_TOPIC", "OP HALF_REJECTED"],
    ),
    Case(
        "ops of a rejected half that land again with the corrected one",
        {
            0: [half(real_qid="x"), commit(), rollback(offset=1), headed(offset=2, group="x")],
            1: [half(), commit(), rollback(offset=1), headed(offset=2, group="x")],
        },
        ["REJECT BAD_REAL_QUEUE", "COMMIT PRODUCER", "", "", "", ""],
        ["HALF BAD_REAL_QUEUE", *["OP HALF_REJECTED"] * 3, "OP CONFLICT", "OP WRONG_PRODUCER_GROUP"],
    ),
    Case(
        "an op before its half lands again with it, and another",
        {0: [commit(), rollback(offset=1)], 1: [half(), rollback(offset=1), commit()]},
        ["EARLY_OP", "COMMIT PRODUCER", "", "", "", ""],
        ["OP CONFLICT"],
    ),
    Case(
        "an op given up that lands again after its half",
        {0: [half(1), commit(), rollback(offset=1)], 1: [half()], 2: [commit(), rollback(offset=1)]},
        ["", "CHECK TIMEOUT", "COMMIT PRODUCER", "", "", ""],
        ["OP HALF_BEFORE_LANDING"] * 2 + ["OP CONFLICT"],
    ),
    Case(
        "a half rejected once, however often it lands",
        {0: [half(real_qid="x")], 1: [half(real_qid="x")], 3: [half(real_qid="x")]},
        ["REJECT BAD_REAL_QUEUE", "", "", "", "", ""],
        ["HALF BAD_REAL_QUEUE"],
    ),
    Case(
        "a corrected op",
        {0: [half(), op(None)], 1: [rollback()]},
        ["CHECK TIMEOUT", "ROLLBACK PRODUCER", "", "", "", ""],
        ["OP NO_OUTCOME"],
    ),
    Case(
        "an op rejected once, however often it lands",
        {0: [half(), op(None)], 1: [op(None)], 2: [op(None)]},
        OPEN,
        ["OP NO_OUTCOME"],
    ),
    Case(
        "an op of a rejected half",
        {0: [half(group=None)], 1: [commit()]},
        ["REJECT NO_PRODUCER_GROUP", "", "", "", "", ""],
        ["HALF NO_PRODUCER_GROUP", "OP HALF_REJECTED"],
    ),
    Case("resumed", [once()], [*ASKED_ONCE, "CHECK TIMEOUT", "DISCARD CHECKED_TOO_OFTEN", ""], resumes={3: [0]}),
    Case(
        "resumed twice at once",
        [once()],
        [*ASKED_ONCE, "CHECK TIMEOUT", "DISCARD CHECKED_TOO_OFTEN", ""],
        ["RESUME OPEN"],
        resumes={3: [0, 0]},
    ),
    Case(
        "resumed again",
        [once()],
        [*ASKED_ONCE, "CHECK TIMEOUT", "DISCARD CHECKED_TOO_OFTEN", "CHECK TIMEOUT"],
        resumes={3: [0], 5: [0]},
    ),
    Case(
        "resumed while an op ends it",
        {0: [once()], 3: [commit()]},
        [*ASKED_ONCE, "COMMIT AFTER_DISCARD", "", ""],
        ["RESUME ENDED"],
        resumes={3: [0]},
    ),
    Case(
        "resumed after it ended",
        {0: [half(), commit()]},
        ["COMMIT PRODUCER", "", "", "", "", ""],
        ["RESUME ENDED"],
        resumes={1: [0]},
    ),
    Case("resumed while open", [half()], OPEN, ["RESUME OPEN", "RESUME OPEN"], resumes={0: [0], 2: [0]}),
    Case("resumed what is unknown", [half(1)], [""] * 6, ["RESUME UNKNOWN"], resumes={1: [0]}),
    Case(
        "resumed what was rejected",
        [half(real_topic="")],
        ["REJECT BAD_REAL_TOPIC", "", "", "", "", ""],
        ["HALF BAD_REAL_TOPIC", "RESUME HALF_REJECTED"],
        resumes={1: [0]},
    ),
    Case(
        "an op that ends a resumed message",
        {0: [once()], 4: [commit()]},
        [*ASKED_ONCE, "CHECK TIMEOUT", "COMMIT PRODUCER", ""],
        resumes={3: [0]},
    ),
]

OBSERVED = [
    Case("observed: line 5", [asked(15, MINUTE)], "WAIT BROKER_ASKS"),
    Case("observed: line 6", [half(age=80 * HOUR)], "WAIT BROKER_ASKS"),
    Case("observed: line 11", [half()], "WAIT BROKER_ASKS"),
    Case("observed: line 11, skewed", [half(age=-1, store=NOW - 1)], "WAIT BROKER_ASKS"),
    Case("observed: line 1", [half(real_topic="")], "REJECT BAD_REAL_TOPIC", ["HALF BAD_REAL_TOPIC"]),
    Case("observed: line 2", [half(), commit()], "COMMIT PRODUCER"),
    Case("observed: line 7", [half(store=NOW)], "WAIT FRESH"),
    Case("observed: line 9", [half(age=6000)], "WAIT IMMUNE"),
    Case("observed: line 10", [asked(1, MINUTE - 1)], "WAIT CHECKED_RECENTLY"),
]


# ---- what is written: whole messages ----

PROPERTIES = {
    "REAL_TOPIC": "Written",
    "REAL_QID": "3",
    "TRAN_MSG": "true",
    "PGROUP": "g",
    "UNIQ_KEY": "k0",
    "KEYS": "a b",
    "TAGS": "tag",
    "own": "ü",
    "WAIT": "",
}
WHOLE: dict[str, Any] = {
    "tags": "tag",
    "keys": "a b",
    "flag": -7,
    "sys_flag": 0b10110,  # prepared (0x4), with two flags that have nothing to do with transactions
    "born_host": "10.0.0.1:1234",
    "store_host": "[::1]:10911",
    "reconsume_times": 2,
    "body": bytearray(b"\x00\xff body"),
    "offset_msg_id": "0A000001000012340000000000000100",
    "properties": PROPERTIES,
}
TO_COMMIT, TO_DISCARD, TO_CHECK = "written: commit", "written: discard", "written: check"


def whole(broker: str, age: int) -> dict[str, Any]:
    return r.half_cells(half(age=age, real_topic="Written"), NOW) | WHOLE | {"broker_name": broker}


def land_whole(warehouse: Warehouse) -> None:
    rows = [whole(TO_COMMIT, 10 * SECOND), whole(TO_DISCARD, 80 * HOUR), whole(TO_CHECK, 10 * SECOND)]
    r.land(warehouse, [], [commit(offset=77, broker=TO_COMMIT)], NOW)
    r.append(warehouse, "half_messages", rows)


@pytest.fixture(scope="module")
def looked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    warehouse = Warehouse(spark, str(tmp_path_factory.mktemp("looked")))
    land_whole(warehouse)
    return outcome(warehouse, ONE_LOOK, RULES, [NOW], "per_topic")


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    warehouse = Warehouse(spark, str(tmp_path_factory.mktemp("told")))
    return outcome(warehouse, [*UNLIKE_THE_BROKER, *STORIES], STORY_RULES, RUNS)


@pytest.mark.parametrize("case", ONE_LOOK, ids=named)
def test_one_look(looked: Outcome, case: Case) -> None:
    check(looked, case)


@pytest.mark.parametrize(("case", "times"), TIMES, ids=str)
def test_check_times_that_landed(looked: Outcome, case: Case, times: int) -> None:
    assert looked.times[case.name] == [times]


@pytest.mark.parametrize("case", UNLIKE_THE_BROKER, ids=named)
def test_unlike_the_broker(told: Outcome, case: Case) -> None:
    check(told, case)


@pytest.mark.parametrize("case", STORIES, ids=named)
def test_runs_one_after_the_other(told: Outcome, case: Case) -> None:
    check(told, case)


@pytest.mark.parametrize(
    ("cases", "rules", "runs"),
    [
        (ONE_LOOK, RULES, [NOW]),
        ([*UNLIKE_THE_BROKER, *STORIES], STORY_RULES, RUNS),
        (OBSERVED, replace(RULES, ask=False), [NOW]),
    ],
)
def test_the_reference_model_says_the_same(cases: Sequence[Case], rules: m.Settings, runs: Sequence[int]) -> None:
    wanted = {
        case.name: ([case.wanted] if isinstance(case.wanted, str) else list(case.wanted), sorted(case.rejects))
        for case in cases
    }
    assert {case.name: by_the_model(case, rules, runs) for case in cases} == wanted


def test_observing_asks_and_discards_nothing(warehouse: Warehouse) -> None:
    found = outcome(warehouse, OBSERVED, replace(RULES, ask=False), [NOW])
    for case in OBSERVED:
        check(found, case)
    assert r.discards(warehouse) == r.requests(warehouse) == {}


@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("a wait never counts as a check", [0, 0, 0, 0, 0, -1]),
        ("raised within its own immunity without asking: never checked", [1, 1, 2, 3, 3, -1]),
        ("nothing is put back", [1, 1, 2, 3, 3, -1]),
        ("resumed", [1, 1, 1, 1, 1, -1]),
        ("asked as often as it may be", [1, 1, 2, 2, -1, -1]),
    ],
)
def test_check_times_run_by_run(told: Outcome, name: str, times: list[int]) -> None:
    assert told.times[name] == times


def test_nothing_is_put_back_to_the_half_queue(told: Outcome) -> None:
    rows = told.warehouse.read("half_messages").where(F.col("broker_name") == "nothing is put back")
    assert rows.count() == 1


def test_a_committed_transaction_is_delivered_once(told: Outcome) -> None:
    delivered = r.delivered(told.warehouse)
    assert set(delivered.values()) == {1}
    keys = [row.key[0] for row in delivered]
    assert len(keys) == len(set(keys))
    committed = {name for name, of in told.decided.items() if any(text.startswith("COMMIT") for text in of)}
    assert set(keys) == committed


def only(warehouse: Warehouse, name: str, broker: str) -> DataFrame:
    return warehouse.read(name).where(F.col("broker_name") == broker)


def test_a_commit_writes_the_half_message_as_end_message_transaction_restores_it(looked: Outcome) -> None:
    restored = {
        name: WHOLE[name] for name in ("body", "flag", "tags", "keys", "born_host", "store_host", "reconsume_times")
    }
    kept = {name: value for name, value in PROPERTIES.items() if name not in ("REAL_TOPIC", "REAL_QID", "TRAN_MSG")}
    wanted = restored | {
        "topic": "Written",
        "queue_id": 3,
        "sys_flag": 0b11010,
        "born_timestamp": NOW - 10 * SECOND,
        "store_timestamp": NOW - 10 * SECOND,
        "prepared_transaction_offset": 0,
        "transaction_id": "k0",
        "properties": kept,
        "broker_name": TO_COMMIT,
        "half_queue_id": 0,
        "half_queue_offset": 0,
        "op_queue_offset": 77,
        "run_id": 1,
        "committed_at": NOW,
    }
    same(looked.warehouse, "real_topic", only(looked.warehouse, "topics/Written", TO_COMMIT), wanted)


def test_a_discard_keeps_the_whole_half_message(looked: Outcome) -> None:
    wanted = whole(TO_DISCARD, 80 * HOUR) | {"reason": "EXPIRED", "check_times": 0, "run_id": 1, "discarded_at": NOW}
    same(looked.warehouse, "trans_check_max_time", only(looked.warehouse, "trans_check_max_time", TO_DISCARD), wanted)


def test_a_check_asks_with_what_the_producers_listener_reads(looked: Outcome) -> None:
    rows = only(looked.warehouse, "check_requests", TO_CHECK)
    wanted = {
        "request_id": rows.collect()[0]["request_id"],
        "broker_name": TO_CHECK,
        "producer_group": "g",
        "real_topic": "Written",
        "real_queue_id": 3,
        "uniq_key": "k0",
        "offset_msg_id": WHOLE["offset_msg_id"],
        "commit_log_offset": 0,
        "tran_state_table_offset": 0,
        "check_times": 1,
        "body": WHOLE["body"],
        "properties": PROPERTIES,
        "run_id": 1,
        "requested_at": NOW,
        "half_queue_id": 0,
    }
    same(looked.warehouse, "check_requests", rows, wanted)


def test_a_request_id_is_unique(told: Outcome) -> None:
    ids = told.warehouse.read("check_requests").select("request_id")
    assert ids.count() == ids.distinct().count() > 10


def test_a_reject_says_where_to_find_the_row(looked: Outcome) -> None:
    found = only(looked.warehouse, "rejected", "garbage 'x'").collect()[0]
    assert (found["kind"], found["queue_id"], found["queue_offset"], found["run_id"]) == ("OP", 0, 0, 1)
    assert "item 0, text x" in found["detail"]


def same(warehouse: Warehouse, name: str, found: DataFrame, wanted: Mapping[str, Any]) -> None:
    expected = r.frame(warehouse, name, [dict(wanted)])
    assert_df_equality(found.select(expected.columns), expected, ignore_nullable=True, ignore_metadata=True)
