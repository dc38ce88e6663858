"""The life of one message: its timeline, its state now, and the refusal of a key that nobody knows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from halfop.columns.keys import Key, as_key
from halfop.explain.explain import explain, timeline
from halfop.explain.life import MessageLife
from halfop.explain.look_up import QueueClocks, find, look_up, queue_clock
from halfop.explain.outlook import outlook
from halfop.frame import commands as w
from halfop.frame.cli import main
from halfop.frame.errors import InputRefused
from halfop.planning.run import Clock
from halfop.settings.model import RetentionSettings, Settings
from halfop.upkeep.maintain import maintain
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.session import session_settings
from halfop.warehouse.tables import Warehouse
from halfop.warehouse.upkeep import TRIMMED_BEFORE, UPKEEP, TableUpkeep
from model import reference as model
from pyspark.sql import Row, SparkSession
from support import lived as t
from support import rows as r
from support.entry_points import job_of
from support.messages import NOW, QUEUE, half, ops

KEYS = {Key(*QUEUE, offset) for offset in (*range(13), t.NOT_LANDED, t.UNKNOWN)}


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession) -> Warehouse:
    return t.lived(spark)


@pytest.fixture(scope="module")
def each(warehouse: Warehouse) -> dict[int, MessageLife]:
    """Every life by the offsets that it has."""
    return {key.queue_offset: life for life in look_up(warehouse, KEYS) for key in life.keys}


def shown(life: MessageLife) -> list[str]:
    """The timeline's events, without their times."""
    lines = timeline(life)
    return [
        re.sub(r"^ +[0-9-]+ [0-9:.]+ +[a-z]+ +[^ ]+ [a-z]+( [0-9]+ [a-z]+)?  ", "", x)
        for x in lines[lines.index("") + 1 :]
    ]


def test_the_timeline_of_a_message_that_was_asked_about_and_answered(each: dict[int, MessageLife]) -> None:
    stored, checked, waited, op, committed = shown(each[t.ASKED])
    assert stored.startswith(f"stored at offset {t.ASKED} (log {t.ASKED * 100}); landed ")
    assert re.fullmatch(
        r"run 1: CHECK TIMEOUT - line 11: otherwise; old enough to ask; queue clock 2025-06-15 15:06:40.000, age 10 s; "
        r"check 1, request \w{16} to g",
        checked,
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
def test_the_timelines_of_others(each: dict[int, MessageLife], offset: int, wanted: str) -> None:
    assert any(wanted in line for line in shown(each[offset])), shown(each[offset])


def test_a_conflict_is_shown_for_the_message_that_it_is_about_alone(each: dict[int, MessageLife]) -> None:
    shown_for = {offset for offset, life in each.items() if any(row["reason"] == "CONFLICT" for row in life.rejects)}
    assert shown_for == {t.COMMITTED, t.CONFLICTING}


def test_copies_are_one_life_and_twins_two(each: dict[int, MessageLife]) -> None:
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
        (t.RESUMED, "OPEN", "its queue clock is at 2025-06-15 15:07:41, the now of run 4"),
        (t.ROLLED_BACK, "ROLLED_BACK", "nothing was delivered"),
        (t.GIVEN_UP, "DISCARDED", f"./spark-submit.sh resume --key b/0/{t.GIVEN_UP} --warehouse "),
        (
            t.UNDELIVERABLE,
            "REJECTED",
            "no or illegal REAL_TOPIC: character 2 of 3, ' ' (U+0020), is none that a topic may have; a corrected row",
        ),
        (t.UNDELIVERABLE, "REJECTED", "allowed: A topic has 1 to 127 characters"),
        (
            t.TWIN,
            "OPEN",
            "asked 2 times so far\nnext: it is discarded (line 5), not before 2025-06-15 15:08:41 by its queue clock",
        ),
        (t.RESUMED, "OPEN", "check 2 of 2 (line 11), not before 2025-06-15 15:08:41 by its queue clock"),
        (t.NOT_LANDED, "EARLY_OP", "an op waits"),
    ],
)
def test_where_it_is_now(
    warehouse: Warehouse, each: dict[int, MessageLife], offset: int, state: str, wanted: str
) -> None:
    found = outlook(warehouse, Settings(warehouse=warehouse.root), each[offset])
    assert found.state == state
    assert wanted in "\n".join(found.lines), found.lines


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        (
            model.Settings(ask=True, checks_a_run=0),
            "asked 0 times so far\nnext: its producer is asked, check 1 of 15 (line 11), in the next run, unless an op "
            "lands first; by the settings of run 1; a run gives its group 0 questions, about the oldest messages first "
            "(rules.checks_a_run)",
        ),
        (model.Settings(), "halfop only watches, and waits for an op"),
        (model.Settings(), "it is discarded (END_NOT_SEEN), not before 2025-06-22 15:06:30 by its queue clock"),
    ],
    ids=["over the limit", "watched", "watched for 7 d"],
)
def test_where_a_message_is_that_its_broker_or_the_limit_keeps_open(
    new_warehouse: Callable[[str], Warehouse], rules: model.Settings, wanted: str
) -> None:
    made = new_warehouse("kept open")
    r.land(made, [half(0)], [], NOW, {QUEUE: NOW}, sources={QUEUE[0]: "STORE"})
    r.run(made, rules, NOW)
    [life] = look_up(made, {Key(*QUEUE, 0)})
    assert wanted in "\n".join(outlook(made, Settings(warehouse=made.root), life).lines)


