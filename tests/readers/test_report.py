"""The report: its figures from a small warehouse, and a page that holds whatever the figures are."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from halfop.frame.cli import main
from halfop.frame.errors import UsageError
from halfop.html.page import command, prose, write
from halfop.report.figures import Figures, RunFigures, read_figures
from halfop.report.queries import LONGEST
from halfop.report.report import open_messages, render
from halfop.rules.reasons import Reason, plain
from halfop.runs import finish, reconcile
from halfop.runs.record import last_run
from halfop.settings.model import Settings
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.tables import Warehouse
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from support import lived as t
from support.dying import Killed, dying
from support.entry_points import job_of
from support.messages import NOW, QUEUE, RULES, half, one_of_each, ops
from support.pages import AT, Tags, everything
from support.rows import instant, land, settings

LONE = "\ud800"  # half a character; no setting takes it


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> Figures:
    return read_figures(t.lived(spark), 200)


def by(rows: list[Row], *names: str) -> dict[Any, Any]:
    """The last column by the others."""
    return {tuple(row[name] for name in names[:-1]): row[names[-1]] for row in rows}


def test_open_messages(found: Figures) -> None:
    """The copy, the twins, the hostile one; and the one that was resumed."""
    assert open_messages(found) == 5
    assert {row["queue_offset"] for row in found["oldest_open"]} == {7, 9, 10, 11, 12}
    groups = {row["producer_group"]: (row["open"], row["silent"]) for row in found["open_groups"]}
    assert groups == {"g": (3, 3), t.HOSTILE_GROUP: (1, 1), "silent": (1, 1)}
    assert sum(row["n"] for row in found["open_by_age"] if row["decision"] == "EARLY_OP") == 1


def test_what_the_runs_did(found: Figures) -> None:
    assert (found.first, found.last, found.planned, found.closed) == (1, 4, 4, True)
    assert [run.now for run in found.runs] == [instant(NOW + s * 1000) for s in (0, 30, 40, 61)]
    assert {name: found.total(name) for name in ("COMMIT", "ROLLBACK", "DISCARD", "REJECT")} == {
        "COMMIT": 4,
        "ROLLBACK": 1,
        "DISCARD": 2,
        "REJECT": 1,
    }
    assert found.counts["COMMIT.CHECK"] == 1
    assert by(found["topics"], "real_topic", "n") == {("T",): 3, ("U",): 1}
    assert found.late == []


def test_latency_is_from_birth_to_decision(found: Figures) -> None:
    """Born 10 s before the first run; the last was committed by the fourth, a minute later."""
    rows = {row["place"]: row for row in found["latency"]}
    assert {place: (row["n"], row["most"]) for place, row in rows.items()} == {
        None: (4, 71_000),
        0: (3, 10_000),
        3: (1, 71_000),
    }
    assert rows[None]["percentiles"] == [10_000, 71_000, 71_000]


def test_answers_to_checks(found: Figures) -> None:
    assert by(found["asked"], "decision", "reason", "n") == {
        ("COMMIT", "CHECK"): 1,
        ("DISCARD", "CHECKED_TOO_OFTEN"): 1,
    }
    silent = {row["producer_group"]: (row["silent"], row["discarded"]) for row in found["silent_groups"]}
    assert silent["silent"] == (1, 1), "the resumed one counts as open alone"


def test_a_resumed_message_is_no_longer_listed_as_discarded(found: Figures) -> None:
    assert [(row["queue_offset"], row["resumed"]) for row in found["discards"]] == [(t.GIVEN_UP, False)]
    assert by(found["discard_reasons"], "reason", "n") == {("CHECKED_TOO_OFTEN",): 1}


def test_rejects_name_the_half_message(found: Figures) -> None:
    assert by(found["reject_reasons"], "kind", "reason", "n") == {("HALF", "BAD_REAL_TOPIC"): 1, ("OP", "CONFLICT"): 2}
    conflicts = [row["half_offset"] for row in found["rejects"] if row["reason"] == "CONFLICT"]
    assert sorted(conflicts) == [t.COMMITTED, t.CONFLICTING]


def test_rejects_have_a_tile_and_a_banner(found: Figures) -> None:
    said = " ".join(Tags(render(found, Settings(), AT)).said)
    assert re.search(r"Rejected\s+1\s+rows that no rule could use", said), said[:3000]
    assert re.search(r"1 row rejected:\s+HALF BAD_REAL_TOPIC\s*\. A topic has 1 to 127 characters", said), said[:3000]


def test_it_begins_with_what_most_people_want_to_know(found: Figures) -> None:
    said = " ".join(Tags(render(found, Settings(), AT)).said)
    first = (
        r"Committed\s+4\s+and 1 rolled back, .*?Open\s+5\s.*?Need a look\s+4\s+2 conflicts, 1 discard, 1 rejected row\s"
    )
    assert re.search(rf"looks at\s+runs 1 to 4\s+{first}", said, re.DOTALL), said[:3000]


def test_no_rule_is_shown_with_a_note_on_its_design() -> None:
    """What halfop's rules have in common with the broker's, and where to read on, is for docs/rules.md."""
    noted = [name for reason in Reason for name in [plain("", reason.name)] if re.search("≠|≥|see |line ", name)]
    assert noted == []


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("./x resume --key b/0/1 --warehouse /w", ["./x", "resume", "--key b/0/1", "--warehouse /w"]),
        ("./x end --commit --where a", ["./x", "end", "--commit", "--where a"]),
        ("./x end --where=a -- b", ["./x", "end", "--where=a", "--", "b"]),
    ],
)
def test_an_option_stands_on_one_line_with_its_value(line: str, shown: list[str]) -> None:
    made = command(line)
    assert re.findall("<span>(.*?)</span>", made) == shown
    assert "".join(Tags(made).said) == line


def test_options_in_sentences_are_whole() -> None:
    assert prose("and end --apply <it>") == 'and end <span class="whole">--apply</span> &lt;it&gt;'


@pytest.mark.slow
def test_a_window_of_the_newest_runs(spark: SparkSession) -> None:
    found = read_figures(t.lived(spark), 1)
    assert (found.first, len(found.runs), found.total("COMMIT")) == (4, 1, 1)
    assert {row["place"] for row in found["latency"]} == {None, 0}
    assert found["discards"] == []
    assert [row["half_offset"] for row in found["rejects"]] == [t.COMMITTED]


# ---- the page ----


class Policies(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.found += dict(attrs)["content"] or ""


class Conditions(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs).get("data-sql")
        self.found += [given] if given and not given.startswith("--") else []


def test_the_page_has_no_tag_but_its_own(found: Figures) -> None:
    html = render(found, Settings(warehouse="/w"), AT)
    own = Tags(render(everything("plain"), Settings(), AT)).found
    assert Tags(html).found <= own
    assert "<img" not in html
    assert t.HOSTILE_GROUP[:6] in "".join(Tags(html).said), "as text"
    assert "\x1b" not in html
    assert "./spark-submit.sh resume --key b/0/3 --warehouse /w" in "".join(Tags(html).said)


def test_only_the_pages_own_script_may_run(found: Figures) -> None:
    html = render(found, Settings(), AT)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = Policies(html).found
    assert policy.startswith("default-src 'none'; ")
    assert policy.partition("script-src")[2] == f" 'sha256-{allowed}'"
    nothing_hangs = render(Figures(tables={"half_messages": 0, "op_messages": 0}), Settings(), AT)
    assert "script" not in Policies(nothing_hangs).found
    assert "<script" not in nothing_hangs


def test_open_and_discarded_messages_hang(found: Figures) -> None:
    states = [(row["queue_offset"], row["decision"]) for row in found["hanging"]]
    assert states[:2] == [(t.GIVEN_UP, "DISCARD"), (t.RESUMED, "CHECK")], "the oldest first"
    assert {offset for offset, _ in states[2:]} == {t.COPY, t.TWIN, t.OTHER_TWIN, t.HOSTILE}


@pytest.mark.parametrize("name", ["it's", "a\\'b", "\x1b\u202e\U000e0001", "$(id) `id`\n", "x" * LONGEST])
def test_conditions_of_filters_hold_for_their_rows(spark: SparkSession, name: str) -> None:
    """And they are printable, whatever a producer wrote."""
    found = everything(name)
    rows = [row.asDict() for row in found["hanging"]]
    columns = "producer_group STRING, real_topic STRING, decision STRING, reason STRING"
    frame = spark.createDataFrame([[row[c.split()[0]] for c in columns.split(", ")] for row in rows], columns)
    conditions = Conditions(render(found, Settings(), AT)).found
    assert all(condition.isprintable() for condition in conditions)
    of_rows = [each for each in conditions if "born_timestamp" not in each]
    counts = frame.agg(*[F.count_if(F.expr(each)) for each in of_rows]).first()
    assert of_rows
    assert counts is not None
    assert list(counts) == [2 if "topic" in each else 1 for each in of_rows]


def test_links_lead_somewhere(found: Figures) -> None:
    ids, links = set[str](), set[str]()

    class Anchors(Tags):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            ids.update(value for name, value in attrs if name == "id" and value)
            links.update(value for name, value in attrs if name == "href" and value)

    Anchors(render(found, Settings(), AT))
    assert links
    assert {link.removeprefix("#") for link in links} <= ids


def test_a_warehouse_without_runs() -> None:
    tables = {"half_messages": 0, "op_messages": 0}
    text = " ".join(Tags(render(Figures(tables=tables), Settings(), AT)).said)
    assert "start reconcile" in text
    assert text.count("No run has decided anything yet.") == 2
    assert "These runs left nothing to resume." in text


@pytest.mark.parametrize(
    "name", ["</script><script>", '"><img onerror=x>', f"\x1b[2J\x00{LONE}", "-->", "x" * 5000, "]]>"]
)
def test_hostile_figures(name: str) -> None:
    html = render(everything(name, 2**62, 950), Settings(warehouse=f"/{name.rstrip(LONE)}"), AT)
    assert Tags(html).found == Tags(render(everything("plain", 3, 950), Settings(), AT)).found
    html.encode()
    assert f"{2**62:,}" in html


def test_a_run_that_opens_meanwhile_is_left_to_the_next_report(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = last_run(t.lived(spark))
    assert found is not None
    third = replace(found[0], run_id=3), True
    monkeypatch.setattr("halfop.report.figures.last_run", lambda warehouse: third)
    assert [run.run_id for run in read_figures(t.lived(spark), 200).runs] == [1, 2, 3]


def test_a_run_that_has_decided_counts_as_in_all_sections(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topics and discards are listed, though it has not closed."""
    one_of_each(warehouse)
    with dying(monkeypatch, finish, "write_closed", False), pytest.raises(Killed):
        reconcile.reconcile(warehouse, reconcile.Request(settings(RULES), instant(NOW)))
    found = read_figures(warehouse, 200)
    assert (found.closed, sum(row["n"] for row in found["topics"])) == (False, 3)
    assert {name: found.total(name) for name in ("COMMIT", "ROLLBACK", "DISCARD")} == {
        "COMMIT": 3,
        "ROLLBACK": 1,
        "DISCARD": 1,
    }


