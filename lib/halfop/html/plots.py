"""Plots as inline SVG: data in, markup out.

Across, everything is in percent, so a plot takes whatever width it gets and its text keeps its size. Colours are CSS
variables, `--` and the tone. Axis labels hang out to the left: see `.plot` in page.css.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from halfop.frame.log import escaped
from halfop.frame.units import compact, count, cut, duration
from halfop.html.page import Markup, element, join

HEIGHT = 180
_X_LABELS = 26
_ROW = 40
_TRACK = 10
_LABEL_WIDTH = 34
_X_WIDTH = 14
_WIDEST_COLUMN = 7.0  # percent
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_DAYS = (1, 7, 30, 365, 3650, 36_500)
_LOG_TICKS = (1, 10, 100, _SECOND, 10 * _SECOND, _MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, *(n * _DAY for n in _DAYS))


class Bar(NamedTuple):
    """One line of `bars`; `text` stands at its right."""

    label: str
    value: float
    text: str
    tone: str = "accent"


class Series(NamedTuple):
    name: str
    tone: str


class Column(NamedTuple):
    """One place on the x axis, with a value for each series, None if there is none.

    `label` is short, for the axis; `about` stands in its tooltip instead.
    """

    label: str
    values: Sequence[float | None]
    about: str = ""


def legend(series: Sequence[Series]) -> Markup:
    """Returns the names of the series with their colours; HTML, so that it wraps."""
    keys = [element("li", {}, element("i", {"class": f"key {each.tone}"}), each.name) for each in series]
    return element("ul", {"class": "legend"}, *keys)


def bars(title: str, rows: Sequence[Bar]) -> Markup:
    """Returns a plot with a line a row: its label, its value as text, and a bar below."""
    most = max((row.value for row in rows), default=0)
    drawn = [_bar(row, n * _ROW, _percent(row.value, most)) for n, row in enumerate(rows)]
    return _svg(title, "bars", max(len(rows) * _ROW, 1), *drawn)


def _bar(row: Bar, top: int, width: str) -> Markup:
    y = top + _ROW - _TRACK - 8
    track = {"x": 0, "y": y, "height": _TRACK, "rx": 3}
    return element(
        "g",
        {},
        element("title", {}, f"{row.label}: {row.text}"),
        element("text", {"class": "label", "x": 0, "y": y - 7}, cut(escaped(row.label), _LABEL_WIDTH)),
        element("text", {"class": "value", "x": "100%", "y": y - 7, "text-anchor": "end"}, row.text),
        element("rect", {"class": "track", **track, "width": "100%"}),
        element("rect", {"class": row.tone, **track, "width": width}),
    )


def split(title: str, parts: Sequence[Bar]) -> Markup:
    """Returns one bar cut into its parts; its legend has their numbers."""
    whole = sum(part.value for part in parts)
    at, drawn = 0.0, []
    for part in parts:
        share = 100 * part.value / whole if whole else 0.0
        place = {"x": f"{at:.3f}%", "y": 0, "width": f"{share:.3f}%", "height": 22}
        drawn.append(element("rect", {"class": part.tone, **place}, element("title", {}, f"{part.label}: {part.text}")))
        at += share
    track = element("rect", {"class": "track", "x": 0, "y": 0, "width": "100%", "height": 22})
    names = [Series(f"{part.label}: {part.text}", part.tone) for part in parts]
    return join([_svg(title, "split", 22, track, *drawn), legend(names)])


def stacked(title: str, series: Sequence[Series], columns: Sequence[Column]) -> Markup:
    """Returns columns of counts, stacked in the order of the series, from the bottom."""
    totals = [sum(value or 0 for value in column.values) for column in columns]
    ticks = linear_ticks(max(totals, default=0))
    drawn = [_stack(series, column, n, len(columns), ticks[-1]) for n, column in enumerate(columns)]
    grid = [_grid_line(compact(tick), 1 - tick / ticks[-1]) for tick in ticks]
    plot = _svg(title, "axes", HEIGHT + _X_LABELS, *grid, *drawn, *_x_labels(columns))
    return join([plot, legend(series)])


def _stack(series: Sequence[Series], column: Column, n: int, of: int, most: float) -> Markup:
    step = 100 / of
    width = min(0.8 * step, _WIDEST_COLUMN)
    x, bottom, drawn = (n + 0.5) * step - width / 2, float(HEIGHT), []
    for each, value in zip(series, column.values, strict=True):
        if value:
            height = max(1.0, HEIGHT * value / most)
            bottom -= height
            place = {"x": f"{x:.3f}%", "y": f"{bottom:.1f}", "width": f"{width:.3f}%", "height": f"{height:.1f}"}
            drawn.append(element("rect", {"class": each.tone, **place}))
    values = [(each.name, count(int(v))) for each, v in zip(series, column.values, strict=True) if v]
    return element("g", {}, _tip(column.about or column.label, values), *drawn, _target(n, of))


def lines(title: str, series: Sequence[Series], columns: Sequence[Column]) -> Markup:
    """Returns lines of durations in milliseconds on a logarithmic axis; a column without a value breaks its line."""
    given = [value for column in columns for value in column.values if value is not None]
    ticks = log_ticks(given)
    places = [[_on_log(value, ticks) for value in column.values] for column in columns]
    grid = [_grid_line(duration(tick), _on_log(tick, ticks) or 0.0) for tick in ticks]
    drawn = [
        part for n, each in enumerate(series) for part in _line(each.tone, [place[n] for place in places], len(columns))
    ]
    tips = [_point_tip(series, column, n, len(columns)) for n, column in enumerate(columns)]
    plot = _svg(title, "axes", HEIGHT + _X_LABELS, *grid, *drawn, *tips, *_x_labels(columns))
    return join([plot, legend(series)])


def _line(tone: str, places: Sequence[float | None], of: int) -> list[Markup]:
    """A line's unbroken pieces, and a dot for a point that stands alone (or for each of a few)."""
    at = {n: ((n + 0.5) * 100 / of, 100 * y) for n, y in enumerate(places) if y is not None}
    moves = " ".join(f"{'L' if n - 1 in at else 'M'}{x:.3f} {y:.3f}" for n, (x, y) in at.items())
    path = element("path", {"class": f"line {tone}", "d": moves, "vector-effect": "non-scaling-stroke"})
    frame = {"x": 0, "y": 0, "width": "100%", "height": HEIGHT, "viewBox": "0 0 100 100", "preserveAspectRatio": "none"}
    alone = [n for n in at if of <= 30 or not {n - 1, n + 1} & at.keys()]
    dots = [{"cx": f"{at[n][0]:.3f}%", "cy": f"{at[n][1] * HEIGHT / 100:.1f}", "r": 3} for n in alone]
    return [element("svg", frame, path), *[element("circle", {"class": tone, **dot}) for dot in dots]] if at else []


