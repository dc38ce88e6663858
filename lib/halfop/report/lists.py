"""The sections of a report that list rows: discards and how to resume them, rejects and why."""

from __future__ import annotations

from functools import partial
from itertools import groupby

from pyspark.sql import Row

from halfop import wording as w
from halfop.columns.keys import Key
from halfop.frame import units as u
from halfop.html import page as p
from halfop.html.markup import Markup
from halfop.report.figures import Figures
from halfop.rules import reasons as r
from halfop.settings.model import Settings
from halfop.warehouse.schema import literal

_NONE = "(none)"


def key(row: Row) -> str:
    return str(Key(row["broker_name"], row["queue_id"], row["queue_offset"]))


def group(row: Row) -> str:
    return row["producer_group"] or _NONE


def instant(millis: int | None) -> Markup:
    return p.unbroken(u.moment(millis))


# ---- discards ----


def discards(found: Figures, settings: Settings) -> p.Section:
    lead = (
        "Messages discarded in these runs that no op, resume or broker has brought back since. A resumed message is "
        "open again with check times 0, and its producer is asked again. An op that lands later still ends it."
    )
    rows, of = found["discards"], sum(row["n"] for row in found["discard_reasons"])
    where = f"WHERE run_id >= {found.first}"
    query = w.select(settings.warehouse_root, "trans_check_max_time", where, "ORDER BY run_id DESC, born_timestamp")
    if not rows:
        return p.Section("discards", "Discarded, to resume", lead, [p.nothing("These runs left nothing to resume.")])
    reasons: list[p.Cells] = [
        [p.code(row["reason"]), row["n"], r.meaning("DISCARD", row["reason"])]
        for row in sorted(found["discard_reasons"], key=lambda row: -row["n"])
    ]
    counts = p.table(["reason", "messages", "rule"], reasons)
    header = ["half key", "group", "topic", "discarded (UTC)", "asked", "reason", "to resume it"]
    messages = p.table(header, [_discard(row, settings) for row in rows])
    more = p.more(len(rows), of, "discarded messages (with those brought back since)", query)
    return p.Section("discards", "Discarded, to resume", lead, [counts, messages, more])


def _discard(row: Row, settings: Settings) -> p.Cells:
    again = "resumed: the next run makes it open" if row["resumed"] else None
    return [
        p.code(key(row)),
        group(row),
        row["real_topic"] or _NONE,
        instant(row["decided_at"]),
        row["check_times"] or 0,
        p.code(row["reason"]),
        again or p.command(w.on_message("resume", key(row), settings, "--key")),
    ]


# ---- rejects ----


def anchors(found: Figures) -> dict[tuple[str, str], str]:
    """Returns the place on the page of each kind and reason; what matters most comes first."""
    reasons = sorted(found["reject_reasons"], key=lambda row: (r.urgency(row["reason"]), -row["n"]))
    return {(row["kind"], row["reason"]): f"rejects-{n}" for n, row in enumerate(reasons)}


def rejects(found: Figures, settings: Settings) -> p.Section:
    lead = (
        "Rows that no rule could use. None is dropped: table rejected has them all. Somebody should look at CONFLICT "
        "and KEY_REUSED; REDUNDANT is harmless."
    )
    places, of = anchors(found), {(row["kind"], row["reason"]): row["n"] for row in found["reject_reasons"]}
    if not places:
        return p.Section("rejects", "Conflicts and rejects", lead, [p.nothing("Nothing was rejected in these runs.")])
    cells: list[p.Cells] = [
        [kind, p.link(place, reason), of[kind, reason], _meaning(reason)] for (kind, reason), place in places.items()
    ]
    rows = {why: list(each) for why, each in groupby(found["rejects"], lambda row: (row["kind"], row["reason"]))}
    query = partial(_query, settings.warehouse_root, found.first)
    each = [_rows_of(why, rows[why], of[why], place, query(*why)) for why, place in places.items()]
    return p.Section(
        "rejects", "Conflicts and rejects", lead, [p.table(["what", "why", "rows", "meaning"], cells), *each]
    )


def _meaning(reason: str) -> str:
    return r.words(reason) or "a row of an input file with a fault of its own"


def _query(root: str, first: int, kind: str, reason: str) -> list[str]:
    """The SQL that shows all rows of a reason; rejects of a landing have no run."""
    since = f"AND (run_id >= {first} OR run_id IS NULL)"
    where = f"WHERE kind = {literal(kind)} AND reason = {literal(reason)}"
    return w.select(root, "rejected", where, since, "ORDER BY rejected_at DESC")


def _rows_of(why: tuple[str, str], rows: list[Row], of: int, anchor: str, query: list[str]) -> Markup:
    kind, reason = why
    header = ["place", "run", "rejected (UTC)", "what was found", "half key"]
    table = p.table(header, [_reject(row) for row in rows], [{"id": f"{anchor}-{row['nth']}"} for row in rows])
    return p.anchored(anchor, f"{kind} {reason}", table, p.more(len(rows), of, "rows", query))


def _reject(row: Row) -> p.Cells:
    half = "" if row["half_offset"] is None else str(Key(row["broker_name"], row["queue_id"], row["half_offset"]))
    place = [str(part) for part in (row["broker_name"], row["queue_id"], row["queue_offset"]) if part is not None]
    run = "at landing" if row["run_id"] is None else f"{row['run_id']:,}"
    return ["/".join(place), run, instant(row["rejected_at"]), row["detail"] or "", p.code(half) if half else ""]