@pytest.mark.parametrize(
    ("known", "ask", "wanted"),
    [
        (NOW - 9_000, True, "check 1 of 15 (line 11), not before 2025-06-15 15:06:36 by its queue clock, unless"),
        (None, True, "check 1 of 15 (line 11), when ops of the queue have landed, unless"),
        (None, False, "it is discarded (END_NOT_SEEN), when ops of the queue have landed (rules.watch_for)"),
    ],
)
def test_what_is_next_comes_by_the_queue_clock(
    new_warehouse: Callable[[str], Warehouse], known: int | None, ask: bool, wanted: str
) -> None:
    """By the run's own clock its immunity of 6 s is over."""
    made = new_warehouse("late")
    r.land(made, [half(0)], [], NOW, {QUEUE: known})
    r.run(made, model.Settings(ask=ask), NOW)
    [life] = look_up(made, {Key(*QUEUE, 0)})
    assert wanted in "\n".join(outlook(made, Settings(warehouse=made.root), life).lines)


@pytest.mark.parametrize(
    ("said", "ask", "wanted"),
    [
        (
            None,
            False,
            "it is discarded (FORGOTTEN_BY_BROKER), not before 2025-06-15 15:23:36 by its queue clock (line 4b)",
        ),
        (40_000, False, "it is discarded (FORGOTTEN_BY_BROKER), not before 2025-06-15 15:07:16 by its queue clock"),
        (8 * 86_400_000, False, "it is discarded (END_NOT_SEEN), not before 2025-06-22 15:06:30 by its queue clock"),
        (
            None,
            True,
            "is discarded, not before 2025-06-15 15:23:36 by its queue clock (line 4b), or 60 s after check 15",
        ),
        (10_000, True, "next: it is discarded (line 4b), not before 2025-06-15 15:06:46 by its queue clock, unless"),
    ],
)
def test_when_its_broker_forgets_what_it_keeps_in_rocksdb(
    new_warehouse: Callable[[str], Warehouse], said: int | None, ask: bool, wanted: str
) -> None:
    """It is asked for the last time after its immunity of 6 s and 15 intervals of 60 s, or as its broker says."""
    made, there = new_warehouse("forgotten"), (QUEUE[0], model.ROCKSDB_QUEUES)
    more = {} if said is None else {there: said}
    rules = model.Settings(ask=ask)
    r.land(made, [replace(half(0), queue=there[1])], [], NOW, {there: NOW}, forgets_after=more)
    r.run(made, rules, NOW)
    [life] = look_up(made, {Key(*there, 0)})
    assert wanted in "\n".join(outlook(made, Settings(warehouse=made.root), life).lines)


