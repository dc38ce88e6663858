"""The life of one message: its timeline, its state now, and the refusal of a key that nobody knows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import lived as t
import pytest
from build.messages import QUEUE
from entry_points import job_of
from halfop.columns.keys import Key, as_key
from halfop.explain.explain import explain
from halfop.explain.life import Life, find, look_up
from halfop.explain.outlook import outlook
from halfop.explain.timeline import timeline
from halfop.frame.cli import main
from halfop.frame.errors import InputRefused
from halfop.settings.model import Settings
from halfop.warehouse.tables import Warehouse
from halfop.wording import commands as c
from halfop.wording import meanings as m
from pyspark.sql import SparkSession

KEYS = {Key(*QUEUE, offset) for offset in (*range(13), t.NOT_LANDED, t.UNKNOWN)}


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession) -> Warehouse:
    return t.lived(spark)


@pytest.fixture(scope="module")
def each(warehouse: Warehouse) -> dict[int, Life]:
    """Every life by the offsets that it has."""
    return {key.queue_offset: life for life in look_up(warehouse, KEYS) for key in life.keys}


def shown(life: Life) -> list[str]:
    """The timeline's events, without their times."""
    lines = timeline(life)
    return [
        re.sub(r"^ +[0-9-]+ [0-9:.]+ +[^ ]+ [a-z]+( [0-9]+ [a-z]+)?  ", "", x) for x in lines[lines.index("") + 1 :]
    ]


def test_the_timeline_of_a_message_that_was_asked_about_and_answered(each: dict[int, Life]) -> None:
    stored, checked, waited, op, committed = shown(each[t.ASKED])
    assert stored.startswith(f"stored at offset {t.ASKED} (log {t.ASKED * 100}); landed ")
    assert re.fullmatch(
        r"run 1: CHECK TIMEOUT - line 11: otherwise; old enough to ask; check 1, request \w{16} to g", checked
    )
    assert waited.startswith("runs 2 to 3 (x2, until ")
    assert "WAIT CHECKED_RECENTLY - line 10: it was checked less than transaction_check_interval ago" in waited
    assert op.startswith("op message 20, item 0: COMMIT, the answer to a check; landed ")
    assert committed == (
        "run 4: COMMIT CHECK - line 2: a valid op names it, outcome commit; "
        "the producer answered a check; by op message 20"
    )


@pytest.mark.parametrize(
    ("offset", "wanted"),
    [
        (t.COMMITTED, "run 4: OP rejected CONFLICT: an op that says the opposite"),
        (t.ROLLED_BACK, "ROLLBACK PRODUCER - line 3"),
        (t.GIVEN_UP, "run 1: DISCARD CHECKED_TOO_OFTEN - line 5: check times ≥ transaction_check_max"),
        (t.UNDELIVERABLE, "run 1: HALF rejected BAD_REAL_TOPIC"),
        (t.RESUMED, "resumed by tests"),
        (t.ORIGINAL, f"put back by the broker at offset {t.COPY}"),
        (
            t.ORIGINAL,
            f"SUPERSEDED - a later put-back copy stands for the transaction: offset {t.COPY} for {t.ORIGINAL}",
        ),
        (t.NOT_LANDED, "EARLY_OP - an op that waits, because its half message has not landed"),
    ],
)
def test_the_timelines_of_others(each: dict[int, Life], offset: int, wanted: str) -> None:
    assert any(wanted in line for line in shown(each[offset])), shown(each[offset])


def test_a_conflict_is_shown_for_the_message_that_it_is_about_alone(each: dict[int, Life]) -> None:
    shown_for = {offset for offset, life in each.items() if any(row["reason"] == "CONFLICT" for row in life.rejects)}
    assert shown_for == {t.COMMITTED, t.CONFLICTING}


def test_copies_are_one_life_and_twins_two(each: dict[int, Life]) -> None:
    assert each[t.ORIGINAL] is each[t.COPY]
    assert [key.queue_offset for key in each[t.COPY].keys] == [t.ORIGINAL, t.COPY]
    assert each[t.TWIN] is not each[t.OTHER_TWIN]
    assert t.UNKNOWN not in each


@pytest.mark.parametrize(
    ("offset", "state", "wanted"),
    [
        (t.COMMITTED, "COMMITTED", "/topics/T"),
        (
            t.COMMITTED,
            "COMMITTED",
            f"WHERE broker_name = 'b' AND half_queue_id = 0 AND half_queue_offset = {t.COMMITTED}",
        ),
        (t.RESUMED, "OPEN", "open since run 4, "),
        (t.ROLLED_BACK, "ROLLED_BACK", "nothing was delivered"),
        (t.GIVEN_UP, "DISCARDED", f"./spark-submit.sh resume --key b/0/{t.GIVEN_UP} --warehouse "),
        (t.UNDELIVERABLE, "REJECTED", "no or illegal REAL_TOPIC; a corrected row"),
        (t.TWIN, "OPEN", "asked 2 times so far\nnext: it is discarded (line 5), not before 2025-06-15 15:08:41 UTC"),
        (t.RESUMED, "OPEN", "check 2 of 2 (line 11), not before 2025-06-15 15:08:41 UTC"),
        (t.NOT_LANDED, "EARLY_OP", "an op waits"),
    ],
)
def test_where_it_is_now(warehouse: Warehouse, each: dict[int, Life], offset: int, state: str, wanted: str) -> None:
    found = outlook(warehouse, Settings(warehouse=warehouse.root), each[offset])
    assert found.state == state
    assert wanted in "\n".join(found.lines), found.lines


