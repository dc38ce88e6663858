"""The section of a report that lists hanging messages, open or discarded, from which people choose those to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from pyspark.sql import Row

from halfop import wording as w
from halfop.frame import units as u
from halfop.html import choices as h
from halfop.html import page as p
from halfop.report import queries as q
from halfop.report.figures import Figures
from halfop.report.lists import group, instant, key
from halfop.settings.model import Settings

T = TypeVar("T")
_AGES = (60_000, 600_000, 3_600_000, 6 * 3_600_000, 86_400_000, 3 * 86_400_000)
_MILLI = timedelta(milliseconds=1)
_HEADER = ["half key", "group", "topic", "born (UTC)", "age", "asked", "decision"]
_LEAD = (
    "Open messages, and those discarded in these runs, the oldest first; age is until the last run. Filter and select "
    "them, and copy the command: it writes a plan that you can review, and end --apply carries it out. This page "
    "itself sends nothing."
)


class _Numbered(NamedTuple):
    """The options of a filter, and the number of the option that each row fits."""

    options: list[h.Option]
    numbers: list[int]


def hanging(found: Figures, settings: Settings) -> p.Section:
    rows, now = found["hanging"], found.now
    if not rows or now is None:
        return p.Section("hanging", "Hanging messages, to end", _LEAD, [p.nothing("Nothing hangs.")])
    groups = _numbered([row["producer_group"] for row in rows], _is("producer_group"))
    topics = _numbered([row["real_topic"] for row in rows], _is("real_topic"))
    reasons = _numbered([(row["decision"], row["reason"]) for row in rows], _decided)
    filters = [
        h.Filter("group", "group", groups.options),
        h.Filter("topic", "topic", topics.options),
        h.Filter("reason", "decision", reasons.options),
        h.Filter("age", "age at least", [_older(now, age) for age in _AGES], _AGES),
    ]
    numbers = zip(groups.numbers, topics.numbers, reasons.numbers, strict=True)
    lines = [_choice(row, now, *each) for row, each in zip(rows, numbers, strict=True)]
    commands = h.Commands(w.job_here("end", settings), ["--commit", "--rollback"], "--where", settings.end.limit)
    content = [h.choices(_HEADER, lines, filters, commands)]
    if len(rows) == q.MOST_HANGING:
        content.insert(0, p.paragraph(f"The {u.count(len(rows))} oldest are listed; a filter's command takes all."))
    return p.Section("hanging", "Hanging messages, to end", _LEAD, content)


def _choice(row: Row, now: datetime, of_group: int, of_topic: int, of_reason: int) -> h.Choice:
    born = row["born_timestamp"]
    age = None if born is None else (now - q.EPOCH) // _MILLI - born
    cells: p.Cells = [
        p.code(key(row)),
        group(row),
        row["real_topic"] or "(none)",
        instant(born),
        "" if age is None else u.duration(age),
        row["check_times"] or 0,
        " ".join(_names(row)),
    ]
    values = {"group": of_group, "topic": of_topic, "reason": of_reason, "age": age}
    return h.Choice(cells, w.with_value("--key", key(row)), values)


def _names(row: Row) -> list[str]:
    return [name for name in (row["decision"], row["reason"]) if name]


def _numbered(values: Sequence[T], option: Callable[[T, int], h.Option]) -> _Numbered:
    """The values that there are become options, the most frequent first."""
    most = Counter(values).most_common()
    places = {value: n for n, (value, _) in enumerate(most)}
    return _Numbered([option(value, n) for value, n in most], [places[value] for value in values])


def _is(column: str) -> Callable[[str | None, int], h.Option]:
    def option(value: str | None, n: int) -> h.Option:
        return h.Option(f"{u.cut(value or '(none)', 60)} ({u.count(n)})", _equals(column, value))

    return option


def _equals(column: str, value: str | None) -> str:
    """A condition in SQL. The report has only the beginning of a long value."""
    if value is None:
        return f"{column} IS NULL"
    if len(value) == q.LONGEST:
        return f"startswith({column}, {w.value(value)})"
    return f"{column} = {w.value(value)}"


def _decided(why: tuple[str, str | None], n: int) -> h.Option:
    decision, reason = why
    text = " ".join(name for name in why if name)
    return h.Option(f"{text} ({u.count(n)})", f"{_equals('decision', decision)} AND {_equals('reason', reason)}")


def _older(now: datetime, age: int) -> h.Option:
    born = f"{now - age * _MILLI:%Y-%m-%d %H:%M:%S.%f}Z"
    return h.Option(u.duration(age), f"born_timestamp <= TIMESTAMP '{born}'")