def _point_tip(series: Sequence[Series], column: Column, n: int, of: int) -> Markup:
    values = [(each.name, duration(v)) for each, v in zip(series, column.values, strict=True) if v is not None]
    return element("g", {}, _tip(column.about or column.label, values), _target(n, of))


# ---- axes ----


def linear_ticks(most: float) -> list[float]:
    """Returns three to six round numbers, from 0 to `most` or a little above it."""
    rough = max(most, 1) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = max(next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= rough), 1)
    return [step * n for n in range(math.ceil(max(most, 1) / step) + 1)]


def log_ticks(values: Sequence[float]) -> list[float]:
    """Returns round durations from below the least value to above the greatest."""
    low, high = max(min(values, default=1), 1), max(*values, 1) if values else 1
    below = max(i for i, tick in enumerate(_LOG_TICKS[:-1]) if tick <= low)
    above = next((i for i, tick in enumerate(_LOG_TICKS) if tick >= high), len(_LOG_TICKS) - 1)
    return list(_LOG_TICKS[below : max(above, below + 1) + 1])


def _on_log(value: float | None, ticks: Sequence[float]) -> float | None:
    """The distance from the top, 0 to 1."""
    if value is None:
        return None
    share = math.log(max(value, 1) / ticks[0]) / math.log(ticks[-1] / ticks[0])
    return 1 - min(1.0, max(0.0, share))


def _grid_line(label: str, share: float) -> Markup:
    y = f"{share * HEIGHT:.1f}"
    text = {"class": "tick", "x": -8, "y": y, "dy": "0.32em", "text-anchor": "end"}
    line = {"class": "grid", "x1": "0%", "x2": "100%", "y1": y, "y2": y}
    return join([element("line", line), element("text", text, label)])


def _x_labels(columns: Sequence[Column]) -> list[Markup]:
    """The labels of all columns if they are few, else of the first, the middle and the last."""
    last = len(columns) - 1
    if last < 3:
        chosen = {n: ("middle", (n + 0.5) * 100 / len(columns)) for n in range(last + 1)}
    else:
        chosen = {0: ("start", 0.0), last // 2: ("middle", 100 * (last // 2 + 0.5) / (last + 1)), last: ("end", 100.0)}
    place = {"class": "tick", "y": HEIGHT + 18}
    return [
        element("text", {**place, "x": f"{x:.3f}%", "text-anchor": anchor}, cut(escaped(columns[n].label), _X_WIDTH))
        for n, (anchor, x) in chosen.items()
    ]


def _tip(label: str, values: Sequence[tuple[str, str]]) -> Markup:
    return element("title", {}, f"{label}: " + (", ".join(f"{name} {value}" for name, value in values) or "nothing"))


def _target(n: int, of: int) -> Markup:
    """The area that a pointer hits: the whole height of the column."""
    place = {"x": f"{n * 100 / of:.3f}%", "y": 0, "width": f"{100 / of:.3f}%", "height": HEIGHT}
    return element("rect", {"class": "target", **place})


def _percent(value: float, most: float) -> str:
    """The width of a bar: none for nothing, and enough to be seen for little."""
    return f"{max(0.4, 100 * value / most):.3f}%" if value > 0 and most > 0 else "0%"


def _svg(title: str, kind: str, height: int, *children: str) -> Markup:
    given = {"class": "drawing", "width": "100%", "height": height, "role": "img", "aria-label": title}
    return element("div", {"class": f"plot {kind}"}, element("svg", given, *children))
