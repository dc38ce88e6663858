"""The sections of a report, each made from the figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Row

from halfop import wording as w
from halfop.frame import units as u
from halfop.html import page as p
from halfop.html import plots as g
from halfop.html.markup import Markup
from halfop.report import queries as q
from halfop.report.figures import Figures, RunFigures, of_columns
from halfop.report.hanging import hanging
from halfop.report.lists import discards, group, instant, key, rejects
from halfop.rules.reasons import Reason, meaning
from halfop.settings.model import Settings

_TONES = {
    "COMMIT": "commit",
    "ROLLBACK": "rollback",
    "CHECK": "check",
    "WAIT": "wait",
    "DISCARD": "discard",
    "REJECT": "reject",
    "SUPERSEDED": "superseded",
    "EARLY_OP": "early",
}
_NO_RUN = "No run has decided anything yet."


def sections(found: Figures, settings: Settings) -> list[p.Section]:
    return [
        _open(found, settings),
        _decisions(found),
        _latency(found),
        _topics(found),
        _checks(found),
        _silence(found),
        hanging(found, settings),
        discards(found, settings),
        rejects(found, settings),
    ]


# ---- open ----


def _open(found: Figures, settings: Settings) -> p.Section:
    rows = [row for row in found["open_by_age"] if row["decision"] != "EARLY_OP"]
    lead = (
        "Messages that the last run left open, by age: the time from their born time to that run's instant. “Asked” "
        "counts messages whose producer has been asked at least once."
    )
    early = sum(row["n"] for row in found["open_by_age"] if row["decision"] == "EARLY_OP")
    waiting = [p.paragraph(f"{u.plural(early, 'op')} wait for half messages that have not landed.")] if early else []
    if not rows:
        why = "Nothing is open." if found.runs else _NO_RUN
        return p.Section("open", "Open messages", lead, [p.nothing(why), *waiting])
    plots = p.parts(
        p.part("By age", g.bars("Open messages by age", _by_age(rows))),
        p.part("By producer group", g.bars("Open messages by producer group", _by_group(found))),
    )
    reasons = p.part("Why they are open", _reasons(rows))
    oldest = p.part(
        "The oldest", _oldest(found["oldest_open"]), p.paragraph(*_explaining(found["oldest_open"], settings))
    )
    return p.Section("open", "Open messages", lead, [plots, *waiting, reasons, oldest])


def _by_age(rows: list[Row]) -> list[g.Bar]:
    labels = {-1: "born time unknown", len(q.AGES): "3 days and more"} | {n: name for n, (_, name) in enumerate(q.AGES)}
    sums = {place: [row for row in rows if row["age"] == place] for place in labels}
    always = range(1, len(q.AGES) + 1)
    return [
        _asked_bar(labels[place], sum(r["n"] for r in sums[place]), sum(r["asked"] for r in sums[place]))
        for place in sorted(labels)
        if sums[place] or place in always
    ]


def _asked_bar(label: str, number: int, asked: int) -> g.Bar:
    return g.Bar(label, number, u.count(number) + (f" ({u.count(asked)} asked)" if asked else ""))


def _by_group(found: Figures) -> list[g.Bar]:
    return [_asked_bar(group(row), row["open"], row["silent"]) for row in found["open_groups"]]


def _reasons(rows: list[Row]) -> Markup:
    sums: dict[tuple[str, str | None], int] = {}
    for row in rows:
        why = (row["decision"], row["reason"])
        sums[why] = sums.get(why, 0) + row["n"]
    ordered = sorted(sums.items(), key=lambda each: -each[1])
    cells: list[p.Cells] = [[_named(what, reason), n, meaning(what, reason)] for (what, reason), n in ordered]
    return p.table(["decision", "messages", "rule"], cells)


def _oldest(rows: list[Row]) -> Markup:
    header = ["half key", "group", "topic", "born (UTC)", "age", "asked", "decision"]
    return p.table(
        header,
        [
            [
                p.code(key(row)),
                group(row),
                row["real_topic"] or "(none)",
                instant(row["born_timestamp"]),
                p.unbroken("" if row["age"] is None else u.duration(row["age"])),
                row["check_times"] or 0,
                _named(row["decision"], row["reason"]),
            ]
            for row in rows
        ],
    )


def _explaining(rows: list[Row], settings: Settings) -> list[str]:
    return ["The life of one of them: ", p.code(w.on_message("explain", key(rows[0]), settings))] if rows else []


# ---- runs ----


def _decisions(found: Figures) -> p.Section:
    lead = (
        "The decisions of each run. Every run decides about every open message, so a message counts as WAIT or CHECK "
        "in each run in which it stays open. After any other decision it is not open."
    )
    closed = [run for run in found.runs if run.closed]
    if not any(run.counts for run in closed):
        return p.Section("decisions", "Decisions over runs", lead, [p.nothing(_NO_RUN)])
    names = [name for name in _TONES if found.total(name)]
    columns = [_column(runs, names) for runs in of_columns(found.runs, found.first, found.last)]
    plot = g.stacked("Decisions over runs", [g.Series(name, _TONES[name]) for name in names], columns)
    note = [p.paragraph(f"A column is {found.per_column} runs.")] if found.per_column > 1 else []
    return p.Section("decisions", "Decisions over runs", lead, [plot, *note, _totals(closed)])


def _column(runs: list[RunFigures], names: list[str]) -> g.Column:
    sums = [float(sum(_of(run.counts, name) for run in runs)) for name in names]
    return g.Column(_label(runs), sums, _about(runs))


def _of(counts: Mapping[str, int], decision: str) -> int:
    return sum(n for name, n in counts.items() if name.startswith(f"{decision}."))


def _label(runs: list[RunFigures]) -> str:
    return f"{runs[0].now:%m-%d %H:%M:%S}" if runs else ""


def _about(runs: list[RunFigures]) -> str:
    if not runs:
        return "no run"
    upto = f" to {runs[-1].run_id:,}" if len(runs) > 1 else ""
    return f"Run {runs[0].run_id:,}{upto} at {u.instant(runs[0].now)}"


def _totals(closed: list[RunFigures]) -> Markup:
    sums: dict[str, int] = {}
    for run in closed:
        for name, n in run.counts.items():
            sums[name] = sums.get(name, 0) + n
    parts = [(name.partition("."), n) for name, n in sums.items()]
    parts.sort(key=lambda each: (list(_TONES).index(each[0][0]), -each[1]))
    cells: list[p.Cells] = [[_named(what, reason), n, meaning(what, reason)] for (what, _, reason), n in parts]
    return p.table(["decision", "rows", "rule"], cells)


def _named(decision: str, reason: str | None) -> Markup:
    return p.code(decision if reason in (None, "NONE") else f"{decision} {reason}")


def _latency(found: Figures) -> p.Section:
    lead = (
        "The time from a committed message's born time to the instant of the run that committed it: the producer's "
        "local transaction, the landing, and the wait for the next run. How often land and reconcile start sets a "
        "lower bound. It is not the broker's own latency."
    )
    whole = next((row for row in found["latency"] if row["place"] is None and row["n"]), None)
    if whole is None:
        return p.Section("latency", "Commit latency", lead, [p.nothing("Nothing has been committed in these runs.")])
    by_place: dict[int, Any] = {
        row["place"]: row["percentiles"] for row in found["latency"] if row["place"] is not None
    }
    columns = [
        g.Column(_label(runs), by_place.get(n) or [None] * 3, _about(runs))
        for n, runs in enumerate(of_columns(found.runs, found.first, found.last))
    ]
    series = [g.Series("median", "p50"), g.Series("90th percentile", "p90"), g.Series("99th percentile", "p99")]
    overall = whole["percentiles"] or [None] * len(series)
    figures = [*zip([each.name for each in series], overall, strict=True), ("longest", whole["most"])]
    glance = p.tiles([p.Tile(name, u.duration(value)) for name, value in figures if value is not None])
    return p.Section("latency", "Commit latency", lead, [glance, g.lines("Commit latency over runs", series, columns)])


def _topics(found: Figures) -> p.Section:
    bars = [g.Bar(row["real_topic"] or "(none)", row["n"], u.count(row["n"]), "commit") for row in found["topics"]]
    plot = (
        g.bars("Committed messages by topic", bars) if bars else p.nothing("Nothing has been committed in these runs.")
    )
    lead = f"Committed messages by real topic; the {q.TOP} topics with the most are shown."
    return p.Section("topics", "Topics", lead, [plot])


# ---- checks ----


def _checks(found: Figures) -> p.Section:
    lead = (
        "Messages whose producer was asked, by halfop or, before they landed, by their broker, and how they ended. An "
        "op from a broker's store does not show whether it answered a check, so it counts as “another op”."
    )
    parts = [bar for bar in _answers(found) if bar.value]
    asked = found.total("CHECK")
    number = p.paragraph(f"{u.plural(asked, 'check request')} in these runs.")
    if not parts:
        return p.Section("checks", "Checks and their answers", lead, [p.nothing("Nobody has been asked."), number])
    return p.Section("checks", "Checks and their answers", lead, [g.split("Answers to checks", parts), number])


def _answers(found: Figures) -> list[g.Bar]:
    n: dict[tuple[str, bool], int] = {}
    for row in found["asked"]:
        answer = (row["decision"], row["reason"] == Reason.CHECK.name)
        n[answer] = n.get(answer, 0) + row["n"]
    still = sum(row["asked"] for row in found["open_by_age"] if row["decision"] != "EARLY_OP")
    answers = [
        ("committed by the answer", n.get(("COMMIT", True), 0), "commit"),
        ("rolled back by the answer", n.get(("ROLLBACK", True), 0), "rollback"),
        ("ended by another op, or late", n.get(("COMMIT", False), 0) + n.get(("ROLLBACK", False), 0), "early"),
        ("unanswered, discarded", n.get(("DISCARD", False), 0), "discard"),
        ("unanswered so far", still, "wait"),
    ]
    return [g.Bar(name, number, u.count(number), tone) for name, number, tone in answers]


def _silence(found: Figures) -> p.Section:
    lead = (
        f"Producer groups that do not answer: the {q.TOP} with the most messages that are open though the group has "
        "been asked, or that were discarded in these runs. See whether their producers run, and what their check "
        "listener does."
    )
    rows = [
        [
            group(row),
            row["silent"],
            row["discarded"],
            row["most_asked"] or 0,
            p.unbroken("" if row["oldest"] is None else u.duration(row["oldest"])),
        ]
        for row in found["silent_groups"]
    ]
    header = ["producer group", "asked, open", "discarded", "asked at most", "oldest open"]
    content = p.table(header, rows) if rows else p.nothing("No group is silent.")
    return p.Section("silence", "Silent producer groups", lead, [content])
