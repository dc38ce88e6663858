"""The pages as a site: it builds, every link leads to a page and a heading, and it needs nothing from elsewhere."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.fetched import state
from support.places import ROOT
from support.site import build

pytestmark = pytest.mark.process


class Fetched(HTMLParser):
    """What a browser fetches with a page, and what it may lead to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if place := given.get("src") or (tag == "link" and given.get("href")):
            self.fetched.append(place)
        elif tag == "a" and given.get("href"):
            self.links.append(given["href"] or "")


@pytest.fixture(scope="module")
def site() -> Path:
    html = state("site") / "html"  # where people open it
    told = build(ROOT, html)
    assert told.returncode == 0, told.stderr
    return html


def test_it_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    assert {place for page in pages for place in Fetched(page).fetched if "://" in place} == set()


def test_links_lead_to_files_of_the_site(site: Path) -> None:
    """Also those to folders and files that are no pages, which are lists and files there."""
    links = [(page, link.partition("#")[0]) for page in site.rglob("docs/*.html") for link in Fetched(page).links]
    assert [(page.name, link) for page, link in links if "://" not in link and not (page.parent / link).exists()] == []
    assert (site / "schemas" / "files.html").is_file()
    assert (site / "schemas" / "decisions.yaml").is_file()


def test_every_page_is_found_by_the_search(site: Path) -> None:
    script = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    index = json.loads(script.removeprefix("var __index = "))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {f"docs/{page.stem}.html" for page in ROOT.glob("docs/*.md")} - {"docs/README.html"} <= places


def test_links_that_lead_nowhere_are_noticed(tmp_path: Path) -> None:
    for name in ("docs", "deploy", "bench", "demo", "tools", "schemas", "notebooks", "requirements", "dags"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "out"))
    (tmp_path / "tests").mkdir()
    for file in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml", ROOT / "tests" / "README.md"):
        shutil.copy(file, tmp_path / file.relative_to(ROOT))
    with (tmp_path / "docs" / "concepts.md").open("a") as page:
        page.write("\n[x](start.md#none) [x](none.md) [x](../none)\n")
    told = build(tmp_path, tmp_path / "html")
    assert told.returncode != 0
    faults = ("contains a link 'start.md#none'", "contains a link 'none.md'", "contains an unrecognized relative link")
    assert [fault for fault in faults if fault not in told.stderr] == [], told.stderr