def test_a_backlog_is_not_done_while_slices_are_to_come(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    land(warehouse, [half(n) for n in range(6)], ops("COMMIT", *range(6)), NOW, {QUEUE: NOW})
    with dying(monkeypatch, reconcile, "_next_slice", False), pytest.raises(Killed):
        reconcile.reconcile(warehouse, reconcile.Request(settings(RULES), instant(NOW), max_rows=2))
    html = render(read_figures(warehouse, 200), Settings(), AT)
    said = " ".join(Tags(html).said)
    assert re.search(r"Last run\s+1, slice 1 of 3\s", said), said[:3000]
    assert "Run 1 is slice 1 of 3 of a backlog. The next reconcile does the others." in said


def test_runs_share_columns() -> None:
    runs = [RunFigures(n, AT, AT, AT, {}) for n in range(7, 457)]
    columns = Figures(first=7, last=456, runs=runs).columns
    assert len(columns) == 90
    assert [run.run_id for run in columns[0]] == [7, 8, 9, 10, 11]
    assert [run for column in columns for run in column] == runs


# ---- the file ----


def test_a_page_goes_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "www").mkdir()
    link = tmp_path / "page.html"
    link.symlink_to("www/today.html")
    for text in ("new", "newer"):
        write(link, text)
        assert (link.is_symlink(), (tmp_path / "www/today.html").read_text()) == (True, text)
    assert len([*tmp_path.rglob("*")]) == 3, "nothing half made is left"


