"""Stories of several runs, one after the other."""

from __future__ import annotations

from typing import Any

from support.rules.rule_case import Case
from support.rules.rule_words import (
    ANOTHER_MESSAGE,
    NOW,
    commit,
    half,
    headed,
    op,
    rollback,
)
from support.rules.unlike_the_broker import ASKED_ONCE, OPEN, once

# Each makes an op another one at the same offset.
ANOTHER_OP: dict[str, dict[str, Any]] = {"item": {"item": 1}, "source": {"source": "RESOLVE"}, "life": {"life": 2}}

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
    *[
        Case(
            f"another message under a rejected one's key is rejected, too: {[*other]}",
            {0: [half(real_qid="x")], 2: [half(**({"real_qid": "x"} | other))]},
            ["REJECT BAD_REAL_QUEUE", "", "REJECT BAD_REAL_QUEUE", "", "", ""],
            ["HALF BAD_REAL_QUEUE"] * 2,
        )
        for other in [*ANOTHER_MESSAGE, {"group": "other"}, {"real_topic": "T9"}, {"real_qid": "-1"}]
    ],
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
    Case(
        "an op before its half's queue, whose half lands later",
        {0: [commit(), half(1)], 1: [half()]},
        ["", "COMMIT PRODUCER", "", "", "", ""],
        ["OP HALF_BEFORE_LANDING"],
    ),
    Case(
        "an op before its half's queue, whose half lands and is rejected",
        {0: [commit(), half(1)], 1: [half(real_qid="x")]},
        ["", "REJECT BAD_REAL_QUEUE", "", "", "", ""],
        ["HALF BAD_REAL_QUEUE", "OP HALF_BEFORE_LANDING"],
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
    *[
        Case(
            f"an op lands again beside another of its offset: {name}",
            {0: [half(10), commit(3, 20)], 1: [half(0), commit(3, 20, **other)], 2: [commit(3, 20)]},
            ["", *["EARLY_OP"] * 4, ""],
            ["OP HALF_BEFORE_LANDING", "OP HALF_NEVER_LANDED"],
            offset=3,
        )
        for name, other in ANOTHER_OP.items()
    ],
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
        ["", "COMMIT PRODUCER", "", "", "", ""],
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
        {0: [half(real_qid="x")], 1: [commit()]},
        ["REJECT BAD_REAL_QUEUE", "", "", "", "", ""],
        ["HALF BAD_REAL_QUEUE", "OP HALF_REJECTED"],
    ),
    Case(
        "an op of a rejected half that is corrected later",
        {0: [half(real_qid="x")], 1: [commit()], 2: [half()]},
        ["REJECT BAD_REAL_QUEUE", "", "COMMIT PRODUCER", "", "", ""],
        ["HALF BAD_REAL_QUEUE", "OP HALF_REJECTED"],
    ),
    Case(
        "a corrected half that had no group",
        {0: [half(group=None)], 1: [half()]},
        ["DISCARD NO_PRODUCER_GROUP", "CHECK TIMEOUT", "WAIT CHECKED_RECENTLY", *OPEN[3:]],
    ),
    Case(
        "a corrected half that had no group and no key",
        {0: [half(group=None, uniq_key=None)], 1: [half()]},
        ["DISCARD NO_PRODUCER_GROUP", "CHECK TIMEOUT", "WAIT CHECKED_RECENTLY", *OPEN[3:]],
    ),
    *[
        Case(
            f"reused after a half without a group {[*other]}",
            {0: [half(group=None)], 1: [half(**other)]},
            ["DISCARD NO_PRODUCER_GROUP", "", "", "", "", ""],
            ["HALF KEY_REUSED"],
        )
        for other in ANOTHER_MESSAGE
    ],
    Case(
        "reused at once by a half without a group",
        {0: [half(), half(group=None, uniq_key="other")]},
        OPEN,
        ["HALF KEY_REUSED"],
    ),
    Case("a half without a group or a key lands with its correction", [half(group=None, uniq_key=None), half()], OPEN),
    Case(
        "no correction after the end",
        {0: [half(group=None), commit()], 1: [half()]},
        ["COMMIT PRODUCER", "", "", "", "", ""],
    ),
    Case(
        "a half without a group that has been resumed is corrected",
        {0: [half(group=None)], 2: [half()]},
        ["DISCARD NO_PRODUCER_GROUP", "DISCARD NO_PRODUCER_GROUP", *OPEN[2:]],
        resumes={1: [0]},
    ),
    Case(
        "an op of a half without a group, a run later",
        {0: [half(group=None)], 1: [commit()]},
        ["DISCARD NO_PRODUCER_GROUP", "COMMIT AFTER_DISCARD", "", "", "", ""],
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
