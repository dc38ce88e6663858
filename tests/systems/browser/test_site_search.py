"""The pages' search in a real browser, opened as a file, where no server and no network is: tests/run -m browser."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.places import ROOT
from support.site import build

from systems.browser.browser import chromium

_FOUND = '[...document.querySelectorAll(".md-search-result__item a")].map(a => a.getAttribute("href"))'
_SEARCH = """(() => {
    const field = document.querySelector(".md-search__input");
    field.focus();
    field.value = "put-back";
    field.dispatchEvent(new Event("keyup", {bubbles: true}));
    field.dispatchEvent(new Event("input", {bubbles: true}));
})()"""


@pytest.mark.browser
def test_the_search_works_on_a_file(tmp_path: Path) -> None:
    html = tmp_path / "html"
    assert build(ROOT, html).returncode == 0
    with chromium(tmp_path / "profile") as tab:
        tab.look(1200, "light")
        tab.open(html / "docs" / "start.html")
        tab.evaluate(_SEARCH)
        until = time.monotonic() + 20
        while not (found := tab.evaluate(_FOUND)) and time.monotonic() < until:
            pass
        assert [place for place in found if "rules.html" in place]
        elsewhere = [each["request"]["url"] for each in tab.said("Network.requestWillBeSent")]
        assert [url for url in elsewhere if not url.startswith(("file:", "data:"))] == []
        assert tab.said("Runtime.exceptionThrown") == []
