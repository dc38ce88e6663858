"""Plots and pages: well-formed whatever the data, no value breaks out, and marks stand where the numbers say."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence

import pytest
from halfop.frame import units as u
from halfop.html import page as p
from halfop.html import plots as g
from halfop.html.page import Markup, element, text
from hypothesis import given
from hypothesis import strategies as st
from support.pages import Tags

HOSTILE = [
    "</script><script>alert(1)</script>",
    '" onload="x',
    "]]>",
    "<!--",
    "&lt;",
    "\x1b[2J",
    "\u202e",
    "\ud800",
    "\x00",
]
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters()), st.text("<>&\"'/=x ", max_size=30))
COUNTS = st.one_of(st.none(), st.integers(0, 2**63 - 1))
MILLIS = st.one_of(st.none(), st.floats(-(10**15), 10**15))
TWO = [g.Series("one", "commit"), g.Series("two", "check")]
Rows = Sequence[tuple[str, int | None, float | None]]
PLOTS: dict[str, Callable[[Rows], Markup]] = {
    "bars": lambda rows: g.bars("t", [g.Bar(label, n or 0, label) for label, n, _ in rows]),
    "split": lambda rows: g.split("t", [g.Bar(label, n or 0, label) for label, n, _ in rows]),
    "stacked": lambda rows: g.stacked("t", TWO, [g.Column(label, [n, 1], label) for label, n, _ in rows]),
    "lines": lambda rows: g.lines("t", TWO, [g.Column(label, [t, None]) for label, _, t in rows]),
}


def svg(markup: Markup) -> ET.Element:
    return ET.fromstring(f"<all>{markup}</all>")  # noqa: S314 - of our own making


@pytest.mark.parametrize("kind", PLOTS)
@given(rows=st.lists(st.tuples(TEXTS, COUNTS, MILLIS), max_size=9))
def test_every_plot_is_well_formed_and_has_no_tag_but_its_own(kind: str, rows: Rows) -> None:
    drawn = PLOTS[kind](rows)
    svg(drawn)
    plain = PLOTS[kind]([("label", 1, 1.0)] * len(rows)) + PLOTS[kind]([("label", 0, None), ("label", 2, 2.0)])
    assert Tags(drawn).found <= Tags(plain).found


@given(TEXTS)
def test_text_comes_back_from_markup_as_it_is_shown(value: str) -> None:
    shown = Tags(element("b", {"title": value}, value))
    assert shown.found == {"b", "b title"}
    assert "".join(shown.said).isprintable()
    assert svg(Markup(text(value))).text or not value


@given(st.lists(TEXTS, min_size=5, max_size=5))
def test_a_page_has_no_tag_but_its_own(values: list[str]) -> None:
    assert Tags(_page(values)).found == Tags(_page(["plain"] * 5)).found
    _page(values).encode()  # no lone surrogate is left


def _page(values: Sequence[str]) -> str:
    title, name, value, note, line = values
    glance = [p.tiles([p.Tile(name, value, f"{note} ")]), p.notice("warn", value)]
    rows = p.table(["name", "number"], [[name, 1], [p.unbroken(value), 2]], [{"id": "row-1"}, {"id": "row-2"}])
    content = [
        rows,
        p.more(2, 3, "rows", line),
        p.more(3, 3, "rows", line),
        p.command(line, line),
        p.nothing(note),
    ]
    return p.page(title, [("warehouse", value)], glance, [p.PageSection("a", title, note, content)])


def test_a_page_allows_no_script_and_no_network() -> None:
    policy = (
        "default-src &#x27;none&#x27;; base-uri &#x27;none&#x27;; form-action &#x27;none&#x27;; "
        'style-src &#x27;unsafe-inline&#x27;"'
    )
    html = _page(["plain"] * 5)
    assert policy in html
    assert not {"script", "img", "link", "iframe"} & Tags(html).found
    assert "http:" not in html
    assert "https:" not in html
    assert "url(" not in html


# ---- where marks stand ----


def _rects(markup: Markup, tone: str) -> list[tuple[float, float]]:
    """(x, width) or (y, height) in the marks' own units."""
    found = [rect.attrib for rect in svg(markup).iter("rect") if rect.attrib["class"] == tone]
    return [(float(a["y"]), float(a["height"])) for a in found]


def test_bars_are_as_long_as_their_share_of_the_longest() -> None:
    drawn = svg(g.bars("t", [g.Bar("a", 200, ""), g.Bar("b", 50, ""), g.Bar("c", 0, ""), g.Bar("d", 0.0001, "")]))
    widths = [rect.attrib["width"] for rect in drawn.iter("rect") if rect.attrib["class"] == "accent"]
    assert widths == ["100.000%", "25.000%", "0%", "0.400%"]


def test_columns_stack_from_the_bottom() -> None:
    drawn = g.stacked("t", TWO, [g.Column("a", [30, 10]), g.Column("b", [0, 40])])
    assert _rects(drawn, "commit") == [(g.HEIGHT / 4, g.HEIGHT * 3 / 4)]
    assert _rects(drawn, "check") == [(0, g.HEIGHT / 4), (0, g.HEIGHT)]


def test_a_line_breaks_where_nothing_was() -> None:
    values: list[float | None] = [1, 1000, None, 10, None, None, 60_000]
    drawn = svg(g.lines("t", TWO[:1], [g.Column(str(n), [value]) for n, value in enumerate(values)]))
    (path,) = drawn.iter("path")
    moves = path.attrib["d"].split()
    assert [move[0] for move in moves[::2]] == ["M", "L", "M", "M"]
    assert (moves[1], moves[-1]) == ("100.000", "0.000"), "1 ms at the bottom, a minute at the top"


@pytest.mark.parametrize(
    ("most", "ticks"),
    [(0, [0, 1]), (1, [0, 1]), (3, [0, 1, 2, 3]), (9, [0, 2.5, 5, 7.5, 10]), (100, [0, 25, 50, 75, 100])],
)
def test_linear_ticks(most: float, ticks: list[float]) -> None:
    assert g.linear_ticks(most) == ticks


@given(st.integers(0, 2**63))
def test_linear_ticks_hold_every_count(most: int) -> None:
    ticks = g.linear_ticks(most)
    assert ticks[-1] >= most * (1 - 1e-9)
    assert 2 <= len(ticks) <= 6


@given(st.lists(st.floats(-10, 3e12), max_size=5))
def test_log_ticks_hold_every_duration(values: list[float]) -> None:
    ticks = g.log_ticks(values)
    assert len(ticks) >= 2
    assert all(ticks[0] <= max(value, 1) <= ticks[-1] for value in values)


# ---- words ----


@pytest.mark.parametrize(
    ("millis", "said"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (3_250, "3.25 s"),
        (60_000, "1 min"),
        (250_000, "4 min 10 s"),
        (3_600_000, "1 h"),
        (183_600_000, "2 d 3 h"),
        (-1500, "-1.5 s"),
        (10**12, "11,574 d 1 h"),
    ],
)
def test_durations(millis: float, said: str) -> None:
    assert u.duration(millis) == said


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0"), (12, "12"), (999, "999"), (1000, "1k"), (2.5e6, "2.5M"), (9.2e18, "9.2E")]
)
def test_compact_counts(number: float, said: str) -> None:
    assert u.compact(number) == said


@pytest.mark.parametrize(("text", "said"), [("abcdef", "abcd…"), ("abcde", "abcde"), ("测试测试", "测试…"), ("", "")])
def test_cut(text: str, said: str) -> None:
    assert u.cut(text, 5) == said
