"""The sections of a report: the head of each, and the plots and tables made from the figures."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark.sql import Row

from halfop.columns.keys import key_of
from halfop.frame import commands as w
from halfop.frame import units as u
from halfop.html import page as p
from halfop.html import plots as g
from halfop.report import queries as q
from halfop.report.figures import Figures, RunFigures, of_decision
from halfop.report.lists import Content, about, decided, discards, group, hanging, rejects
from halfop.rules.reasons import Reason, plain
from halfop.settings.model import Settings

# By anchor: the title, and how to read the section.
_HEADS = {
    "open": (
        "Open messages",
        "Messages that the last run left open, by age: the time from their born time to that run's instant. “Asked” "
        "counts messages whose producer has been asked at least once.",
    ),
    "decisions": (
        "Decisions over runs",
        "The decisions of each run. Every run decides about every open message, so a message counts as WAIT or CHECK "
        "in each run in which it stays open. After any other decision it is not open.",
    ),
    "latency": (
        "Commit latency",
        "The time from a committed message's born time to the instant of the run that committed it: the producer's "
        "local transaction, the landing, and the wait for the next run. How often land and reconcile start sets a "
        "lower bound. It is not the broker's own latency.",
    ),
    "topics": ("Topics", f"Committed messages by real topic; the {q.TOP} topics with the most are shown."),
    "checks": (
        "Checks and their answers",
        "Messages whose producer was asked, by halfop or, before they landed, by their broker, and how they ended. An "
        "op from a broker's store does not show whether it answered a check, so it counts as “another op”.",
    ),
    "silence": (
        "Silent producer groups",
        f"Producer groups that do not answer: the {q.TOP} with the most messages that are open though the group has "
        "been asked, or that were discarded in these runs. See whether their producers run, and what their check "
        "listener does.",
    ),
    "hanging": (
        "Hanging messages, to end",
        "Open messages, and those discarded in these runs, the oldest first; age is until the last run. Filter and "
        "select them, and copy the command: it writes a plan that you can review, and end --apply carries it out. This "
        "page itself sends nothing.",
    ),
    "discards": (
        "Discarded, to resume",
        "Messages discarded in these runs that no op, resume or broker has brought back since. A resumed message is "
        "open again with check times 0, and its producer is asked again. An op that lands later still ends it.",
    ),
    "rejects": (
        "Conflicts and rejects",
        "Rows that no rule could use. None is dropped: table rejected has them all. Somebody should look at CONFLICT "
        "and KEY_REUSED; REDUNDANT is harmless.",
    ),
}
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
_NARROW = ("decisions", "latency", "topics", "checks")
_NO_RUN = "No run has decided anything yet."
_NO_COMMIT = "Nothing has been committed in these runs."


def sections(found: Figures, settings: Settings) -> list[p.PageSection]:
    """Returns all sections, in their order on the page."""
    contents = {
        "open": _open(found, settings),
        "decisions": _decisions(found),
        "latency": _latency(found),
        "topics": _topics(found),
        "checks": _checks(found),
        "silence": _silence(found),
        "hanging": hanging(found, settings),
        "discards": discards(found, settings),
        "rejects": rejects(found, settings),
    }
    return [p.PageSection(anchor, *_HEADS[anchor], content, anchor in _NARROW) for anchor, content in contents.items()]


# ---- open ----


def _open(found: Figures, settings: Settings) -> Content:
    rows = found.open_messages
    early = sum(row["n"] for row in found["open_by_age"]) - sum(row["n"] for row in rows)
    ops = f"Ops that wait for half messages which have not landed: {u.count(early)}."
    waiting = [p.paragraph(ops)] if early else []
    if not rows:
        return [p.nothing("Nothing is open." if found.runs else _NO_RUN), *waiting]
    groups = [_asked_bar(group(row), row["open"], row["silent"]) for row in found["open_groups"]]
    plots = p.parts(
        p.part("By age", g.bars("Open messages by age", _by_age(rows))),
        p.part("By producer group", g.bars("Open messages by producer group", groups)),
    )
    sums: Counter[tuple[str, str | None]] = Counter()
    for row in rows:
        sums[row["decision"], row["reason"]] += row["n"]
    reasons = [_explained(what, reason, n) for (what, reason), n in sums.most_common()]
    why = p.part("Why they are open", p.table(["decision", "messages", "rule"], reasons))
    oldest = p.part("The oldest", *_oldest(found["oldest_open"], settings))
    return [plots, *waiting, why, oldest]


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


def _explained(decision: str, reason: str | None, n: int) -> p.Cells:
    return [p.code(decided(decision, reason)), n, plain(decision, reason)]


def _oldest(rows: list[Row], settings: Settings) -> Content:
    header = ["half key", "group", "topic", "born (UTC)", "age", "asked", "decision"]
    cells = [[*about(row, "born_timestamp"), _age(row["age"]), *_state(row)] for row in rows]
    explain = (
        ["The life of one of them: ", p.code(w.on_message("explain", str(key_of(rows[0])), settings))] if rows else []
    )
    return [p.table(header, cells), p.paragraph(*explain)]


def _age(millis: int | None) -> p.Markup:
    return p.unbroken("" if millis is None else u.duration(millis))


def _state(row: Row) -> p.Cells:
    return [row["check_times"] or 0, p.code(decided(row["decision"], row["reason"]))]


# ---- runs ----


def _decisions(found: Figures) -> Content:
    counts = found.counts
    if not counts:
        return [p.nothing(_NO_RUN)]
    names = [name for name in _TONES if of_decision(counts, name)]
    columns = [_column(runs, names) for runs in found.columns]
    plot = g.stacked("Decisions over runs", [g.Series(name, _TONES[name]) for name in names], columns)
    note = [p.paragraph(f"A column is {found.per_column} runs.")] if found.per_column > 1 else []
    parts = [(name.partition("."), n) for name, n in counts.items()]
    parts.sort(key=lambda each: (list(_TONES).index(each[0][0]), -each[1]))
    totals = [_explained(what, reason, n) for (what, _, reason), n in parts]
    return [plot, *note, p.table(["decision", "rows", "rule"], totals)]


def _column(runs: list[RunFigures], names: list[str]) -> g.Column:
    sums = [float(sum(of_decision(run.counts, name) for run in runs)) for name in names]
    return g.Column(_label(runs), sums, _about(runs))


def _label(runs: list[RunFigures]) -> str:
    return f"{runs[0].now:%m-%d %H:%M:%S}" if runs else ""


def _about(runs: list[RunFigures]) -> str:
    if not runs:
        return "no run"
    upto = f" to {runs[-1].run_id:,}" if len(runs) > 1 else ""
    return f"Run {runs[0].run_id:,}{upto} at {u.instant(runs[0].now)}"


def _latency(found: Figures) -> Content:
    whole = next((row for row in found["latency"] if row["place"] is None and row["n"]), None)
    if whole is None:
        return [p.nothing(_NO_COMMIT)]
    by_place: dict[int, Any] = {
        row["place"]: row["percentiles"] for row in found["latency"] if row["place"] is not None
    }
    columns = [
        g.Column(_label(runs), by_place.get(n) or [None] * 3, _about(runs)) for n, runs in enumerate(found.columns)
    ]
    series = [g.Series("median", "p50"), g.Series("90th percentile", "p90"), g.Series("99th percentile", "p99")]
    overall = whole["percentiles"] or [None] * len(series)
    figures = [*zip([each.name for each in series], overall, strict=True), ("longest", whole["most"])]
    glance = p.tiles([p.Tile(name, u.duration(value)) for name, value in figures if value is not None])
    return [glance, g.lines("Commit latency over runs", series, columns)]


def _topics(found: Figures) -> Content:
    bars = [g.Bar(row["real_topic"] or "(none)", row["n"], u.count(row["n"]), "commit") for row in found["topics"]]
    misfits = [
        p.paragraph(f"{u.plural(row['n'], 'message')} of {row['topic']} without a value: value_error says why.")
        for row in found["misfits"]
    ]
    return [g.bars("Committed messages by topic", bars) if bars else p.nothing(_NO_COMMIT), *misfits]


# ---- checks ----


def _checks(found: Figures) -> Content:
    parts = [bar for bar in _answers(found) if bar.value]
    split = g.split("Answers to checks", parts) if parts else p.nothing("Nobody has been asked.")
    return [split, p.paragraph(f"{u.plural(found.total('CHECK'), 'check request')} in these runs.")]


def _answers(found: Figures) -> list[g.Bar]:
    n: Counter[tuple[str, bool]] = Counter()
    for row in found["asked"]:
        n[row["decision"], row["reason"] == Reason.CHECK.name] += row["n"]
    answers = [
        ("committed by the answer", n["COMMIT", True], "commit"),
        ("rolled back by the answer", n["ROLLBACK", True], "rollback"),
        ("ended by another op, or late", n["COMMIT", False] + n["ROLLBACK", False], "early"),
        ("unanswered, discarded", n["DISCARD", False], "discard"),
        ("unanswered so far", sum(row["asked"] for row in found.open_messages), "wait"),
    ]
    return [g.Bar(name, number, u.count(number), tone) for name, number, tone in answers]


def _silence(found: Figures) -> Content:
    header = ["producer group", "asked, open", "discarded", "asked at most", "oldest open"]
    rows: list[p.Cells] = [
        [group(row), row["silent"], row["discarded"], row["most_asked"] or 0, _age(row["oldest"])]
        for row in found["silent_groups"]
    ]
    return [p.table(header, rows) if rows else p.nothing("No group is silent.")]
