"""The sections of a report that list rows: hanging messages to end, discards to resume, rejects and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple, TypeVar

from pyspark.sql import Row

from halfop.columns.keys import Key, key_of
from halfop.frame import commands as w
from halfop.frame import units as u
from halfop.frame.units import EPOCH
from halfop.html import choices as h
from halfop.html import page as p
from halfop.report import queries as q
from halfop.report.figures import Figures
from halfop.rules import reasons as r
from halfop.settings.model import Settings
from halfop.warehouse.schema import literal
from halfop.wording import value

T = TypeVar("T")
Content = list[p.Markup]
_NONE = "(none)"
_NOT_WRITTEN = "trans_check_max_time lacks it: reconcile without --park-sink writes it there"
_OWN_FAULT = "a row of an input file with a fault of its own"
_AGES = (60_000, 600_000, 3_600_000, 6 * 3_600_000, 86_400_000, 3 * 86_400_000)
_MILLI = timedelta(milliseconds=1)


def group(row: Row) -> str:
    return row["producer_group"] or _NONE


def about(row: Row, at: str) -> p.Cells:
    """Returns the cells that tables of messages begin with: half key, group, topic, and the instant in column `at`."""
    return [p.code(str(key_of(row))), group(row), row["real_topic"] or _NONE, p.unbroken(u.moment(row[at]))]


def decided(decision: str, reason: str | None) -> str:
    """Returns a decision with its reason, if it has one."""
    return decision if reason in (None, "NONE") else f"{decision} {reason}"


# ---- hanging messages ----


def hanging(found: Figures, settings: Settings) -> Content:
    rows, now = found["hanging"], found.now
    if not rows or now is None:
        return [p.nothing("Nothing hangs.")]
    groups, of_group = _numbered([row["producer_group"] for row in rows], _is("producer_group"))
    topics, of_topic = _numbered([row["real_topic"] for row in rows], _is("real_topic"))
    reasons, of_reason = _numbered([(row["decision"], row["reason"]) for row in rows], _decided)
    filters = [
        h.Filter("group", "group", groups),
        h.Filter("topic", "topic", topics),
        h.Filter("reason", "decision", reasons),
        h.Filter("age", "age at least", [_older(now, age) for age in _AGES], _AGES),
    ]
    numbers = zip(of_group, of_topic, of_reason, strict=True)
    lines = [_choice(row, now, *each) for row, each in zip(rows, numbers, strict=True)]
    commands = h.Commands(w.job_here("end", settings), ["--commit", "--rollback"], "--where", settings.end.limit)
    header = ["half key", "group", "topic", "born (UTC)", "age", "asked", "decision"]
    table = h.choices(header, lines, filters, commands)
    if len(rows) < q.MOST_HANGING:
        return [table]
    return [p.paragraph(f"The {u.count(len(rows))} oldest are listed; a filter's command takes all."), table]


def _choice(row: Row, now: datetime, of_group: int, of_topic: int, of_reason: int) -> h.Choice:
    born = row["born_timestamp"]
    age = None if born is None else (now - EPOCH) // _MILLI - born
    shown_age = "" if age is None else u.duration(age)
    cells = [*about(row, "born_timestamp"), shown_age, row["check_times"] or 0, decided(row["decision"], row["reason"])]
    values = {"group": of_group, "topic": of_topic, "reason": of_reason, "age": age}
    return h.Choice(cells, w.with_value("--key", str(key_of(row))), values)


def _numbered(values: Sequence[T], option: Callable[[T, int], h.Option]) -> tuple[list[h.Option], list[int]]:
    """The values that there are become options, the most frequent first; and the number of the one that each fits."""
    most = Counter(values).most_common()
    places = {value: n for n, (value, _) in enumerate(most)}
    return [option(value, n) for value, n in most], [places[value] for value in values]


def _is(column: str) -> Callable[[str | None, int], h.Option]:
    def option(value: str | None, n: int) -> h.Option:
        return h.Option(f"{u.cut(value or _NONE, 60)} ({u.count(n)})", _equals(column, value))

    return option


def _equals(column: str, text: str | None) -> str:
    """A condition in SQL. The report has only the beginning of a long value."""
    if text is None:
        return f"{column} IS NULL"
    if len(text) == q.LONGEST:
        return f"startswith({column}, {value(text)})"
    return f"{column} = {value(text)}"


def _decided(why: tuple[str, str | None], n: int) -> h.Option:
    decision, reason = why
    condition = f"{_equals('decision', decision)} AND {_equals('reason', reason)}"
    return h.Option(f"{decided(decision, reason)} ({u.count(n)})", condition)


def _older(now: datetime, age: int) -> h.Option:
    born = f"{now - age * _MILLI:%Y-%m-%d %H:%M:%S.%f}Z"
    return h.Option(u.duration(age), f"born_timestamp <= TIMESTAMP '{born}'")


# ---- discards ----


def discards(found: Figures, settings: Settings) -> Content:
    rows, of = found["discards"], sum(row["n"] for row in found["discard_reasons"])
    if not rows:
        return [p.nothing("These runs left nothing to resume.")]
    reasons: list[p.Cells] = [
        [p.code(row["reason"]), row["n"], r.plain("DISCARD", row["reason"])]
        for row in sorted(found["discard_reasons"], key=lambda row: -row["n"])
    ]
    header = ["half key", "group", "topic", "discarded (UTC)", "asked", "reason", "to resume it"]
    where, order = f"WHERE run_id >= {found.first}", "ORDER BY run_id DESC, born_timestamp"
    query = w.select("trans_check_max_time", f"{where} {order}", settings)
    return [
        p.table(["reason", "messages", "rule"], reasons),
        p.table(header, [_discard(row, settings) for row in rows]),
        p.more(len(rows), of, "discarded messages (with those brought back since)", query),
    ]


def _discard(row: Row, settings: Settings) -> p.Cells:
    resume = p.command(w.on_message("resume", str(key_of(row)), settings, "--key"))
    to_do = "resumed: the next run makes it open" if row["resumed"] else resume if row["written"] else _NOT_WRITTEN
    return [*about(row, "decided_at"), row["check_times"] or 0, p.code(row["reason"]), to_do]


# ---- rejects ----


class Rejects(NamedTuple):
    """The number of rejects of a kind and reason, and their place on the page."""

    kind: str
    reason: str
    n: int
    anchor: str


def by_reason(found: Figures) -> list[Rejects]:
    """Returns the rejects by kind and reason; what matters most comes first."""
    rows = sorted(found["reject_reasons"], key=lambda row: (r.urgency(row["reason"]), -row["n"]))
    return [Rejects(row["kind"], row["reason"], row["n"], f"rejects-{n}") for n, row in enumerate(rows)]


def rejects(found: Figures, settings: Settings) -> Content:
    every = by_reason(found)
    if not every:
        return [p.nothing("Nothing was rejected in these runs.")]
    cells: list[p.Cells] = [
        [each.kind, p.link(each.anchor, each.reason), each.n, r.plain("REJECT", each.reason) or _OWN_FAULT]
        for each in every
    ]
    rows = {why: list(each) for why, each in groupby(found["rejects"], lambda row: (row["kind"], row["reason"]))}
    parts = [_rows_of(each, rows[each.kind, each.reason], settings, found.first) for each in every]
    return [p.table(["what", "why", "rows", "meaning"], cells), *parts]


def _rows_of(each: Rejects, rows: list[Row], settings: Settings, first: int) -> p.Markup:
    header = ["place", "run", "rejected (UTC)", "what was found", "half key"]
    table = p.table(header, [_reject(row) for row in rows], [{"id": f"{each.anchor}-{row['nth']}"} for row in rows])
    where = f"WHERE kind = {literal(each.kind)} AND reason = {literal(each.reason)}"
    since = f"AND (run_id >= {first} OR run_id IS NULL)"  # rejects of a landing have no run
    query = w.select("rejected", f"{where} {since} ORDER BY rejected_at DESC", settings)
    more = p.more(len(rows), each.n, "rows", query)
    return p.part(f"{each.kind} {each.reason}", table, more, anchor=each.anchor)


def _reject(row: Row) -> p.Cells:
    half = None if row["half_offset"] is None else Key(row["broker_name"], row["queue_id"], row["half_offset"])
    place = [str(part) for part in (row["broker_name"], row["queue_id"], row["queue_offset"]) if part is not None]
    run = "at landing" if row["run_id"] is None else f"{row['run_id']:,}"
    at = p.unbroken(u.moment(row["rejected_at"]))
    return ["/".join(place), run, at, row["detail"] or "", p.code(str(half)) if half else ""]
