"""The sections of a report that list rows: what was given up and how to resume it, what was refused and why."""

from __future__ import annotations

from functools import partial
from itertools import groupby

from pyspark.sql import Row

from halfop.html import page as p
from halfop.html.markup import Markup
from halfop.report.figures import Figures
from halfop.settings.model import Settings
from halfop.warehouse.sql import literal
from halfop.wording import commands as c
from halfop.wording import meanings as m
from halfop.wording import units as u

_NONE = "(none)"


def key(row: Row) -> str:
    return c.half_key(row["broker_name"], row["queue_id"], row["queue_offset"])


def group(row: Row) -> str:
    return row["producer_group"] or _NONE


def instant(millis: int | None) -> Markup:
    return p.whole(u.moment(millis))


# ---- given up ----


def discards(found: Figures, settings: Settings) -> p.Section:
    lead = (
        "Messages given up in these runs that no op, resume or broker has brought back since. Resumed, a message is "
        "open again with check times 0, and its producer is asked anew. An op that comes by itself still ends it."
    )
    rows, of = found["discards"], sum(row["n"] for row in found["discard_reasons"])
    where = f"WHERE run_id >= {found.first}"
    query = c.select(settings.warehouse_root, "trans_check_max_time", where, "ORDER BY run_id DESC, born_timestamp")
    if not rows:
        return p.Section("discards", "Given up, to resume", lead, [p.nothing("Nothing is given up in these runs.")])
    reasons: list[p.Cells] = [
        [p.code(row["reason"]), row["n"], m.meaning("DISCARD", row["reason"])]
        for row in sorted(found["discard_reasons"], key=lambda row: -row["n"])
    ]
    counts = p.table(["reason", "messages", "rule"], reasons)
    header = ["half key", "group", "topic", "given up (UTC)", "asked", "reason", "to resume it"]
    listed = p.table(header, [_discard(row, settings) for row in rows])
    more = p.more(len(rows), of, "messages given up (with those that are back since)", query)
    return p.Section("discards", "Given up, to resume", lead, [counts, listed, more])


def _discard(row: Row, settings: Settings) -> p.Cells:
    again = "resumed, waits for the next run" if row["resumed"] else None
    return [
        p.code(key(row)),
        group(row),
        row["real_topic"] or _NONE,
        instant(row["decided_at"]),
        row["check_times"] or 0,
        p.code(row["reason"]),
        again or p.command(c.on_message("resume", key(row), settings, "--key")),
    ]


# ---- refused ----


def anchors(found: Figures) -> dict[tuple[str, str], str]:
    """Where the rows of a kind and reason are listed; what matters most comes first."""
    reasons = sorted(found["reject_reasons"], key=lambda row: (m.loudness(row["reason"]), -row["n"]))
    return {(row["kind"], row["reason"]): f"rejects-{n}" for n, row in enumerate(reasons)}


def rejects(found: Figures, settings: Settings) -> p.Section:
    lead = (
        "What no rule could use: never dropped, but set aside in table rejected. CONFLICT and KEY_REUSED need "
        "somebody's eyes, REDUNDANT is harmless."
    )
    places, of = anchors(found), {(row["kind"], row["reason"]): row["n"] for row in found["reject_reasons"]}
    if not places:
        return p.Section("rejects", "Conflicts and rejects", lead, [p.nothing("Nothing was refused in these runs.")])
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
    return m.REJECTS.get(reason, "a row of an input file that is not as it should be")


def _query(root: str, first: int, kind: str, reason: str) -> list[str]:
    """What landings refused has no run."""
    since = f"AND (run_id >= {first} OR run_id IS NULL)"
    where = f"WHERE kind = {literal(kind)} AND reason = {literal(reason)}"
    return c.select(root, "rejected", where, since, "ORDER BY rejected_at DESC")


def _rows_of(why: tuple[str, str], rows: list[Row], of: int, anchor: str, query: list[str]) -> Markup:
    kind, reason = why
    header = ["place", "run", "rejected (UTC)", "what was found", "half key"]
    table = p.table(header, [_reject(row) for row in rows], [f"{anchor}-{row['nth']}" for row in rows])
    return p.anchored(anchor, f"{kind} {reason}", table, p.more(len(rows), of, "rows", query))


def _reject(row: Row) -> p.Cells:
    half = "" if row["half_offset"] is None else c.half_key(row["broker_name"], row["queue_id"], row["half_offset"])
    place = [str(part) for part in (row["broker_name"], row["queue_id"], row["queue_offset"]) if part is not None]
    run = "at landing" if row["run_id"] is None else f"{row['run_id']:,}"
    return ["/".join(place), run, instant(row["rejected_at"]), row["detail"] or "", p.code(half) if half else ""]
