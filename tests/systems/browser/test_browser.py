"""The report in a real browser, narrow and wide, light and dark, on screen and on paper: tests/run -m browser."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import halfop
import pytest
from halfop.columns.keys import Key
from halfop.frame.cli import main
from halfop.frame.log import escaped
from halfop.report.figures import Figures, read_figures
from halfop.report.report import render
from halfop.settings.home import launcher
from halfop.settings.model import Settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from halfop.wording import value
from pyspark.sql import Row, SparkSession
from support import lived
from support.entry_points import job_of
from support.hostile_rows import FOLDER, TEXTS, hostile_files
from support.pages import everything, hanging_rows, many_hang

from systems.browser.browser import Tab, chromium

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("logging_as_before")]

MANY = 10_000
SET = """([which, text]) => {
    const select = document.querySelector(which);
    select.value = [...select.options].find(o => o.textContent.startsWith(text)).value;
    select.dispatchEvent(new Event("change", {bubbles: true}));
}"""
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
@pytest.mark.parametrize("width", [390, 1200, 1400])
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


@pytest.fixture(scope="module")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with 10,000 hanging messages, under names that break out of whatever they can."""
    page = tmp_path_factory.mktemp("hanging") / "report.html"
    page.write_text(render(many_hang(MANY), Settings(warehouse="/w/it's"), AT), encoding="utf-8")
    return page


def choose(tab: Tab, **values: str) -> None:
    """Opens the filters, and sets them by the beginnings of their options' texts."""
    tab.evaluate('document.querySelector(".chooser").open = true')
    for name, text in values.items():
        given = f"select[name={name}]", text
        tab.evaluate(f"({SET})({json.dumps(given)})")


def keys_of(rows: list[Row]) -> list[Key]:
    return [Key(row["broker_name"], row["queue_id"], row["queue_offset"]) for row in rows]


def counted(tab: Tab) -> str:
    text: str = tab.evaluate('document.querySelector(".chosen").textContent')
    return text


def shown(tab: Tab) -> int:
    found: int = tab.evaluate('[...document.querySelectorAll("#choices tbody tr")].filter(r => r.offsetHeight).length')
    return found


def command(tab: Tab, made: str) -> list[str]:
    """The words that bash makes of a command in the page."""
    text = tab.evaluate(f'document.querySelector(".{made} .command").textContent')
    bash = ["bash", "-c", f"printf '%s\\0' {text.removeprefix(launcher())}"]
    return subprocess.run(bash, capture_output=True, check=True).stdout.decode().split("\0")[:-1]


def test_hanging_messages_are_filtered_selected_and_named(tab: Tab, hanging: Path) -> None:
    tab.look(1200, "light")
    tab.open(hanging)
    choose(tab, group="</script>", ending="--roll")
    assert "2,500 fit, 200 shown, 0 selected" in counted(tab)
    choose(tab, age="6 h", topic="T")
    old = [row for row in hanging_rows(MANY - 359) if row["queue_offset"] % 4 == 1 and row["real_topic"]]
    assert f"{len(old):,} fit" in counted(tab)
    tab.evaluate('document.querySelector("button[name=all]").click()')
    end = ["end", "--warehouse", "/w/it's", "--rollback"]
    assert command(tab, "by-where") == [*end, "--where", " AND ".join(conditions(tab))]
    named = command(tab, "by-key")
    assert named[:6] == [*end, "--limit", str(len(old))]
    keys = [word.removeprefix("--key=") for word in named[6:] if word != "--key"]
    assert keys == [str(key) for key in keys_of(old)]
    tab.evaluate('document.querySelector(".by-key button").click()')
    copied = 'getSelection().toString() === document.querySelector(".by-key .command").textContent'
    assert tab.evaluate(copied), "the whole command is selected, and copied if the browser lets a page do so"
    choose(tab, group="all")
    assert f"{len(old):,} selected" in counted(tab)
    assert tab.said("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown") == []


def test_filters_are_collapsed_until_they_are_wanted(tab: Tab, hanging: Path) -> None:
    tab.look(1400, "light")
    tab.open(hanging)
    assert tab.evaluate('document.querySelector(".filters").checkVisibility()') is False
    tab.evaluate('document.querySelector("#choices tbody input").click()')
    assert tab.evaluate('document.querySelector(".filters").checkVisibility()') is True
    assert "1 selected" in counted(tab)


def test_its_width_is_used_and_options_are_whole(tab: Tab, page: Path) -> None:
    tab.look(1400, "light")
    tab.open(page)
    assert tab.evaluate('document.querySelector("main").offsetWidth') > 1300
    lines = """[...document.querySelectorAll(".lead .whole, p .whole, .command span")]
        .filter(e => e.textContent.startsWith("--") && e.textContent.length < 60 && e.getClientRects().length > 1)
        .map(e => e.textContent)"""
    assert tab.evaluate(lines) == []


