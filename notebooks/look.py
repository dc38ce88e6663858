"""How the notebooks' plots look: few colours, no frames, pictures that every viewer shows."""

import altair as alt

INK, SOFT, LINE = "#1b2230", "#5b6577", "#e1e5eb"
COLOURS = {
    "COMMIT": "#2f9e6e",
    "ROLLBACK": "#7d8aa0",
    "CHECK": "#e09f1f",
    "WAIT": "#93bce6",
    "DISCARD": "#cf4a42",
    "REJECT": "#8a5bb5",
    "SUPERSEDED": "#c3cad5",
    "EARLY_OP": "#45a9b3",
}
ACCENT = "#3566c4"


@alt.theme.register("halfop", enable=True)
def _theme():
    return alt.theme.ThemeConfig(
        {
            "config": {
                "view": {"stroke": None, "continuousWidth": 620, "continuousHeight": 260},
                "font": "Helvetica, Arial, sans-serif",
                "title": {"anchor": "start", "fontSize": 15, "color": INK, "subtitleColor": SOFT, "offset": 14},
                "axis": {"labelColor": SOFT, "titleColor": SOFT, "gridColor": LINE, "domain": False, "ticks": False},
                "axisX": {"titleFontWeight": "normal"},
                "axisY": {"titleFontWeight": "normal", "titleAngle": 0, "titleAlign": "left", "titleY": -8},
                "legend": {"title": None, "orient": "top", "labelColor": SOFT, "offset": 18},
                "background": "white",
                "padding": 12,
            }
        }
    )


alt.renderers.enable("svg")


def rows(frame):
    """A query's rows for a plot."""
    return alt.InlineData(values=[row.asDict() for row in frame.collect()])


def title(finding, about=""):
    return alt.TitleParams(finding, subtitle=about)


def colour(names):
    """The colours of decisions."""
    names = [name for name in COLOURS if name in names]
    return alt.Scale(domain=names, range=[COLOURS[name] for name in names])
