"""The report: the state of a warehouse and what its newest runs did, as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from halfop.frame import units as u
from halfop.frame.summary import Summary
from halfop.html import page as p
from halfop.html.choices import script
from halfop.planning.clocks import Clock
from halfop.report.figures import Figures, read_figures
from halfop.report.lists import anchors
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
    about, glance = _about(found, settings, now), _glance(found, now)
    code = script() if found["hanging"] and found.runs else ""
    return p.page("halfop report", about, glance, sections(found, settings), code)


def _about(found: Figures, settings: Settings, now: datetime) -> list[tuple[str, str]]:
    about = [("warehouse", settings.warehouse_root), ("made", f"{u.instant(now)} UTC")]
    if found.runs:
        many = found.last > found.first
        about.append(("looks at", f"runs {found.first:,} to {found.last:,}" if many else f"run {found.last:,}"))
    return about


# ---- at a glance ----


def open_messages(found: Figures) -> int:
    return sum(row["n"] for row in found["open_by_age"] if row["decision"] != "EARLY_OP")


def _glance(found: Figures, now: datetime) -> list[str]:
    return [p.tiles([*_state(found, now), *_counts(found)]), *_notices(found)]


def _state(found: Figures, now: datetime) -> list[p.Tile]:
    owed, late = len(found.run.owed) if found.run else 0, len(found.late)
    return [
        _last_run(found, now),
        p.Tile("Late queues", u.count(late), "their clocks stand still" if late else "", _tone(late, "warn")),
        p.Tile("Owed sinks", u.count(owed), "parked, and still to be written" if owed else "", _tone(owed, "warn")),
        _open_tile(found),
    ]


def _last_run(found: Figures, now: datetime) -> p.Tile:
    if not found.runs:
        return p.Tile("Last run", "none", "start reconcile", "warn")
    last = found.runs[-1]
    if last.closed is None:
        return p.Tile("Last run", f"{last.run_id:,}, open", f"opened {_ago(now, last.opened)}", "warn")
    return p.Tile("Last run", f"{last.run_id:,}", f"closed {_ago(now, last.closed)}", "good")


def _ago(now: datetime, then: datetime) -> str:
    return f"{u.length(max(now - then, then - then))} before this report"


def _tone(number: int, where_some: str) -> str:
    return where_some if number else "good"


def _open_tile(found: Figures) -> p.Tile:
    ages = [
        row["oldest"] for row in found["open_by_age"] if row["decision"] != "EARLY_OP" and row["oldest"] is not None
    ]
    return p.Tile("Open messages", f"{open_messages(found):,}", f"oldest {u.duration(max(ages))}" if ages else "")


def _counts(found: Figures) -> list[p.Tile]:
    rejects = {(row["kind"], row["reason"]): row["n"] for row in found["reject_reasons"]}
    conflicts = sum(n for (_, reason), n in rejects.items() if reason == Reason.CONFLICT.name)
    others = sum(n for (_, reason), n in rejects.items() if urgency(reason) == 0)
    discarded = sum(row["n"] for row in found["discard_reasons"])
    landed, ops = found.tables["half_messages"], found.tables["op_messages"]
    commits, rollbacks = found.total("COMMIT"), found.total("ROLLBACK")
    return [
        p.Tile("Landed", u.count(landed), f"half messages, and {u.count(ops)} ops"),
        p.Tile("Committed", u.count(commits), f"and {u.count(rollbacks)} rolled back, in these runs"),
        p.Tile("Discarded", u.count(discarded), "in these runs, not brought back since", _tone(discarded, "warn")),
        p.Tile("Conflicts", u.count(conflicts), "in these runs, ended both ways", _tone(conflicts, "bad")),
        p.Tile("Rejected", u.count(others), "rows that no rule could use", _tone(others, "warn")),
    ]


def _notices(found: Figures) -> list[str]:
    return [*_open_run(found), *_late(found), *_owed(found), *_alarms(found), *_rejected(found)]


def _open_run(found: Figures) -> list[str]:
    if found.closed:
        return []
    decided = found.planned >= found.last
    state = "it has decided, and some sinks are not written yet" if decided else "it has not decided yet"
    hint = "If no process is at work on it, the next reconcile finishes it."
    return [p.notice("warn", f"Run {found.last:,} is open: {state}. {hint}")]


def _late(found: Figures) -> list[str]:
    if not found.late:
        return []
    named = [
        f"{u.cut(clock.broker_name, _LONGEST)}/{clock.queue_id} ({_known(clock)})" for clock in found.late[:_MOST_NAMED]
    ]
    what = (
        f"{u.plural(len(found.late), 'late queue')}: no time passes there from where the ops are known, so nobody is "
    )
    hint = "asked again and nothing is discarded. Land later ops, or say by --known-until that there are none: "
    return [p.notice("warn", what, hint, _joined(named, len(found.late)))]


def _known(clock: Clock) -> str:
    return "nothing is known" if clock.known_until is None else f"known until {u.instant(clock.known_until)}"


def _joined(names: Sequence[str], of: int) -> str:
    return ", ".join(names) + (f" and {of - len(names):,} more" if of > len(names) else "")


def _owed(found: Figures) -> list[str]:
    owed = found.run.owed if found.run else ()
    if not owed:
        return []
    named = [f"{u.cut(debt.sink, _LONGEST)} of run {debt.run_id:,}" for debt in owed[:_MOST_NAMED]]
    return [p.notice("warn", "Owed: ", _joined(named, len(owed)), ". A reconcile without --park-sink writes it.")]


def _alarms(found: Figures) -> list[str]:
    links = {reason: anchor for (_, reason), anchor in anchors(found).items()}
    return [
        p.notice("bad", text, p.link(links[reason], "the rows"), ".")
        for reason, text in _ALARMS.items()
        if reason in links
    ]


def _rejected(found: Figures) -> list[str]:
    """A line for each reason that is neither an alarm of its own nor harmless, those of most rows first."""
    places, of = anchors(found), {(row["kind"], row["reason"]): row["n"] for row in found["reject_reasons"]}
    asked = [why for why in places if urgency(why[1]) == 0]
    return [_rejected_for(why, of[why], places[why]) for why in asked[:_MOST_NAMED]]


def _rejected_for(why: tuple[str, str], rows: int, anchor: str) -> str:
    kind, reason = why
    to_do = f" {found}." if (found := allowed(reason)) else ""
    name = u.cut(f"{kind} {reason}", _LONGEST)
    return p.notice("warn", f"{u.plural(rows, 'row')} rejected: ", p.link(anchor, name), f".{to_do}")
