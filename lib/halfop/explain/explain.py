"""The text of `explain`: the timeline of every transaction that a key names, and its state now.

A timeline has a line an event, in the order of the events at the broker and in the runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from pyspark.sql import Row

from halfop.columns.keys import key_of, superseded_by
from halfop.explain.life import MessageLife, by_clock
from halfop.explain.look_up import MOST, find
from halfop.explain.outlook import Outlook, outlook
from halfop.frame.log import escaped
from halfop.frame.summary import Summary
from halfop.frame.units import duration, exact, moment, plural
from halfop.landing.table_rows import RESOLVE
from halfop.rules import reasons as r
from halfop.settings.model import Settings
from halfop.warehouse.tables import Warehouse
from halfop.wording import refuse_empty

_BROKER, _RUN, _HALFOP = "broker", "run", "halfop"
_CLOCKS = (
    "UTC. Beside each stands its clock: broker (the store time), run (its now), halfop (the machine that landed or "
    "resumed the row; each “landed”, too)"
)
_ORDER = (
    "stored",
    "op",
    "final",
    "discard",
    "superseded",
    "decision",
    "delivery",
    "reject",
    "resume",
    "ending",
    "erasure",
)


class Event(NamedTuple):
    """A line of the timeline; `rank` orders events of one instant, `clock` is whose instant it is."""

    at: int
    rank: int
    text: str
    clock: str


class Explained(NamedTuple):
    """The summary, whose `messages` say by half key where each is, and the timelines as text."""

    summary: Summary
    text: str

    def __str__(self) -> str:
        return self.text


def explain(warehouse: Warehouse, settings: Settings, wanted: str) -> Explained:
    """Returns the summary and the text; no control character of a message is in it."""
    summary = Summary("explain")
    refuse_empty(warehouse)
    with summary.phase("look up"):
        found, more = find(warehouse, wanted)
        looks = [outlook(warehouse, settings, life) for life in found]
    if more:
        summary.notes.append(
            f"more than {MOST} half messages have this UNIQ_KEY; give a half key to see one that is not shown"
        )
    summary.extra["messages"] = {str(life.keys[-1]): look.state for life, look in zip(found, looks, strict=True)}
    lines = [line for life, look in zip(found, looks, strict=True) for line in [*_lines(life, look), ""]]
    return Explained(summary, "".join(f"{escaped(line)}\n" for line in lines))


def _lines(life: MessageLife, look: Outlook) -> list[str]:
    first, *others = look.lines
    return [*timeline(life), "", f"  state: {first}", *[f"         {line}" for line in others]]


def timeline(life: MessageLife) -> list[str]:
    """Returns a heading, the message's own data, and a line an event with its clock and the time since the birth."""
    born = life.half["born_timestamp"] if life.half else None
    found = sorted(events(life))
    facts = [f"  {name:<9} {value}" for name, value in _facts(life).items() if value is not None]
    since = ["" if born is None else _signed(event.at - born) for event in found]
    width = max(map(len, since), default=0)
    lines = [
        f"  {exact(event.at)}  {event.clock:<6}  {gap:>{width}}  {event.text}"
        for gap, event in zip(since, found, strict=True)
    ]
    return [f"Half message {life.keys[-1]}", *facts, "", *lines]


def _facts(life: MessageLife) -> dict[str, str | None]:
    """Facts about the message itself, by name."""
    row = life.half or life.last
    known = {} if row is None else row.asDict()
    born, size = known.get("born_timestamp"), known.get("bytes")
    return {
        "UNIQ_KEY": known.get("uniq_key"),
        "group": known.get("producer_group"),
        "topic": known.get("real_topic"),
        "born": None if born is None else f"{exact(born)} by the producer's clock",
        "from": known.get("born_host"),
        "bytes": None if size is None else f"{size:,}",
        "copies": ", ".join(map(life.place, life.keys)) if len(life.keys) > 1 else None,
        "times": _CLOCKS,
    }


def _signed(millis: int) -> str:
    return f"+{duration(millis)}" if millis >= 0 else duration(millis)