def test_keys() -> None:
    assert as_key("b/0/7") == Key("b", 0, 7)
    assert as_key("a/b/0/7") == Key("a/b", 0, 7)
    assert as_key(f"b/0/{2**63 - 1}") == Key("b", 0, 2**63 - 1)
    assert [as_key(text) for text in ("b/0", "b/0/x", f"b/0/{2**63}", f"b/{2**31}/0", "AC1400", "b/-1/0")] == [None] * 6


def test_a_resume_that_no_run_has_seen(warehouse: Warehouse, each: dict[int, Life]) -> None:
    life = replace(each[t.GIVEN_UP], resumes=each[t.RESUMED].resumes)
    assert outlook(warehouse, Settings(), life).state == "RESUMED"


@pytest.mark.slow
def test_a_uniq_key_shows_all_that_share_it(warehouse: Warehouse) -> None:
    summary, text = explain(warehouse, Settings(), "twins")
    assert summary.extra["messages"] == {"b/0/10": "OPEN", "b/0/11": "OPEN"}
    assert text.count("Half message b/0/1") == 2
    (life,), more = find(warehouse, "copied")
    assert (len(life.keys), more) == (2, False)


@pytest.mark.slow
def test_hostile_values_are_escaped(warehouse: Warehouse) -> None:
    _, text = explain(warehouse, Settings(), t.HOSTILE_KEY)
    assert "</td><script>alert(1)</script>\\x1b[2J" in text
    assert [line for line in text.splitlines() if not line.isprintable()] == []


@pytest.mark.usefixtures("logging_as_before")
def test_what_nobody_knows_is_refused(warehouse: Warehouse, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match=r"nothing is known of b/0/50\n.*half messages have landed from b/0/0 to 12"):
        find(warehouse, f"b/0/{t.UNKNOWN}")
    assert main(job_of("explain"), ["b/0/1", "--warehouse", str(tmp_path / "none")]) == 3
    assert "no table of halfop is there" in capsys.readouterr().out


# ---- words ----

DOCS = (Path(__file__).parents[1] / "docs" / "rules.md").read_text(encoding="utf-8")


def test_the_lines_are_those_of_the_rules() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in DOCS.splitlines()
        if re.match(r"\| \d+a? \|", line)
    ]
    documented = {
        (number, holds.replace("`", ""), decision, reason)
        for number, holds, decision, reasons in rows
        for reason in re.findall(r"`([A-Z_]+)`", reasons)
    }
    ours = {(line.number, line.holds, *key) for key, line in m.LINES.items()}
    ours.add((m.OWN_IMMUNITY.number, m.OWN_IMMUNITY.holds, "WAIT", "IMMUNE"))
    assert ours == documented


@pytest.mark.parametrize("reason", sorted(m.REJECTS))
def test_the_reasons_are_documented(reason: str) -> None:
    landing = (Path(__file__).parents[1] / "docs" / "landing.md").read_text(encoding="utf-8")
    assert reason in DOCS + landing or reason in ("UNKNOWN", "ENDED", "OPEN", "FOUND_RANGE")


@pytest.mark.parametrize(
    ("key", "command"),
    [
        ("b/0/1", "resume --key b/0/1"),
        ("b c'/0/1", "resume --key 'b c'\"'\"'/0/1'"),
        ("$(id)/0/1", "resume --key '$(id)/0/1'"),
        ("-rf/0/1", "resume --key=-rf/0/1"),
        ("\x1b[2J\n'\\é\u202e/0/1", "resume --key $'\\x1b[2J\\x0a\\'\\\\é\\xe2\\x80\\xae/0/1'"),
    ],
)
def test_a_command_to_copy_is_one_word_of_bash(key: str, command: str) -> None:
    assert c.on_message("resume", key, Settings(), "--key") == f"./spark-submit.sh {command}"
    assert c.on_message("explain", "-rf/0/1", Settings()) == "./spark-submit.sh explain -- -rf/0/1"


def test_a_name_stays_a_name_in_sql() -> None:
    assert c.select("s3a://b/`x", "runs", "LIMIT 1") == ["SELECT * FROM delta.`s3a://b/``x/runs`", "LIMIT 1"]
