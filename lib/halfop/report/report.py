"""The report: the state of a warehouse and what its newest runs did, as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from halfop.frame import units as u
from halfop.frame.summary import Summary
from halfop.html import page as p
from halfop.html.choices import script
from halfop.planning.run import Clock, Slice
from halfop.report.figures import Figures, read_figures
from halfop.report.lists import Content, Rejects, by_reason
from halfop.report.sections import sections
from halfop.rules.reasons import Reason, allowed, urgency
from halfop.settings.model import Settings
from halfop.warehouse.tables import Warehouse

_MOST_NAMED = 8
_LONGEST = 60  # of a name in a sentence
_ALARMS = {
    Reason.CONFLICT.name: "Some transactions were ended both ways. The first end stands; ask their producers which end "
    "is true: ",
    Reason.KEY_REUSED.name: "A broker was rebuilt under its old name. Its landings are refused until land "
    "--accept-rewind: ",
}


def report(warehouse: Warehouse, settings: Settings, out: Path, newest: int) -> Summary:
    """Writes the page to `out`, and nothing else; returns the summary."""
    summary = Summary("report")
    now = datetime.now(timezone.utc)
    with summary.phase("read"):
        found = read_figures(warehouse, newest)
    with summary.phase("write"):
        p.write(out, render(found, settings, now))
    summary.run_id = found.last or None
    summary.rows_read = dict(found.tables)
    summary.extra = {"path": str(out.absolute()), "runs": len(found.runs), "open_messages": open_messages(found)}
    return summary


def render(found: Figures, settings: Settings, now: datetime) -> str:
    """Returns the page."""
    notices = [*_open_run(found), *_late(found), *_owed(found), *_rejected(by_reason(found))]
    glance = [p.tiles(_first(found), "first"), p.tiles(_then(found, now)), *notices]
    code = script() if found["hanging"] and found.runs else ""
    return p.page("halfop report", _about(found, settings, now), glance, sections(found, settings), code)


def _about(found: Figures, settings: Settings, now: datetime) -> list[tuple[str, str]]:
    about = [("warehouse", settings.warehouse_root), ("made", f"{u.instant(now)} UTC")]
    if found.runs:
        many = found.last > found.first
        about.append(("looks at", f"runs {found.first:,} to {found.last:,}" if many else f"run {found.last:,}"))
    return about


# ---- tiles ----


def open_messages(found: Figures) -> int:
    return sum(row["n"] for row in found.open_messages)


def _first(found: Figures) -> list[p.Tile]:
    """What most people open the page for."""
    commits, rollbacks = found.total("COMMIT"), found.total("ROLLBACK")
    ages = [row["oldest"] for row in found.open_messages if row["oldest"] is not None]
    oldest = f"the oldest for {u.duration(max(ages))}" if ages else "after the last run"
    looks = {noun: n for noun, n in _looks(found).items() if n}
    tone = "bad" if {"conflict", "reused key"} & looks.keys() else "warn"
    named = ", ".join(u.plural(n, noun) for noun, n in looks.items()) or "nothing is wrong"
    return [
        p.Tile("Committed", u.count(commits), f"and {u.count(rollbacks)} rolled back, in these runs"),
        p.Tile("Open", u.count(open_messages(found)), oldest),
        p.Tile("Need a look", u.count(sum(looks.values())), named, _tone(sum(looks.values()), tone)),
    ]


def _looks(found: Figures) -> dict[str, int]:
    return {
        "conflict": _rejects_of(found, Reason.CONFLICT),
        "reused key": _rejects_of(found, Reason.KEY_REUSED),
        "discard": _discarded(found),
        "rejected row": _rejected_rows(found),
        "late queue": len(found.late),
        "owed table": len(found.run.owed) if found.run else 0,
    }


def _rejects_of(found: Figures, reason: Reason) -> int:
    return sum(each.n for each in by_reason(found) if each.reason == reason.name)


def _discarded(found: Figures) -> int:
    return sum(row["n"] for row in found["discard_reasons"])


def _rejected_rows(found: Figures) -> int:
    """Rejects that are neither urgent nor harmless."""
    return sum(each.n for each in by_reason(found) if urgency(each.reason) == 0)


def _then(found: Figures, now: datetime) -> list[p.Tile]:
    conflicts, others, discarded = _rejects_of(found, Reason.CONFLICT), _rejected_rows(found), _discarded(found)
    landed, ops = found.tables["half_messages"], found.tables["op_messages"]
    return [
        _last_run(found, now),
        p.Tile("Landed", u.count(landed), f"half messages, and {u.count(ops)} ops"),
        p.Tile("Discarded", u.count(discarded), "given up, and not brought back", _tone(discarded, "warn")),
        p.Tile("Conflicts", u.count(conflicts), "ended both ways", _tone(conflicts, "bad")),
        p.Tile("Rejected", u.count(others), "rows that no rule could use", _tone(others, "warn")),
    ]


def _last_run(found: Figures, now: datetime) -> p.Tile:
    if not found.runs:
        return p.Tile("Last run", "none", "start reconcile", "warn")
    last = found.runs[-1]
    if last.closed is None:
        return p.Tile("Last run", f"{last.run_id:,}, open", f"opened {_ago(now, last.opened)}", "warn")
    part, closed = _slice(found), f"closed {_ago(now, last.closed)}"
    if part:
        return p.Tile("Last run", f"{last.run_id:,}, {part}", closed, "warn")
    return p.Tile("Last run", f"{last.run_id:,}", closed, "good")


def _slice(found: Figures) -> str:
    """The slice of a backlog that the last run did; empty if it was the last one."""
    part = found.run.slice if found.run else Slice()
    return f"slice {part.number:,} of {part.of:,}" if part.number < part.of else ""


def _ago(now: datetime, then: datetime) -> str:
    return f"{u.length(max(now - then, then - then))} before this report"


def _tone(number: int, if_some: str) -> str:
    return if_some if number else "good"


# ---- notices ----


def _open_run(found: Figures) -> Content:
    if found.closed:
        part, others = _slice(found), "The next reconcile does the others."
        return [p.notice("warn", f"Run {found.last:,} is {part} of a backlog. {others}")] if part else []
    decided = found.planned >= found.last
    state = "it has decided, and some sinks are not written yet" if decided else "it has not decided yet"
    hint = "If no process is at work on it, the next reconcile finishes it."
    return [p.notice("warn", f"Run {found.last:,} is open: {state}. {hint}")]


def _late(found: Figures) -> Content:
    if not found.late:
        return []
    named = [
        f"{u.cut(clock.broker_name, _LONGEST)}/{clock.queue_id} ({_known(clock)})" for clock in found.late[:_MOST_NAMED]
    ]
    what = f"The op log of {u.plural(len(found.late), 'queue')} has not landed up to the last run's now. Time stands "
    what += "still there: nobody is asked again, and nothing is discarded. "
    hint = "Land later ops, or say by --known-until that there are none: "
    return [p.notice("warn", what, hint, _joined(named, len(found.late)))]


def _known(clock: Clock) -> str:
    return "nothing is known" if clock.known_until is None else f"known until {u.instant(clock.known_until)}"


def _joined(names: Sequence[str], of: int) -> str:
    return ", ".join(names) + (f" and {of - len(names):,} more" if of > len(names) else "")


def _owed(found: Figures) -> Content:
    owed = found.run.owed if found.run else ()
    if not owed:
        return []
    named = [f"{u.cut(debt.sink, _LONGEST)} of run {debt.run_id:,}" for debt in owed[:_MOST_NAMED]]
    return [p.notice("warn", "Owed: ", _joined(named, len(owed)), ". A reconcile without --park-sink writes it.")]


def _rejected(rejects: Sequence[Rejects]) -> Content:
    """The alarms, then a line for each reason that is neither one nor harmless, those of most rows first."""
    anchors = {each.reason: each.anchor for each in rejects}
    alarms = [
        p.notice("bad", text, p.link(anchors[reason], "the rows"), ".")
        for reason, text in _ALARMS.items()
        if reason in anchors
    ]
    return alarms + [_reject(each) for each in rejects if urgency(each.reason) == 0][:_MOST_NAMED]


def _reject(each: Rejects) -> p.Markup:
    to_do = f" {found}." if (found := allowed(each.reason)) else ""
    name = u.cut(f"{each.kind} {each.reason}", _LONGEST)
    return p.notice("warn", f"{u.plural(each.n, 'row')} rejected: ", p.link(each.anchor, name), f".{to_do}")
