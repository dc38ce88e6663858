"""The pages: every link leads somewhere, and jobs, tables and pages are listed where a reader looks for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.places import ROOT

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("bench/*.md"),
        *ROOT.glob("demo/*.md"),
        *ROOT.glob("deploy/*.md"),
    ]
)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path) -> list[str]:
    """The links of a page to places in the checkout; one may be broken over two lines."""
    found = re.findall(r"\]\(([^)]+)\)", re.sub(r"\n\s*", " ", text_of(page)))
    return [link for link in found if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_index_names_every_page() -> None:
    index = set(links(ROOT / "docs/README.md"))
    assert {page.name for page in ROOT.glob("docs/*.md")} - index == {"README.md"}


@pytest.mark.parametrize(
    ("page", "files"), [("docs/jobs.md", "jobs/*.py"), ("docs/tables.md", "schemas/*.yaml")], ids=["jobs", "tables"]
)
def test_every_job_and_table_is_listed(page: str, files: str) -> None:
    names = {file.stem for file in ROOT.glob(files)} - {"real_topic"}  # which is topics/<directory>
    rows = " ".join(line for line in text_of(ROOT / page).splitlines() if line.startswith("|"))
    assert {name for name in names if f"`{name}" not in rows} == set()
