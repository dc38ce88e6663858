"""The warehouse that a notebook shows, and how its plots look: few colours, pictures that every viewer shows."""

from dataclasses import replace

import altair as alt
import halfop

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
# A query at the end of a cell shows its rows.
SHOWN = {"spark.sql.repl.eagerEval.enabled": "true", "spark.sql.repl.eagerEval.truncate": "80"}


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


def by_value(outcomes):
    """The outcomes of one setting's values, each named by its value; without the configured one, which is the first."""
    return [replace(each, name=each.name.partition("=")[2]) for each in outcomes[1:]]


def title(finding, about=""):
    return alt.TitleParams(finding, subtitle=about)


def colour(names):
    """The colours of decisions."""
    names = [name for name in COLOURS if name in names]
    return alt.Scale(domain=names, range=[COLOURS[name] for name in names])


def warehouse(root=None):
    """Your warehouse, or the demo's while no run has decided anything in yours; its tables are views for SQL."""
    places = [halfop.open(root=root)]
    if root is None:
        places.append(halfop.open(root=f"{places[0].root}/demo"))
    for each in places:
        if not each.decisions().isEmpty():
            each.views()
            for name, value in SHOWN.items():
                each.spark.conf.set(name, value)
            return each
    raise LookupError(f"no run has decided anything in {places[0].root} yet: ./spark-submit.sh demo makes a warehouse")
