"""Charts of a simulation: its variants side by side, without the configured settings, which are its first outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import altair as alt

from halfop.charts.look import ACCENT, AMBER, BLUE, GREEN, INK, PALE, RED, WHOLE, Drawn, by_kind, chart, shown
from halfop.frame.errors import UsageError
from halfop.frame.units import EPOCH
from halfop.simulation.play import Outcome
from halfop.simulation.simulate import Simulated


class _Variant(NamedTuple):
    """A variant by its setting's value."""

    name: str
    outcome: Outcome


class _Variants(NamedTuple):
    """The variants of one setting, or of several together."""

    setting: str
    all: Sequence[_Variant]

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.all]


def _variants(played: Simulated) -> _Variants:
    if not played.outcomes:
        raise UsageError("nothing was played: " + "; ".join(played.summary.notes))
    outcomes = played.outcomes[1:] or played.outcomes
    settings = {part.partition("=")[0] for each in outcomes for part in each.name.split(", ")}
    if len(settings) > 1 or len(outcomes) == len(played.outcomes):
        return _Variants("variant", [_Variant(each.name, each) for each in outcomes])
    return _Variants(settings.pop(), [_Variant(each.name.partition("=")[2], each) for each in outcomes])


def checks(played: Simulated) -> Drawn:
    """Draws how often producers were asked, and how often in vain."""
    found = _variants(played)
    rows = [
        {"variant": name, "kind": kind, "checks": n}
        for name, each in found.all
        for kind, n in (("needless", each.needless_checks), ("needed", each.checks - each.needless_checks))
    ]
    by_name = alt.Y("variant:N", sort=found.names, title=found.setting)
    bars = chart(rows).mark_bar(height=22).encode(
        y=by_name,
        x=alt.X("checks:Q", title="questions to producers", axis=WHOLE),
        color=by_kind("kind", {"needed": BLUE, "needless": RED}),
        order=alt.Order("kind:N"),
    )  # fmt: skip
    totals = chart([{"variant": name, "checks": each.checks} for name, each in found.all])
    numbers = totals.mark_text(align="left", dx=5, color=INK).encode(y=by_name, x="checks:Q", text="checks:Q")
    about = "needless: the producer then ended the message by itself"
    return shown(bars + numbers, _fewer(found.all), about, height=alt.Step(36))


def _fewer(variants: Sequence[_Variant]) -> str:
    most, least = variants[0], min(variants, key=lambda each: (each.outcome.needless_checks, each.outcome.checks))
    fewer = most.outcome.checks - least.outcome.checks
    needless = most.outcome.needless_checks - least.outcome.needless_checks
    if most is least:
        return f"{most.name}: {most.outcome.checks:,} questions, {most.outcome.needless_checks:,} of them needless"
    return f"{least.name} instead of {most.name}: {fewer:,} questions fewer, {needless:,} of them needless"


_SHARES = {"half": GREEN, "9 of 10": AMBER, "99 of 100": RED}


def latency(played: Simulated) -> Drawn:
    """Draws how long it takes until messages are committed."""
    found = _variants(played)
    rows = [
        {"variant": name, "share": share, "seconds": seconds}
        for name, each in found.all
        for share, seconds in zip(_SHARES, (each.commit_p50, each.commit_p90, each.commit_p99), strict=True)
        if seconds is not None
    ]
    base = chart(rows).encode(
        x=alt.X("variant:N", sort=found.names, title=found.setting, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("seconds:Q", title="seconds from born to committed"),
        color=by_kind("share", _SHARES).legend(None),
    )
    at_the_end = base.transform_filter(alt.datum.variant == found.names[-1]).mark_text(align="left", dx=9)
    slowest = [f"{each.commit_p99:,.1f} s with {name}" for name, each in found.all if each.commit_p99 is not None]
    finding = f"The slowest hundredth takes {', '.join(dict.fromkeys((slowest[0], slowest[-1])))}" if slowest else ""
    about = "until half, 9 of 10 and 99 of 100 of the committed messages are there"
    made = base.mark_line(point=True) + at_the_end.encode(text="share:N")
    return shown(made, finding or "Nothing was committed", about, width=520)


def discards(played: Simulated) -> Drawn:
    """Draws how many messages were given up, and how many of them wrongly."""
    found = _variants(played)
    kinds = {"wrong": RED, "right": PALE, "still open": BLUE}
    rows = [
        {"variant": name, "kind": kind, "messages": n}
        for name, each in found.all
        for kind, n in zip(
            kinds, (each.wrong_discards, each.discards - each.wrong_discards, each.open_at_end), strict=True
        )
    ]
    made = chart(rows).mark_bar(height=22).encode(
        y=alt.Y("variant:N", sort=found.names, title=found.setting),
        x=alt.X("messages:Q", title="messages", axis=WHOLE),
        color=by_kind("kind", kinds),
        order=alt.Order("kind:N", sort="descending"),
    )  # fmt: skip
    name, first = found.all[0]
    finding = f"With {found.setting} {name}, {first.wrong_discards:,} of {first.discards:,} discards are wrong"
    return shown(made, finding, "messages given up, and those open at the end of history", height=alt.Step(36))


def open_after_runs(played: Simulated) -> Drawn:
    """Draws how many messages each run left open, with the first variant and with the last."""
    found = _variants(played)
    points = [point for each in found.all for point in each.outcome.points]
    start = min((point.now for point in points), default=EPOCH)
    rows = [
        {"variant": name, "second": (point.now - start).total_seconds(), "open": point.open}
        for name, each in found.all
        for point in each.points
    ]
    colours = {found.names[0]: BLUE, found.names[-1]: ACCENT}
    made = chart([row for row in rows if row["variant"] in colours]).mark_line(
        interpolate="step-after", strokeWidth=2
    ).encode(
        x=alt.X("second:Q", title="seconds after the first run"),
        y=alt.Y("open:Q", title="open messages", axis=WHOLE),
        color=by_kind("variant", colours),
    )  # fmt: skip
    peak = max((point.open for point in points), default=0)
    return shown(made, f"At most {peak:,} messages are open at a time", f"after each run, by {found.setting}")
