"""What came out of a simulation's variants, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from halfop.simulation.outcome import Outcome
from halfop.table import text_table

_COLUMNS = {
    "checks": "checks",
    "needless_checks": "needless",
    "discards": "discards",
    "wrong_discards": "wrong",
    "commits": "commits",
    "rollbacks": "rollbacks",
    "open_at_end": "open at end",
}
_LATENCY = {"commit_p50": "p50", "commit_p90": "p90", "commit_p99": "p99"}


def figures(outcomes: Sequence[Outcome]) -> list[Mapping[str, object]]:
    """Each outcome's figures, for a summary."""
    left_out = ("rules", "points")
    return [{name: value for name, value in asdict(each).items() if name not in left_out} for each in outcomes]


def text(outcomes: Sequence[Outcome]) -> str:
    """A line a variant."""
    rows = [
        [each.name, *[getattr(each, name) for name in _COLUMNS], *[_seconds(getattr(each, name)) for name in _LATENCY]]
        for each in outcomes
    ]
    latency = [f"commit {name}" for name in _LATENCY.values()]
    return text_table(["variant", *_COLUMNS.values(), *latency], rows)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}s"