# ---- events ----


def events(life: MessageLife) -> Iterator[Event]:
    """Returns what happened to a message, in no order."""
    yield from (_stored(row, life) for row in life.halves)
    yield from (_op(row, life) for row in life.ops)
    yield from (_at_broker(row["store_timestamp"], row, "final", _final(row)) for row in life.finals)
    yield from (_at_broker(row["store_timestamp"], row, "discard", _discarded(row)) for row in life.discards)
    decisions = [row for row in life.decisions if not _superseded(row)]
    yield from (_event(row["at"], "decision", _decision(row, life), _RUN) for row in decisions)
    yield from _superseding(life)
    yield from (_event(row["at"], "delivery", _delivery(row), _BROKER) for row in life.deliveries)
    yield from (_reject(row) for row in life.rejects)
    resumed = [(row["resumed_at"], f"resumed by {row['owner'] or 'unknown'}") for row in life.resumes]
    yield from (_event(at, "resume", text, _HALFOP) for at, text in resumed)
    yield from (_event(row["at"], "ending", _ending(row), _HALFOP) for row in life.endings)
    yield from _erasures(life)


def _event(at: int | None, kind: str, text: str, clock: str) -> Event:
    return Event(at or 0, _ORDER.index(kind), text, clock)


def _at_broker(at: int | None, row: Row, kind: str, text: str) -> Event:
    """An event at the broker; if it gave no time, at the time of its landing."""
    return _event(row["landed_at"], kind, text, _HALFOP) if at is None else _event(at, kind, text, _BROKER)


def _landed(row: Row) -> str:
    often = f", {plural(row['times'], 'time')}" if row["times"] > 1 else ""
    return f"landed {moment(row['landed_at'])}{often}"


def _stored(row: Row, life: MessageLife) -> Event:
    """A half message; the later ones of several are copies that the broker put back."""
    key = key_of(row)
    there = min(other.queue_offset for other in map(key_of, life.halves) if other[:2] == key[:2])
    escaped_here = key.queue_offset == there and row["landed_wait"] == "false"
    again = "escaped to this broker" if escaped_here else "put back by the broker"
    what = "stored" if key == key_of(life.first_half) else again
    times = f", check times {row['landed_check_times']}" if row["landed_check_times"] else ""
    text = f"{what} at offset {life.place(key)} (log {row['commit_log_offset']}{times}); {_landed(row)}"
    return _at_broker(row["store_timestamp"], row, "stored", text)


def _op(row: Row, life: MessageLife) -> Event:
    answer = {True: ", the answer to a check", False: ", by the producer itself", None: ""}[row["from_check"]]
    answer = _given(row["op_offset"], row["outcome"], life) or answer
    outcome = row["outcome"] or "no outcome"
    text = f"op message {row['op_offset']}, item {row['item']}: {outcome}{answer}; {_landed(row)} from {row['source']}"
    at = row["born_timestamp"] if row["store_timestamp"] is None else row["store_timestamp"]
    return _at_broker(None if row["source"] == RESOLVE else at, row, "op", text)  # no broker has what `end` landed


def _given(op_offset: int | None, outcome: str, life: MessageLife) -> str:
    """Who gave an outcome, if it was `end` or `resolve`, or may have been; else nothing."""
    if life.is_ours(op_offset):
        return ", given by end or resolve, not by the producer"
    return ", given by end or resolve, or by the producer" if life.may_be_ours(outcome) else ""


def _final(row: Row) -> str:
    place = f"{row['topic']}/{row['queue_id']}/{row['queue_offset']}"
    return f"the broker delivered it: final message {place}; landed {moment(row['landed_at'])}"


def _discarded(row: Row) -> str:
    return f"the broker discarded it (check times {row['check_times']}); landed {moment(row['landed_at'])}"


def _delivery(row: Row) -> str:
    after = None if row["answered_after"] is None else f"after {duration(row['answered_after'])}"
    about = ", ".join(part for part in (after, row["client"], row["remark"]) if part)
    return f"the gateway: request {row['request_id'][:16]} {row['outcome']}" + (f" ({about})" if about else "")