def test_a_page_is_written_to_what_is_no_file(tmp_path: Path) -> None:
    """As /dev/stdout, which root's call replaced by a file."""
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    write(tmp_path / "pipe", "a page")
    assert ((tmp_path / "pipe").is_fifo(), os.read(pipe, 99)) == (True, b"a page")
    os.close(pipe)


def test_two_that_write_one_page_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, out = Path.replace, tmp_path / "page.html"

    def late(part: Path, target: Path) -> Path:
        monkeypatch.undo()
        write(out, "of another")
        return replace(part, target)

    monkeypatch.setattr(Path, "replace", late)
    write(out, "mine")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("page.html", "mine")]


def test_a_page_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(part: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match="No space left"):
        write(tmp_path / "page.html", "a page")
    assert not [*tmp_path.iterdir()]


# ---- the job ----


@pytest.mark.usefixtures("logging_as_before")
def test_the_job(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warehouse = KernelWarehouse(spark, str(tmp_path / "w"))
    at, out = ["--warehouse", warehouse.root], tmp_path / "out.html"
    assert main(job_of("report"), [*at, "--out", str(out)]) == 3
    assert not out.exists()
    assert "no table of halfop is there" in capsys.readouterr().out
    land(warehouse, [half(0)], [], NOW, {QUEUE: NOW})
    before = sorted(tmp_path.rglob("*"))
    assert main(job_of("report"), [*at, "--out", str(out)]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["path"], summary["rows_read"]["half_messages"], summary["open_messages"]) == (str(out), 1, 0)
    assert sorted(tmp_path.rglob("*")) == sorted([*before, out]), "tables are only read"
    assert main(job_of("report"), [*at, "--out", str(tmp_path / "no" / "out.html")]) == 2
