"""How charts look: few colours, the finding as the title. Each chart carries its look; no theme of altair is set."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import altair as alt

INK, _SOFT, _LINE = "#1b2230", "#5b6577", "#e1e5eb"
GREEN, AMBER, BLUE, RED, PALE, ACCENT = "#2f9e6e", "#e09f1f", "#93bce6", "#cf4a42", "#c3cad5", "#3566c4"
_COLOURS = {
    "COMMIT": GREEN,
    "ROLLBACK": "#7d8aa0",
    "CHECK": AMBER,
    "WAIT": BLUE,
    "DISCARD": RED,
    "REJECT": "#8a5bb5",
    "SUPERSEDED": PALE,
    "EARLY_OP": "#45a9b3",
}
_CONFIG: Mapping[str, Any] = {
    "view": {"stroke": None, "continuousWidth": 620, "continuousHeight": 260},
    "font": "Helvetica, Arial, sans-serif",
    "title": {"anchor": "start", "fontSize": 15, "color": INK, "subtitleColor": _SOFT, "offset": 14},
    "axis": {"labelColor": _SOFT, "titleColor": _SOFT, "gridColor": _LINE, "domain": False, "ticks": False},
    "axisX": {"titleFontWeight": "normal"},
    "axisY": {"titleFontWeight": "normal", "titleAngle": 0, "titleAlign": "left", "titleY": -8},
    "legend": {"title": None, "orient": "top", "labelColor": _SOFT, "offset": 18},
    "background": "white",
    "padding": 12,
}
Drawn = alt.Chart | alt.LayerChart
WHOLE = alt.Axis(tickMinStep=1, tickCount=8)


def chart(rows: Sequence[Mapping[str, object]]) -> alt.Chart:
    """Returns a chart of rows that has no marks yet."""
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def shown(made: Drawn, finding: str, about: str, **size: Any) -> Drawn:
    """Returns the chart with what it shows as its title."""
    whole: Drawn = made.properties(title=alt.TitleParams(finding, subtitle=about), **size).configure(**_CONFIG)
    return whole


def by_decision(decisions: Collection[str]) -> alt.Color:
    """Returns the colour of decisions, of which these are there."""
    return by_kind("decision", {name: colour for name, colour in _COLOURS.items() if name in decisions})


def by_kind(column: str, colours: Mapping[str, str]) -> alt.Color:
    """Returns the colour by a column's values, which the legend has in this order."""
    return alt.Color(f"{column}:N", scale=alt.Scale(domain=list(colours), range=list(colours.values())))
