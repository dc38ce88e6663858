"""The outcomes of a simulation's variants side by side: a text table, and a page with plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from halfop.frame.output import Table
from halfop.frame.units import count, duration, plural
from halfop.html import plots
from halfop.html.page import Markup, PageSection, nothing, page, part, parts, table
from halfop.simulation.outcome import Outcome

_COUNTS = {
    "checks": "checks",
    "needless_checks": "needless",
    "discards": "discards",
    "wrong_discards": "wrong",
    "commits": "commits",
    "rollbacks": "rollbacks",
    "open_at_end": "open at end",
}
_LATENCY = {"commit_p50": "p50", "commit_p90": "p90", "commit_p99": "p99"}
_PLOTS = {
    "checks": ("Questions to producers", "check"),
    "needless_checks": ("Needless questions: the producer ended the message by itself", "accent"),
    "discards": ("Messages discarded", "discard"),
    "wrong_discards": ("Discarded wrongly: an op ends the message after all", "reject"),
}
_LEAD = "The first row is what the configured settings do over the same history."
_LATENCY_LEAD = (
    "The time from a message's born time to the run that commits it. Whatever the settings are, an ended message waits "
    "for the next run."
)


def in_summary(outcomes: Sequence[Outcome]) -> list[Mapping[str, object]]:
    """Returns each outcome's figures, for a summary."""
    left_out = ("rules", "points")
    return [{name: value for name, value in asdict(each).items() if name not in left_out} for each in outcomes]


def compared(outcomes: Sequence[Outcome]) -> Table:
    """Returns a row for each variant."""
    return Table(_header(), [_row(each) for each in outcomes])


def html(outcomes: Sequence[Outcome], about: Sequence[tuple[str, str]]) -> str:
    """Returns a whole page with plots."""
    asked = PageSection(
        "asked",
        "Questions and discards",
        _in_a_sentence(outcomes),
        [parts(*[_bars(name, outcomes) for name in _PLOTS])],
    )
    latency = PageSection("latency", "From born to committed", _LATENCY_LEAD, [_latency(outcomes)])
    every = PageSection("figures", "All figures", _LEAD, [table(_header(), [_row(each) for each in outcomes])])
    return page("halfop: what other settings would have done", about, [], [asked, latency, every])


def _header() -> list[str]:
    return ["variant", *_COUNTS.values(), *[f"commit {name}" for name in _LATENCY.values()]]


def _row(each: Outcome) -> list[str | int]:
    seconds = [getattr(each, name) for name in _LATENCY]
    took = ["" if value is None else duration(1000 * value) for value in seconds]
    return [each.name, *[getattr(each, name) for name in _COUNTS], *took]


def _in_a_sentence(outcomes: Sequence[Outcome]) -> str:
    """The change that the variant with the fewest needless checks makes."""
    now, *others = outcomes
    best = min(others, key=lambda each: (each.wrong_discards, each.needless_checks, each.checks), default=None)
    asked = f"{plural(now.checks, 'question')} as configured, {count(now.needless_checks)} of them needless"
    if best is None:
        return f"{asked}."
    then = f"{plural(best.checks, 'question')}, {count(best.needless_checks)} of them needless"
    wrong = f"{plural(best.wrong_discards, 'wrong discard')} instead of {now.wrong_discards}"
    return f"{asked}. With {best.name}: {then}, and {wrong}."


def _bars(name: str, outcomes: Sequence[Outcome]) -> Markup:
    title, tone = _PLOTS[name]
    found = [(each.name, getattr(each, name)) for each in outcomes]
    return part(title, plots.bars(title, [plots.Bar(label, n, count(n), tone) for label, n in found]))


def _latency(outcomes: Sequence[Outcome]) -> Markup:
    values = [[_millis(getattr(each, name)) for name in _LATENCY] for each in outcomes]
    if all(value is None for row in values for value in row):
        return nothing("Nothing was committed.")
    columns = [plots.Column(each.name, row) for each, row in zip(outcomes, values, strict=True)]
    return plots.lines("From born to committed", [plots.Series(n, n) for n in _LATENCY.values()], columns)


def _millis(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
