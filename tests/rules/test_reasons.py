"""The one list of reasons agrees with what people wrote: docs/rules.md, its decision table and its order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from halfop.rules.reasons import LINES, Reason, allowed, line, meaning, urgency, words

DOCS = Path(__file__).parents[2] / "docs"
RULES = (DOCS / "rules.md").read_text(encoding="utf-8")
OF_LANDING = ["LOST_RANGE", "FOUND_RANGE"]


def named(text: str) -> list[str]:
    """The reasons that a text names, each once, in its order."""
    return list(dict.fromkeys(name for name in re.findall(r"`([A-Z_]+)`", text) if name in Reason.__members__))


def test_the_lines_are_those_of_the_page() -> None:
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in RULES.splitlines()
        if re.match(r"\| \d+[ab]? \|", row)
    ]
    documented = [(number, holds.replace("`", ""), decision, named(why)) for number, holds, decision, why in rows]
    assert [(each.number, each.holds, each.decision, [r.name for r in each.reasons]) for each in LINES] == documented


def test_every_reason_is_documented_and_they_have_the_order_of_the_page() -> None:
    assert [each.name for each in Reason] == [*named(RULES), *OF_LANDING]
    assert set(OF_LANDING) <= set(named((DOCS / "landing.md").read_text(encoding="utf-8")))


def test_every_reject_says_what_is_allowed() -> None:
    decided = {each for row in LINES for each in row.reasons if row.decision != "REJECT"} - {Reason.LOST_BY_BROKER}
    decided |= {Reason.BROKER_ASKS, Reason.END_NOT_SEEN, Reason.AFTER_DISCARD, Reason.ALREADY_ENDED}
    assert {each for each in Reason if not each.allowed} == decided


@pytest.mark.parametrize(
    ("decision", "reason", "immune", "number", "said"),
    [
        ("COMMIT", "CHECK", False, "2", "the producer answered a check"),
        ("ROLLBACK", "CHECK", False, "3", "the producer answered a check"),
        ("WAIT", "IMMUNE", True, "8", "young enough to be left alone, by its own immunity or transaction_timeout"),
        ("WAIT", "IMMUNE", False, "9", "young enough to be left alone, by its own immunity or transaction_timeout"),
        ("WAIT", "FRESH", False, "7", "store_timestamp ≥ queue clock"),
        ("COMMIT", "AFTER_DISCARD", False, None, "a valid op landed after the message had been discarded"),
        ("SUPERSEDED", None, False, None, "a later put-back copy stands for the transaction"),
        ("SUPERSEDED", "NONE", False, None, "a later put-back copy stands for the transaction"),
        ("COMMIT", "SOMETHING_NEW", False, None, ""),
    ],
)
def test_decisions_in_words(decision: str, reason: str | None, immune: bool, number: str | None, said: str) -> None:
    found = line(decision, reason, immune)
    assert (found and found.number, meaning(decision, reason)) == (number, said)


def test_what_is_urgent_comes_first_and_what_is_harmless_last() -> None:
    reasons = ["REDUNDANT", "TOO_LATE", "a fault of an input row", "CONFLICT"]
    assert [urgency(each) for each in reasons] == [1, 0, 0, -1]
    assert (words("a fault of an input row"), allowed("a fault of an input row")) == ("", "")