def _reject(row: Row) -> Event:
    where, clock = ("at landing", _HALFOP) if row["run_id"] is None else (f"run {row['run_id']}", _RUN)
    why = f"{row['kind']} rejected {row['reason']}: {r.words(row['reason'])} ({row['detail'] or ''})"
    return _event(row["rejected_at"], "reject", f"{where}: {why}", clock)


def _erasures(life: MessageLife) -> Iterator[Event]:
    """One line for all tables from which a call erased it."""
    rows = sorted(life.erasures, key=lambda row: (row["at"], row["plan_id"], row["by"], row["table_name"]))
    for (at, plan_id, by), each in groupby(rows, lambda row: (row["at"], row["plan_id"], row["by"])):
        tables = ", ".join(dict.fromkeys(row["table_name"] for row in each))
        yield _event(at, "erasure", f"erased from {tables}: plan {plan_id}, by {by}", _HALFOP)


def _ending(row: Row) -> str:
    text = f"end: {row['kind']} {row['state']}, plan {row['plan_id']} ({row['origin']}), by {row['by']}"
    return f"{text}: {row['remark']}" if row["remark"] else text


# ---- decisions ----


def _decision(row: Row, life: MessageLife) -> str:
    copy = f" (offset {life.place(key_of(row))})" if len(life.keys) > 1 else ""
    return f"{_runs(row)}: {_what(row)}{copy}{_why(row, life)}{_clock(row, life)}{_details(row, life)}"


def _superseded(row: Row) -> bool:
    return bool(row["decision"] == "SUPERSEDED")


def _superseding(life: MessageLife) -> list[Event]:
    """One line for all copies that the same copy superseded in one run."""

    def which(row: Row) -> tuple[int, str, str]:
        by = superseded_by(row)
        return row["at"], "" if by is None else life.place(by), f"{_runs(row)}: {_what(row)}{_why(row, life)}"

    rows = sorted(filter(_superseded, life.decisions), key=lambda row: (which(row), row["queue_offset"]))
    return [
        _event(at, "superseded", f"{text}: offset {by} for {', '.join(life.place(key_of(row)) for row in each)}", _RUN)
        for (at, by, text), each in groupby(rows, which)
    ]


def _what(row: Row) -> str:
    return f"{row['decision']} {row['reason'] or ''}".strip()


def _runs(row: Row) -> str:
    if row["times"] == 1:
        return f"run {row['run_from']}"
    return f"runs {row['run_from']} to {row['run_upto']} (x{row['times']}, until {moment(row['until'])})"


def _why(row: Row, life: MessageLife) -> str:
    """The line of the rules that held, in the words of docs/rules.md."""
    given = _given(row["op_queue_offset"], row["decision"], life) if row["op_queue_offset"] is not None else ""
    meaning = given.removeprefix(", ") or r.meaning(row["decision"], row["reason"])
    line = r.line(row["decision"], row["reason"], row["check_immunity"] is not None)
    if line is None:
        return f" - {meaning}" if meaning else ""
    return f" - line {line.number}: {line.holds}" + (f"; {meaning}" if meaning != line.holds else "")


def _clock(row: Row, life: MessageLife) -> str:
    """The queue clock by which a line about time held: in the first of several equal decisions, and in the last."""
    if not by_clock(row):
        return ""
    first, last = (life.clocks[row[run]] for run in ("run_from", "run_upto"))
    return f"; queue clock {first}" + (f", in the last of these runs {last}" if row["times"] > 1 else "")


def _details(row: Row, life: MessageLife) -> str:
    if row["decision"] == "CHECK":
        asked = [each for each in life.requests if each["run_id"] == row["run_from"]]
        request = f", request {asked[0]['request_id'][:16]} to {asked[0]['producer_group']}" if asked else ""
        return f"; check {row['check_times']}{request or ', its request is not written yet'}"
    return "" if row["op_queue_offset"] is None else f"; by op message {row['op_queue_offset']}"
