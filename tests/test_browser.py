"""The report in a real browser, narrow and wide, light and dark, on screen and on paper: tests/run -m browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import lived
import pytest
from browser import Tab, chromium
from build.pages import everything
from halfop.report.figures import Figures, read_figures
from halfop.report.report import render
from halfop.settings.model import Settings

pytestmark = pytest.mark.browser

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
TABLES = {"half_messages": 0, "op_messages": 0}
LONG = "https://example.invalid/<img src=http://example.invalid/x>" + "W" * 240
WIDER = """[...document.querySelectorAll("body *")]
    .filter(e => !e.closest("svg") && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(e => e.tagName + "." + e.className).slice(0, 5)"""
PAPER = 718  # pixels of A4 between Chromium's own margins
PAINTED = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module", params=["lived", "empty", "huge"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    html = render(_figures(request), Settings(warehouse="/w/" + "long" * 50), AT)
    path.write_text(html, encoding="utf-8")
    return path


def _figures(request: pytest.FixtureRequest) -> Figures:
    if request.param == "lived":
        return read_figures(lived.lived(request.getfixturevalue("spark")), 200)
    return Figures(tables=TABLES) if request.param == "empty" else everything(LONG, 2**62, 950)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_it_fits_and_asks_for_nothing(tab: Tab, page: Path, width: int, theme: str) -> None:
    tab.look(width, theme)
    tab.open(page)
    assert tab.evaluate("innerWidth") == width
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(WIDER) == []
    assert tab.evaluate(PAINTED) == {"light": "rgb(244, 245, 247)", "dark": "rgb(15, 19, 26)"}[theme]
    requested = {request["request"]["url"] for request in tab.said("Network.requestWillBeSent")}
    assert requested == {page.absolute().as_uri()}
    assert tab.said("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown") == []


def test_it_prints_on_pages_in_ink(tab: Tab, page: Path) -> None:
    """In print it is light, whatever the screen was."""
    tab.look(1200, "dark")
    tab.open(page)
    paper = page.with_suffix(".pdf")
    tab.pdf(paper)
    pages = len(re.findall(rb"/Type\s*/Page\b", paper.read_bytes()))
    assert paper.read_bytes().startswith(b"%PDF")
    assert 1 <= pages <= 30
    tab.look(PAPER, "dark", media="print")
    assert tab.evaluate("document.documentElement.scrollWidth") <= PAPER
    assert tab.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(27, 34, 48)"


def test_what_goes_wrong_is_noticed(tab: Tab, tmp_path: Path) -> None:
    """A page that is too wide, fetches and fails is seen to do so."""
    bad = tmp_path / "bad.html"
    bad.write_text('<p style="width: 2000px">wide</p><img src="missing.png"><script>failing()</script>')
    tab.look(390, "light")
    tab.open(bad)
    assert tab.evaluate("document.documentElement.scrollWidth") > 390
    assert tab.evaluate(WIDER) == ["P."]
    assert len(tab.said("Network.requestWillBeSent")) == 2
    assert tab.said("Log.entryAdded")
    assert tab.said("Runtime.exceptionThrown")