def conditions(tab: Tab) -> list[str]:
    of_set = '[...document.querySelectorAll(".filters select")].map(s => s.selectedOptions[0].dataset.sql)'
    return [each for each in tab.evaluate(of_set) if each and not each.startswith("--")]


def test_what_is_filtered_away_is_not_selected(tab: Tab, hanging: Path) -> None:
    tab.look(1200, "light")
    tab.open(hanging)
    choose(tab, ending="--commit")
    tab.evaluate('document.querySelectorAll("#choices tbody input")[1].click()')
    assert len(command(tab, "by-key")) == 6
    choose(tab, reason="CHECK")
    choose(tab, reason="all")
    assert tab.evaluate('document.querySelector(".by-key button").disabled')


def test_a_filter_of_10_000_rows_takes_no_second(tab: Tab, hanging: Path) -> None:
    tab.look(1200, "light")
    tab.open(hanging)
    before = time.monotonic()
    choose(tab, reason="DISCARD")
    assert "5,000 fit" in counted(tab)
    assert shown(tab) == 200
    tab.evaluate('document.querySelector("button[name=more]").click()')
    assert shown(tab) == 400
    assert time.monotonic() - before < 2, "with its layout, on a busy machine"


@pytest.fixture(scope="module")
def hostile(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Landed and decided by the jobs themselves, in a folder whose name is markup, too."""
    folder = tmp_path_factory.mktemp("hostile")
    warehouse = KernelWarehouse(spark, str(folder / FOLDER))
    at = ["--warehouse", warehouse.root, "--set", "rules.ask=true"]
    assert main(job_of("land"), [*hostile_files(folder, int(time.time() * 1000)), *at]) == 0
    assert main(job_of("reconcile"), at) == 0
    return warehouse


def test_no_text_becomes_markup_or_a_script(tab: Tab, hostile: Warehouse, tmp_path: Path) -> None:
    """What comes from brokers, files and folders is text: in the page, in its filters and in its commands."""
    page = tmp_path / "report.html"
    assert main(job_of("report"), ["--warehouse", hostile.root, "--out", str(page)]) == 0
    tab.look(1200, "light")
    tab.open(page)
    tab.evaluate('document.querySelectorAll("button, summary").forEach(e => e.click())')
    choose(tab, group="=cmd", ending="--roll")
    tab.evaluate('document.querySelector("button[name=all]").click()')
    assert tab.evaluate("window.broken") is None
    assert tab.evaluate('document.querySelectorAll("img, svg[onload], iframe, object, link").length') == 0
    assert tab.evaluate("document.scripts.length") == 1
    assert tab.evaluate('[...document.querySelectorAll("[href]")].every(e => e.getAttribute("href")[0] === "#")')
    assert {r["request"]["url"] for r in tab.said("Network.requestWillBeSent")} == {page.absolute().as_uri()}
    assert tab.said("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown") == []
    shown_text = tab.evaluate("document.body.textContent")
    assert [text for text in TEXTS if escaped(text) not in shown_text] == []
    assert command(tab, "by-where")[-1] == f"producer_group = {value(TEXTS[4])}"
    assert command(tab, "by-where")[1:3] == ["--warehouse", hostile.root]


def test_a_notebooks_tables_are_text(tab: Tab, hostile: Warehouse, tmp_path: Path) -> None:
    """A frame at the end of a cell is shown by its own HTML."""
    hostile.spark.conf.set("spark.sql.repl.eagerEval.enabled", "true")
    halfop.open(hostile.spark, hostile.root).views()
    for name in ("half_messages", "decisions", "rejected", "trans_check_max_time"):
        page = tmp_path / f"{name}.html"
        shown = hostile.spark.table(name)._repr_html_()
        page.write_text(f"<!DOCTYPE html><meta charset=utf-8>{shown}", encoding="utf-8")
        tab.open(page)
        assert tab.evaluate("window.broken") is None
        assert tab.evaluate('document.querySelectorAll("img, svg, script").length') == 0
        assert tab.evaluate('document.querySelectorAll("tr").length') > 3


def test_without_javascript_the_list_is_there(tab: Tab, hanging: Path) -> None:
    tab.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.look(1200, "light")
        tab.open(hanging)
        assert shown(tab) == MANY
        assert tab.evaluate('document.querySelector(".chooser").offsetHeight') == 0
    finally:
        tab.ask("Emulation.setScriptExecutionDisabled", value=False)


def test_the_policy_stops_every_other_script(tab: Tab, hanging: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    inserted = "<script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
    bad.write_text(hanging.read_text().replace("<main>", f"<main>{inserted}"), encoding="utf-8")
    tab.open(bad)
    assert tab.evaluate("window.broken") is None
    assert shown(tab) == 200


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
