"""Judges a history, in the manner of jepsen.tests.kafka: what parties wrote down, against what halfop promises.

| finding | means |
| --- | --- |
| LOST | it was acknowledged and to commit, or its broker delivered it, and it is in no topic |
| DUPLICATED | it is in a topic twice; or `end` made its broker deliver it twice |
| ROLLED_BACK | it was to roll back, and a reader saw it in a topic |
| ABORTED | a reader saw a row that a later look does not have |
| PHANTOM | a reader saw what nobody sent, what nobody meant to commit, or what its broker did not deliver |
| CHANGED | a body, the property `note` or the topic is not what was sent |
| REORDERED | a reader saw rows of a run after those of a later run |
| TORN | a reader saw one part of a run's rows in a topic, and then another part |
| FORGOTTEN | an acknowledged half message has no decision |
| UNENDED | an acknowledged transaction is still open, given up, or ended the other way |
| UNREADABLE | a table that was there could not be read |

halfop promises no order of the messages of one key: rows of a topic have none. It promises that runs come to a topic
whole, one after the other, and that each version has all rows of the version before.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from support.histories.events import (
    Acknowledged,
    Consumed,
    Decided,
    Ended,
    Event,
    Meant,
    Read,
    Row,
    Sent,
    Unreadable,
)


class Finding(NamedTuple):
    name: str
    subject: str
    detail: str


class _Known:
    """A history by transactions and topics. A topic's last whole look is its end."""

    def __init__(self, history: Iterable[Event]) -> None:
        by_kind: dict[type, list[Any]] = defaultdict(list)
        for event in history:
            by_kind[type(event)].append(event)
        self.sent: dict[str, Sent] = {event.key: event for event in by_kind[Sent]}
        self.acknowledged: set[str] = {event.key for event in by_kind[Acknowledged]}
        self.ended: dict[str, str] = {event.key: event.outcome for event in by_kind[Ended]}
        self.meant: dict[str, Meant] = {event.key: event for event in by_kind[Meant]}
        self.decided: dict[str, str] = dict(by_kind[Decided])
        self.unreadable: list[Unreadable] = by_kind[Unreadable]
        self.consumed: dict[str, Counter[str]] = defaultdict(Counter)
        for event in by_kind[Consumed]:
            self.consumed[event.topic][event.key] += 1
        self.reads: dict[str, list[Read]] = defaultdict(list)
        for event in sorted(by_kind[Read], key=lambda read: read.at):
            self.reads[event.topic].append(event)
        self.last = {topic: Counter(_last_whole(reads).came) for topic, reads in self.reads.items()}

    def outcome(self, key: str) -> str | None:
        return self.meant[key].outcome if key in self.meant else None


def _last_whole(reads: Sequence[Read]) -> Read:
    return [read for read in reads if read.whole][-1]


def check(history: Iterable[Event]) -> list[Finding]:
    """All that a history has which must not be; each only once."""
    known = _Known(history)
    found = [*_fates(known), *_rows(known), *_by_brokers(known)]
    found += [finding for topic, reads in known.reads.items() for finding in _looks(topic, reads)]
    found += [Finding("UNREADABLE", each.topic, f"{each.who} at {each.at}: {each.error}") for each in known.unreadable]
    return list(dict.fromkeys(found))


def _fates(known: _Known) -> Iterator[Finding]:
    """Each acknowledged transaction has the fate that it was meant to have."""
    delivered = {row.key for rows in known.last.values() for row in rows}
    for key in known.acknowledged:
        outcome, decision = known.outcome(key), known.decided.get(key)
        said = f", and its end was acknowledged as {known.ended[key]}" if key in known.ended else ""
        if decision is None:
            yield Finding("FORGOTTEN", key, f"it was to {outcome}{said}")
        elif decision != outcome:
            yield Finding("UNENDED", key, f"{decision}; it was to {outcome}{said}")
        if outcome == "COMMIT" and key not in delivered:
            yield Finding("LOST", key, f"{decision}{said}")


def _rows(known: _Known) -> Iterator[Finding]:
    """Whatever a reader saw was sent so, and was to commit."""
    for topic, rows in known.last.items():
        times = Counter(row.key for row in rows.elements())
        yield from (Finding("DUPLICATED", key, f"{n} times in {topic}") for key, n in times.items() if n > 1)
        seen = {row for read in known.reads[topic] for row in read.came}
        yield from (finding for row in seen for finding in _row(known, topic, row))


def _row(known: _Known, topic: str, row: Row) -> Iterator[Finding]:
    sent, outcome = known.sent.get(row.key), known.outcome(row.key)
    if sent is None:
        yield Finding("PHANTOM", row.key, f"nobody sent {row} of {topic}")
    elif (sent.topic, sent.digest) != (topic, row.digest):
        yield Finding("CHANGED", row.key, f"sent to {sent.topic} as {sent.digest}, in {topic} as {row.digest}")
    if outcome == "ROLLBACK":
        yield Finding("ROLLED_BACK", row.key, f"run {row.run} delivered it to {topic}")
    elif outcome is None and sent is not None:
        yield Finding("PHANTOM", row.key, f"nobody meant to commit {row} of {topic}")


def _by_brokers(known: _Known) -> Iterator[Finding]:
    """The lake has what brokers deliver. They may deliver again what a producer said twice, but not what `end` said."""
    for topic, consumed in known.consumed.items():
        there = {row.key for row in known.last.get(topic, Counter())}
        yield from (Finding("LOST", key, "its broker delivered it") for key in consumed.keys() - there)
        yield from (Finding("PHANTOM", key, "its broker has not delivered it") for key in there - consumed.keys())
        for key, times in consumed.items():
            if times > 1 and key in known.meant and known.meant[key].who == "operator":
                yield Finding("DUPLICATED", key, f"its broker delivered it {times} times after `end`")


def _looks(topic: str, reads: Sequence[Read]) -> Iterator[Finding]:
    """Nothing vanishes, and runs come whole and in their order. A reader that starts again knows what it saw before."""
    runs: dict[str, list[int]] = defaultdict(list)
    for n, read in enumerate(reads):
        gone = list(read.gone)
        if read.whole:
            gone += {row for other in reads[:n] if other.at < read.began for row in other.came} - set(read.came)
        yield from (Finding("ABORTED", row.key, f"{read.who} sees {row} of {topic} no more") for row in gone)
        seen, came = runs[read.who], sorted({row.run for row in read.came})
        where = f"{read.who}, version {read.version} of {topic}"
        yield from (Finding("TORN", topic, f"more of run {run} came: {where}") for run in came if run in seen)
        late = [run for run in came if seen and run < max(seen) and run not in seen]
        yield from (Finding("REORDERED", topic, f"run {run} came after run {max(seen)}: {where}") for run in late)
        seen += came
