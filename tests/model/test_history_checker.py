"""The checker of histories: what each finding is, by a history that has it, and a clean one that has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.histories.check import check
from support.histories.events import (
    Acknowledged,
    Consumed,
    Decided,
    Ended,
    Event,
    Fates,
    Journal,
    Meant,
    Read,
    Row,
    Sent,
    Unreadable,
    history,
)

TOPIC = "orders"
ONE, TWO, MORE = Row("one", "b", 0, 1, 11), Row("two", "b", 1, 2, 22), Row("more", "b", 4, 2, 33)


def transaction(key: str, digest: int, outcome: str | None, decision: str | None, who: str = "producer") -> list[Event]:
    """A transaction whose half message was acknowledged."""
    meant = [Meant(who, key, outcome)] if outcome else []
    decided = [Decided(key, decision)] if decision else []
    return [Sent(1, "p", key, TOPIC, digest), Acknowledged(2, "p", key), *meant, *decided]


def look(
    at: float, *came: Row, who: str = "r", whole: bool = False, gone: tuple[Row, ...] = (), topic: str = TOPIC
) -> Read:
    return Read(at - 0.5, at, who, topic, int(at), whole, list(came), list(gone))


def consumed(*keys: str) -> list[Consumed]:
    return [Consumed(TOPIC, key) for key in keys]


CLEAN: list[Event] = [
    *transaction("one", 11, "COMMIT", "COMMIT"),
    *transaction("two", 22, "COMMIT", "COMMIT", "operator"),
    *transaction("rolled", 44, "ROLLBACK", "ROLLBACK"),
    Ended(3, "p", "one", "COMMIT"),
    Sent(1, "p", "not stored", TOPIC, 55),
    Sent(1, "p", "not acknowledged", TOPIC, 55),
    Meant("producer", "not acknowledged", "ROLLBACK"),
    look(10, whole=True),
    look(11, ONE),
    look(12, TWO),
    look(13, ONE, TWO, who="again", whole=True),
    look(20, ONE, TWO, who="last", whole=True),
    *consumed("one", "one", "two"),
]
LAST = look(20, ONE, TWO, who="last", whole=True)


def without(*lost: Event) -> list[Event]:
    return [event for event in CLEAN if event not in lost]


def last(*rows: Row) -> list[Event]:
    """The clean history with other rows in the end."""
    return [*without(LAST), look(20, *rows, who="last", whole=True)]


FOUND = {
    "a commit that is in no topic": (
        [*CLEAN, *transaction("lost", 1, "COMMIT", "COMMIT")],
        {("LOST", "lost")},
    ),
    "a commit that a broker delivered, and the lake did not": (
        [*CLEAN, *transaction("lost", 1, "COMMIT", "COMMIT"), *consumed("lost")],
        {("LOST", "lost")},
    ),
    "a commit twice": (last(ONE, TWO, TWO), {("DUPLICATED", "two")}),
    "a commit under two places": (last(ONE, TWO, TWO._replace(half_offset=9)), {("DUPLICATED", "two")}),
    "a second delivery after end": ([*CLEAN, *consumed("two")], {("DUPLICATED", "two")}),
    "a rollback that was delivered": (
        [*last(ONE, TWO, Row("rolled", "b", 2, 2, 44)), *consumed("rolled")],
        {("ROLLED_BACK", "rolled")},
    ),
    "one that was never acknowledged, and nobody was to commit": (
        [*last(ONE, TWO, Row("not stored", "b", 3, 2, 55)), *consumed("not stored")],
        {("PHANTOM", "not stored")},
    ),
    "what nobody sent": ([*last(ONE, TWO, MORE), *consumed("more")], {("PHANTOM", "more")}),
    "what its broker did not deliver": (
        [event for event in CLEAN if event != Consumed(TOPIC, "two")],
        {("PHANTOM", "two")},
    ),
    "a changed body": (last(ONE, TWO._replace(digest=23)), {("CHANGED", "two"), ("ABORTED", "two")}),
    "another topic": (
        [*last(ONE), look(21, TWO, who="last", whole=True, topic="other")],
        {("CHANGED", "two"), ("ABORTED", "two"), ("LOST", "two")},
    ),
    "a row that vanished": ([*without(LAST), look(14, gone=(TWO,)), LAST], {("ABORTED", "two")}),
    "a row that a reader missed who began later": (last(TWO), {("ABORTED", "one"), ("LOST", "one")}),
    "a run in two parts": (
        [*last(ONE, TWO, MORE), look(14, MORE), *transaction("more", 33, "COMMIT", "COMMIT"), *consumed("more")],
        {("TORN", TOPIC)},
    ),
    "a run after a later one": (
        [
            *last(ONE, TWO, MORE._replace(run=3)),
            look(14, MORE._replace(run=3)),
            look(15, MORE._replace(run=3), who="slow", whole=True),
            look(16, ONE, TWO, who="slow"),
            *transaction("more", 33, "COMMIT", "COMMIT"),
            *consumed("more"),
        ],
        {("REORDERED", TOPIC), ("ABORTED", "one"), ("ABORTED", "two")},
    ),
    "no decision": ([*CLEAN, *transaction("open", 1, "ROLLBACK", None)], {("FORGOTTEN", "open")}),
    "still open": ([*CLEAN, *transaction("open", 1, "ROLLBACK", "CHECK")], {("UNENDED", "open")}),
    "given up": ([*CLEAN, *transaction("open", 1, None, "DISCARD")], {("UNENDED", "open")}),
    "ended the other way": (
        [*CLEAN, *transaction("other", 1, "COMMIT", "ROLLBACK")],
        {("UNENDED", "other"), ("LOST", "other")},
    ),
    "a table that could not be read": ([*CLEAN, Unreadable(9, "r", TOPIC, "no such file")], {("UNREADABLE", TOPIC)}),
}


def test_a_clean_history_has_no_finding() -> None:
    assert check(CLEAN) == []


@pytest.mark.parametrize("name", FOUND)
def test_each_finding(name: str) -> None:
    events, findings = FOUND[name]
    assert {(finding.name, finding.subject) for finding in check(events)} == findings


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "all")
    for event in CLEAN:
        journal.write(event)
    with (tmp_path / "all.jsonl").open("a") as file:
        file.write('{"Acknowledged": [3, "p", "cut')
    assert list(history(tmp_path)) == CLEAN


def test_the_first_who_says_it_decides(tmp_path: Path) -> None:
    fates = Fates(tmp_path / "fates")
    assert [fates.decide("one", outcome) for outcome in ("COMMIT", "ROLLBACK")] == ["COMMIT", "COMMIT"]
    assert list(fates.meant()) == [Meant("producer", "one", "COMMIT")]