def test_when_its_broker_has_forgotten_what_it_kept_in_rocksdb(new_warehouse: Callable[[str], Warehouse]) -> None:
    made, there = new_warehouse("forgotten"), (QUEUE[0], model.ROCKSDB_QUEUES)
    r.land(made, [replace(half(0), queue=there[1])], [], NOW, {there: NOW + 2_000_000})
    r.run(made, model.Settings(), NOW + 2_000_000)
    [life] = look_up(made, {Key(*there, 0)})
    found = outlook(made, Settings(warehouse=made.root), life)
    assert found.state == "DISCARDED"
    assert found.lines[-1] == "its broker forgot it at 2025-06-15 15:23:36 (line 4b)"


# ---- clocks ----


def test_each_time_names_its_clock(each: dict[int, MessageLife]) -> None:
    """The broker stored the half message and the op, a run decided, and a machine resumed."""
    clocks = [line.split()[2] for line in timeline(each[t.ASKED]) if line.startswith("  2025-")]
    assert clocks == ["broker", "run", "run", "broker", "run"]
    assert any(
        re.match(r"  2025-06-15 15:07:35.000  halfop  .* resumed by", line) for line in timeline(each[t.RESUMED])
    )


def test_the_clock_is_the_one_that_the_run_saw(warehouse_of_one: Warehouse) -> None:
    """The queue is known further today, because ops have landed since."""
    clocks = QueueClocks(warehouse_of_one)
    assert clocks.text(1, Key(*QUEUE, 0), NOW - 10_000) == "2025-06-15 15:06:38.000, age 8 s"
    for file in Path(warehouse_of_one.root, "landing_progress").glob("*.parquet"):
        file.unlink()
    later = KernelWarehouse(warehouse_of_one.spark, warehouse_of_one.root)
    assert QueueClocks(later).text(1, Key(*QUEUE, 0), None) == "not kept any more"


@pytest.fixture
def warehouse_of_one(new_warehouse: Callable[[str], Warehouse]) -> Warehouse:
    """Its only run knew the queue until 2 s before."""
    made = new_warehouse("clocks")
    r.land(made, [half(0)], [], NOW, {QUEUE: NOW - 2_000})
    r.run(made, model.Settings(), NOW)
    r.land(made, [], [], NOW + 1, {QUEUE: NOW + 60_000})
    return made


@pytest.mark.parametrize(
    ("known_until", "expected"), [({}, 5), ({QUEUE: 3}, 3), ({QUEUE: 7}, 5), ({QUEUE: None}, None), ({("b", 1): 3}, 5)]
)
def test_the_queue_clock_is_the_earlier_of_now_and_known_until(
    known_until: dict[tuple[str, int], int | None], expected: int | None
) -> None:
    def at(seconds: int | None) -> datetime | None:
        return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)

    known = [Clock(*queue, at(seconds), None, None) for queue, seconds in known_until.items()]
    now = at(5)
    assert now is not None
    assert queue_clock(known, Key(*QUEUE, 0), now) == at(expected)


def decision(decision: str, reason: str, runs: tuple[int, int], at: int) -> Row:
    names = ["superseded_by_broker", "superseded_by_queue", "copy_broker", "copy_queue", "broker_name", "queue_id"]
    names += ["op_queue_offset", "superseded_by", "copy_offset", "resumed_at", "last_checked_at", "check_immunity"]
    about = dict.fromkeys(names) | {"check_times": 0, "copies": [], "queue_offset": 7}
    first, last = runs
    times = {"run_from": first, "run_upto": last, "times": last - first + 1, "at": at, "until": at + 1000}
    return Row(decision=decision, reason=reason, **about, **times)


def test_a_decision_that_time_made_shows_the_queue_clock() -> None:
    rows = [
        decision("WAIT", "FRESH", (1, 1), NOW),
        decision("WAIT", "IMMUNE", (2, 4), NOW + 1),
        decision("DISCARD", "BROKER_DISCARDED", (5, 5), NOW + 2),
        decision("ROLLBACK", "AFTER_DISCARD", (6, 6), NOW + 3),
    ]
    life = MessageLife([Key(*QUEUE, 7)], decisions=rows, clocks={1: "ONE", 2: "TWO", 4: "FOUR"})
    fresh, immune, *others = [line for line in timeline(life) if re.search(r"  run  .*: [A-Z]", line)]
    assert fresh.endswith("WAIT FRESH - line 7: store_timestamp ≥ queue clock; queue clock ONE")
    assert immune.endswith("; queue clock TWO, in the last of these runs FOUR")
    assert len(others) == 2
    assert "queue clock" not in "".join(others)


def test_keys() -> None:
    assert as_key("b/0/7") == Key("b", 0, 7)
    assert as_key("a/b/0/7") == Key("a/b", 0, 7)
    assert as_key(f"b/0/{2**63 - 1}") == Key("b", 0, 2**63 - 1)
    assert [as_key(text) for text in ("b/0", "b/0/x", f"b/0/{2**63}", f"b/{2**31}/0", "AC1400", "b/-1/0")] == [None] * 6


def test_a_resume_that_no_run_has_seen(warehouse: Warehouse, each: dict[int, MessageLife]) -> None:
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


def test_a_uniq_key_is_known_after_its_half_row_was_trimmed(new_warehouse: Callable[[str], Warehouse]) -> None:
    made = new_warehouse("trimmed")
    r.land(made, [half(0)], ops("COMMIT", 0), NOW, {QUEUE: NOW})
    r.run(made, model.Settings(), NOW)
    with session_settings(made.spark, UPKEEP):
        TableUpkeep(made, "half_messages").delete("true", {TRIMMED_BEFORE: "2026-01-01 00:00:00.0"})
    r.land(made, [half(1, uniq_key="k0")], [], NOW + 1)
    life, twin = find(made, "k0")[0]
    assert (life.keys, life.last and life.last["decision"]) == ([Key(*QUEUE, 0)], "COMMIT")
    assert (twin.keys, twin.last) == ([Key(*QUEUE, 1)], None), "a twin whose half row is there hides none"
    with pytest.raises(InputRefused, match="nothing is known of k1"):
        find(made, "k1")


@pytest.mark.parametrize("layout", ["per_topic", "single"])
def test_a_row_that_retention_has_removed_is_not_looked_for(
    warehouse_of_one: KernelWarehouse, layout: r.Layout
) -> None:
    made, today = warehouse_of_one, round(time.time() * 1000)
    for offset, at in ((1, NOW), (2, today)):
        r.land(made, [half(offset)], ops("COMMIT", offset), at)
        r.run(made, model.Settings(), at, layout=layout)
    maintain(made, Settings(retention=RetentionSettings(topics={"T": timedelta(days=1)})))
    removed, there = (outlook(made, Settings(), life) for life in look_up(made, {Key(*QUEUE, n) for n in (1, 2)}))
    assert removed.lines == ["committed; retention.topics has removed its row since"]
    assert there.lines[0].startswith("committed: in ")


# ---- words ----


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
    assert w.on_message("resume", key, Settings(), "--key") == f"./spark-submit.sh {command}"
    assert w.on_message("explain", "-rf/0/1", Settings()) == "./spark-submit.sh explain -- -rf/0/1"


@pytest.mark.parametrize(
    ("statement", "command"),
    [
        ("SELECT * FROM runs WHERE owner = 'me'", "\"SELECT * FROM runs WHERE owner = 'me'\""),
        ("SELECT * FROM `a-b`", "'SELECT * FROM `a-b`'"),
        ("SELECT '$(id)'", "'SELECT '\"'\"'$(id)'\"'\"''"),
        ("SELECT '\x1b'", "$'SELECT \\'\\x1b\\''"),
    ],
)
def test_a_statement_is_one_word_of_bash(statement: str, command: str) -> None:
    assert w.sql(statement, Settings()) == f"./spark-submit.sh sql {command}"
