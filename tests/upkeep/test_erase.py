"""`erase`: what goes, what stays, and that no run, verification, audit or repair takes it for damage."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from halfop.audit.audit import audit
from halfop.columns.keys import Key
from halfop.erasure import erase as erasing
from halfop.erasure.erase import ErasedTable, erase, plan
from halfop.erasure.places import PLACES, STAYS
from halfop.erasure.plan import ErasurePlan, read, write
from halfop.erasure.selection import ToErase
from halfop.examine.examine import examine
from halfop.explain.explain import explain
from halfop.frame.errors import InputRefused, UsageError, WarehouseBusy
from halfop.frame.summary import Summary
from halfop.landing.again import Again
from halfop.landing.files import taking
from halfop.landing.files.land import FilesRequest, land_files
from halfop.landing.store.land import land_store
from halfop.landing.store.same_store import StoreRequest
from halfop.rocketmq.names import HALF_TOPIC
from halfop.runs import finish
from halfop.runs.verify import verify
from halfop.settings.model import RetentionSettings, Settings
from halfop.upkeep.maintain import maintain
from halfop.upkeep.resume import ResumeSelection, resume
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold
from halfop.warehouse.schema import delta_table, table, table_names
from halfop.warehouse.session import session_settings
from halfop.warehouse.upkeep import UPKEEP, TableUpkeep
from model.strategies import op_rows
from pyspark.sql import functions as F
from support import json_lines as j
from support import rows as r
from support.brokers import store_writer as w
from support.dying import Killed, dying
from support.json_lines import lines
from support.messages import KNOWN, NOW, QUEUE, RULES, half, one_of_each, ops
from support.reader_version import needs_more
from support.spark_jobs import jobs

from upkeep.test_examine import emptied

LATER = NOW + 100_000
LOG = logging.getLogger("halfop.test")
SETTINGS = Settings()
EVERYTHING = ToErase(where="broker_name = 'b'")
ALL_BUT_OPEN = {0, 1, 2, 3, 4, 5}
EMPTY_ENDING = {"plan_id": "p", "broker_name": "b", "queue_id": 0, "kind": "ROLLBACK", "state": "SENT", "by": "x"}


@pytest.fixture
def decided(warehouse: KernelWarehouse) -> KernelWarehouse:
    """One message of each fate after a run: 0 to 5 have ended, or were discarded; 6 is open, and asked about."""
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    return warehouse


def erased(warehouse: KernelWarehouse, wanted: ToErase = EVERYTHING) -> tuple[Summary, list[ErasedTable]]:
    _, made = plan(warehouse, wanted)
    return erase(warehouse, made, SETTINGS)


def of_keys(*offsets: int) -> ToErase:
    return ToErase([Key(*QUEUE, offset) for offset in offsets])


def offsets(warehouse: KernelWarehouse, name: str, column: str = "queue_offset") -> set[int]:
    return {row[column] for row in warehouse.read(name).select(column).collect()}


# ---- which columns ----


@pytest.mark.parametrize("name", table_names())
def test_every_column_of_texts_bytes_or_maps_is_decided(name: str) -> None:
    texts = {column.name for column in table(name).columns if column.type not in _NUMBERS}
    place = PLACES.get(name)
    if place is not None and not place.cells:
        assert name not in STAYS, "its rows go"
    else:
        assert texts == {*STAYS[name], *(place.cells if place else ())}
        assert place is None or not {*place.cells} & {*STAYS[name]}


_NUMBERS = ("INT", "BIGINT", "BOOLEAN", "TIMESTAMP")


# ---- what goes ----


@pytest.mark.slow
def test_ended_messages_go_from_every_table_and_the_open_one_stays(decided: KernelWarehouse) -> None:
    ending = {"queue_offset": 2, "evidence": "customer 17", "remark": "seen", "at": NOW, **EMPTY_ENDING}
    decided.make("endings")
    r.append(decided, "endings", [ending])
    rejected = {
        "kind": "INPUT",
        "reason": "BAD",
        "broker_name": "b",
        "queue_id": 0,
        "detail": "customer 17 is no number",
    }
    r.append(decided, "rejected", [rejected | {"queue_offset": 2, "half_offset": 2, "rejected_at": NOW}])
    before = decided.version("decisions"), decided.rows("decisions")

    summary, made = plan(decided, EVERYTHING)
    assert {key.queue_offset for key in made.keys} == ALL_BUT_OPEN
    expected = {
        "endings": 1,
        "half_messages": 6,
        "rejected": 1,
        "topics/T": 2,
        "topics/U": 1,
        "trans_check_max_time": 1,
    }
    assert made.head.tables == expected
    assert summary.extra["left_open"] == 1
    assert "`./spark-submit.sh end --key b/0/6 --rollback`" in summary.notes[0]
    assert "1 of them are discarded" in summary.notes[1]

    summary, done = erase(decided, made, SETTINGS)
    assert dict(done) == expected == summary.extra["erased"]
    assert (summary.extra["left_open"], "1 message stays, even if they have ended" in summary.notes[0]) == (1, True)
    assert offsets(decided, "half_messages") == {6}
    assert [decided.read(name).count() for name in ("topics/T", "topics/U", "trans_check_max_time")] == [0, 0, 0]
    assert offsets(decided, "check_requests", "tran_state_table_offset") == {6}
    (row,) = decided.rows("endings")
    assert (row["evidence"], row["state"], row["remark"]) == (None, "SENT", "seen")
    details = {row["detail"] for row in decided.rows("rejected") if row["kind"] == "INPUT"}
    assert details == {None}
    assert (decided.version("decisions"), decided.rows("decisions")) == before, "decisions keep the fact"
    for name in ("half_messages", "topics/T", "endings", "rejected"):
        assert TableUpkeep(decided, name).lacking_guards == {}
    assert needs_more(decided.root) == set()

    again, done = erase(decided, made, SETTINGS)
    assert (done, again.extra["erased"]) == ([], {})
    assert "nothing is left to erase" in again.notes[-1]
    assert len(plan(decided, EVERYTHING)[1]) == 0


@pytest.mark.slow
def test_nothing_takes_it_for_damage(decided: KernelWarehouse) -> None:
    summary, _ = erased(decided)
    checked, differences = verify(decided, 1)
    assert (checked.status, differences) == (0, [])
    assert "4 messages of run 1, erased (table erasures)" in checked.notes[0]
    looked = examine(decided, r.settings(RULES, "per_topic"), deep=True, repair=False)
    assert (looked.status, looked.extra["remains"]) == (0, [])
    shown = str(explain(decided, SETTINGS, "b/0/0"))
    assert f"erased from half_messages, topics/T: plan {summary.extra['plan_id']}, by " in shown
    assert "state: decided COMMIT; its data was erased" in shown
    found = audit(decided, SETTINGS)
    assert found.extra["findings"]["ENDED_WITHOUT_HALF"] == 0
    assert found.extra["transactions"]["HALF_NOT_LANDED"] == 0
    assert any("erased" in note for note in found.notes)


def test_a_repair_brings_nothing_back_that_was_erased(decided: KernelWarehouse) -> None:
    """The file that held it waits for a VACUUM, and the newest version does not name it.

    What the repair takes out of the tables stays, and a later erasure names its folder.
    """
    bad = {"kind": "INPUT", "reason": "BAD", "broker_name": "b", "queue_id": 0, "rejected_at": NOW}
    r.append(decided, "rejected", [bad | {"queue_offset": 2, "half_offset": 2, "detail": "customer 17"}])
    assert erased(decided, of_keys(2))[0].extra["elsewhere"] == []
    r.append(decided, "rejected", [bad | {"queue_offset": 7, "half_offset": 7, "detail": "lost"}])
    emptied(Path(decided.path("rejected")))
    looked = examine(decided, r.settings(RULES, "per_topic"), deep=False, repair=True)
    assert looked.extra["repaired"] == ["rejected: 1 rows whose commit was lost"]
    rows = decided.read("rejected").where("kind = 'INPUT'").select("queue_offset", "detail").collect()
    assert sorted(map(tuple, rows)) == [(2, None), (7, "lost")]
    assert erased(decided, of_keys(0))[0].extra["elsewhere"] == [f"folder {decided.root}/_damaged"]


@pytest.mark.slow
def test_what_comes_after_changes_nothing_and_breaks_nothing(decided: KernelWarehouse) -> None:
    """Ops for ended and discarded messages, and half messages that land again: no delivery, no failure."""
    erased(decided)
    again = [half(n) for n in (0, 2)] + [half(3, check_times="1", store=NOW - 3_600_000), half(8)]
    r.land(decided, again, [*ops("COMMIT", 3, 8), *op_rows(QUEUE, 20, "0", ["ROLLBACK"], NOW)], LATER, {QUEUE: LATER})
    summary = r.run(decided, RULES, LATER, layout="per_topic")
    assert summary.decisions["COMMIT"] == {"AFTER_DISCARD": 1, "PRODUCER": 1}
    topic = [row["half_queue_offset"] for row in decided.read("topics/T").collect()]
    assert 0 not in topic
    assert 2 not in topic
    assert 8 in topic
    summary = r.run(decided, RULES, LATER + 1, layout="per_topic")
    assert summary.status == 0


@pytest.mark.slow
def test_a_discarded_message_cannot_be_delivered_or_resumed_any_more(
    decided: KernelWarehouse, caplog: pytest.LogCaptureFixture
) -> None:
    erased(decided)
    with pytest.raises(InputRefused, match="no discarded message b/0/3"):
        resume(decided, ResumeSelection([(Key(*QUEUE, 3))]))
    r.land(decided, [], ops("COMMIT", 3), LATER, {QUEUE: LATER})
    with caplog.at_level(logging.WARNING):
        summary = r.run(decided, RULES, LATER, layout="per_topic")
    assert summary.decisions["COMMIT"] == {"AFTER_DISCARD": 1}
    assert "topics/T: 1 messages have been erased before run 2 decided COMMIT about them" in caplog.text
    assert decided.read("topics/T").count() == 0
    assert r.run(decided, RULES, LATER + 1, layout="per_topic").status == 0, "the table has lost nothing"
    assert verify(decided, 2)[0].status == 0
    looked = examine(decided, r.settings(RULES, "per_topic"), deep=True, repair=False)
    assert looked.extra["remains"] == []


@pytest.mark.slow
def test_deletion_vectors_hide_no_body_in_files_that_stay(decided: KernelWarehouse) -> None:
    """Neither of what is erased, nor of a row that somebody has deleted by SQL."""
    tables = {"half_messages": "queue_offset", "topics/T": "half_queue_offset"}
    for name in tables:
        with_vectors = "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        decided.spark.sql(f"ALTER TABLE {delta_table(decided.path(name))} {with_vectors}")
    TableUpkeep(decided, "topics/T").delete("half_queue_offset = 5", {})  # with no setting of ours, as a user's DELETE
    warehouse = KernelWarehouse(decided.spark, decided.root)
    with session_settings(decided.spark, {"spark.databricks.delta.stats.skipping": "true"}):  # else Delta reads none
        assert dict(erased(warehouse, of_keys(5))[1]) == {"half_messages": 1}
    left = {
        name: {n for file in warehouse.listed(name) for n in pq.read_table(file.path, columns=[of])[of].to_pylist()}
        for name, of in tables.items()
    }
    assert left == {"half_messages": {0, 1, 2, 3, 4, 6}, "topics/T": {0}}


# ---- what stays, and is refused ----


@pytest.mark.slow
def test_what_a_run_has_not_looked_at_is_left_open(decided: KernelWarehouse) -> None:
    _, made = plan(decided, of_keys(0, 3))
    r.land(decided, [half(9)], ops("COMMIT", 3), LATER, {QUEUE: LATER})
    summary, done = erase(decided, made, SETTINGS)
    assert summary.extra["left_open"] == 1
    assert summary.notes[0].endswith("reconcile, and apply this plan again")
    assert dict(done) == {"half_messages": 1, "topics/T": 1}
    assert offsets(decided, "trans_check_max_time") == {3}
    left, without = plan(decided, of_keys(3, 9, 77))
    assert (len(without), left.extra["left_open"]) == (0, 2)
    assert "1 key without a message of which anything is left here: b/0/77" in left.notes[0]
    assert left.notes[1].endswith("reconcile, and plan again: a plan names no open message")
    r.run(decided, RULES, LATER, layout="per_topic")
    summary, done = erase(decided, made, SETTINGS)
    assert (summary.extra["left_open"], dict(done)) == (
        0,
        {"half_messages": 1, "topics/T": 1, "trans_check_max_time": 1},
    )


@pytest.mark.slow
def test_copies_go_together(warehouse: KernelWarehouse) -> None:
    copy = half(7, check_times="1", uniq_key="k", store=NOW - 5_000)
    r.land(warehouse, [half(0, uniq_key="k"), copy], ops("COMMIT", 0), NOW, KNOWN)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    _, made = plan(warehouse, of_keys(7))
    assert {key.queue_offset for key in made.keys} == {0, 7}
    part = ErasurePlan(made.head, made.rows.slice(0, 1))
    summary, done = erase(warehouse, part, SETTINGS)
    assert done == []
    assert "1 message not erased: the plan lacks copies of them" in summary.notes[0]
    assert dict(erase(warehouse, made, SETTINGS)[1]) == {"topics/T": 1, "half_messages": 2}


def test_a_plan_holds_half_keys_alone_and_a_changed_one_is_refused(decided: KernelWarehouse, tmp_path: Path) -> None:
    _, made = plan(decided, ToErase(where="real_topic = 'U'"))
    path = tmp_path / "plan.jsonl"
    write(made, str(path))
    text = path.read_text()
    assert read(str(path)).keys == made.keys == {Key(*QUEUE, 1)}
    assert "real_topic" not in text, "a condition may hold personal data"
    path.write_text(text.replace('"queue_offset": 1,', '"queue_offset": 2,'))
    with pytest.raises(InputRefused, match="not as it was planned"):
        read(str(path))
    path.write_text(text.replace('"left_open": 0', '"left_open": 1'))
    with pytest.raises(InputRefused, match="not as it was planned"):
        read(str(path))


def test_a_plan_is_of_one_warehouse(decided: KernelWarehouse, new_warehouse: Callable[[str], KernelWarehouse]) -> None:
    _, made = plan(decided, of_keys(0))
    other = new_warehouse("other")
    r.land(other, [half(0)], [], NOW, KNOWN)
    r.run(other, RULES, NOW)
    with pytest.raises(UsageError, match="another warehouse"):
        erase(other, made, SETTINGS)


def test_a_condition_holds_for_the_half_message_itself(decided: KernelWarehouse) -> None:
    """Topics lack columns of half messages: what they lack is not null."""
    for where in ("offset_msg_id IS NULL", "coalesce(landed_at, TIMESTAMP'2000-01-01') < TIMESTAMP'2020-01-01'"):
        assert plan(decided, ToErase(where=where))[1].keys == set()
    with session_settings(decided.spark, UPKEEP):
        TableUpkeep(decided, "half_messages").delete("queue_offset = 0", {})
    assert plan(decided, ToErase(where="queue_offset = 0 AND keys IS NULL"))[1].keys == {Key(*QUEUE, 0)}
    with pytest.raises(UsageError, match=r"topics/T: .*landed_at"):
        plan(decided, ToErase(where="landed_at IS NULL"))


def test_a_uniq_key_finds_its_messages(warehouse: KernelWarehouse) -> None:
    r.land(warehouse, [half(0, uniq_key="k0"), half(1, uniq_key="k1")], ops("COMMIT", 0, 1), NOW, KNOWN)
    r.run(warehouse, RULES, NOW, layout="single")
    summary, made = plan(warehouse, ToErase(uniq_keys=["k1", "gone"]))
    assert (made.keys, made.head.tables) == ({Key(*QUEUE, 1)}, {"half_messages": 1, "real_topics": 1})
    assert "gone" in summary.notes[0]
    erase(warehouse, made, SETTINGS)
    assert {row["half_queue_offset"] for row in warehouse.rows("real_topics")} == {0}
    assert "erased from" in str(explain(warehouse, SETTINGS, "k1"))
    assert verify(warehouse, 1)[0].status == 0


def test_many_keys_that_nobody_knows_cost_no_more_than_one(decided: KernelWarehouse) -> None:
    def cost(number: int) -> int:
        return jobs(decided.spark, lambda: plan(decided, of_keys(*range(1_000, 1_000 + number))))

    cost(1)
    assert cost(20) == cost(1)


def test_what_is_wrong_with_a_condition_is_shown(decided: KernelWarehouse) -> None:
    with pytest.raises(UsageError, match="--where no_column = 1"):
        plan(decided, ToErase(where="no_column = 1"))


@pytest.mark.slow
def test_an_open_run_and_a_held_lock_are_waited_for(decided: KernelWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    _, made = plan(decided, EVERYTHING)
    with hold(decided, "landing"), pytest.raises(WarehouseBusy, match="landing lock"):
        erase(decided, made, SETTINGS)
    r.land(decided, [half(9)], [], LATER, {QUEUE: LATER})
    with dying(monkeypatch, finish, "write_closed", after=False), pytest.raises(Killed):
        r.run(decided, RULES, LATER, layout="per_topic")
    for call in (lambda: plan(decided, EVERYTHING), lambda: erase(decided, made, SETTINGS)):
        with pytest.raises(WarehouseBusy, match="run 2 is open, the next reconcile finishes it"):
            call()
    assert decided.read("half_messages").count() == 8


# ---- killed anywhere ----


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_call_that_was_killed_goes_on(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Killed before or after the record, and each table's removal, with and without its guards."""
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    _, made = plan(warehouse, EVERYTHING)
    steps = [(erasing, "record", 1), *[(TableUpkeep, "forget", 1)] * 3, (TableUpkeep, "set", 7)]
    for owner, name, at_call in steps:
        with dying(monkeypatch, owner, name, after, at_call), pytest.raises(Killed):
            erase(warehouse, made, SETTINGS)
    assert verify(warehouse, 1)[0].status == 0
    erase(warehouse, made, SETTINGS)
    assert len(plan(warehouse, EVERYTHING)[1]) == 0
    recorded = warehouse.read("erasures").groupBy("table_name").agg(F.sum("rows")).collect()
    assert {row[0]: row[1] for row in recorded} == made.head.tables, "each row once"
    assert TableUpkeep(warehouse, "half_messages").lacking_guards == {}


@pytest.mark.slow
def test_a_message_that_opens_again_after_a_kill_keeps_its_body(
    decided: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is there, its rows are there, too, and a run may deliver them."""
    _, made = plan(decided, of_keys(3))
    with dying(monkeypatch, erasing, "record", after=True), pytest.raises(Killed):
        erase(decided, made, SETTINGS)
    resume(decided, ResumeSelection([Key(*QUEUE, 3)]))
    assert "erased" not in maintain(decided, SETTINGS)[0].extra
    r.run(decided, RULES, LATER, layout="per_topic")
    assert "erased" not in maintain(decided, SETTINGS)[0].extra
    r.land(decided, [], ops("COMMIT", 3), LATER, {QUEUE: LATER})
    r.run(decided, RULES, LATER + 1, layout="per_topic")
    assert 3 in offsets(decided, "topics/T", "half_queue_offset")
    assert maintain(decided, SETTINGS)[0].extra["erased"]["topics/T"] == 1, "it has ended now"


@pytest.mark.slow
def test_one_erased_and_one_only_recorded_are_committed_in_one_run(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    r.land(warehouse, [half(n, check_times="1", store=NOW - 3_600_000) for n in (3, 7)], [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    erased(warehouse, of_keys(3))
    _, made = plan(warehouse, of_keys(7))
    with dying(monkeypatch, erasing, "record", after=True), pytest.raises(Killed):
        erase(warehouse, made, SETTINGS)
    r.land(warehouse, [], ops("COMMIT", 3, 7), LATER, {QUEUE: LATER})
    assert r.run(warehouse, RULES, LATER, layout="per_topic").decisions["COMMIT"] == {"AFTER_DISCARD": 2}
    assert offsets(warehouse, "topics/T", "half_queue_offset") == {7}


# ---- old files, and what maintain does ----


@pytest.mark.slow
def test_old_versions_hold_it_until_the_vacuum_that_is_named(decided: KernelWarehouse) -> None:
    before = decided.version("half_messages")
    summary, _ = erased(decided)
    assert summary.extra["old_files_until"] > r.instant(NOW)
    assert "until the first `maintain` after" in summary.notes[-1]
    assert offsets_at(decided, before) == {*range(7)}
    r.run(decided, RULES, LATER, layout="per_topic")
    at_once = dict.fromkeys(("verify", "files", "waits", "landed"), "0s")
    nothing_kept = Settings(retention=RetentionSettings.model_validate(at_once))
    maintain(decided, nothing_kept)
    files = {path.name for path in Path(decided.path("half_messages")).glob("*.parquet")}
    assert files == {
        Path(each).name for each in decided.spark.read.format("delta").load(decided.path("half_messages")).inputFiles()
    }


def offsets_at(warehouse: KernelWarehouse, version: int) -> set[int]:
    return {row["queue_offset"] for row in warehouse.read("half_messages", version).collect()}


@pytest.mark.slow
def test_maintain_removes_what_has_come_back(decided: KernelWarehouse) -> None:
    """A user's own pipeline, and a repair, know nothing of what was erased."""
    erased(decided)
    r.append(decided, "half_messages", [r.half_cells(half(0), LATER)])
    assert "erased" not in maintain(decided, SETTINGS)[0].extra, "no run has looked at it"
    r.run(decided, RULES, LATER, layout="per_topic")
    summary, _ = maintain(decided, SETTINGS)
    assert summary.extra["erased"] == {"half_messages": 1}
    assert offsets(decided, "half_messages") == {6}
    assert "erased" not in maintain(decided, SETTINGS)[0].extra


# ---- messages that land again ----


@pytest.mark.slow
@pytest.mark.parametrize("by_tasks", [False, True])
def test_a_message_that_lands_again_is_kept_out(
    warehouse: KernelWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_tasks: bool
) -> None:
    """As another file, here or by tasks; and `examine` lacks no row of either file."""
    if by_tasks:
        monkeypatch.setattr(taking, "are_few", lambda files: False)
    first = lines(tmp_path / "1.jsonl", *(j.half(n) for n in (1, 2)))
    answers = lines(tmp_path / "o.jsonl", j.op(1, "1,2"))
    land_files(warehouse, FilesRequest((first,), (answers,), known_until=r.instant(NOW)), LOG)
    r.run(warehouse, RULES, NOW)
    summary, _ = erased(warehouse, of_keys(1))
    assert summary.extra["elsewhere"] == [f"file {first}"]
    second = lines(tmp_path / "2.jsonl", *(j.half(n) for n in (1, 3)))
    land_files(warehouse, FilesRequest((second,)), LOG)
    assert offsets(warehouse, "half_messages") == {2, 3}
    r.run(warehouse, RULES, NOW + 1)
    assert {row["half_queue_offset"] for row in warehouse.rows("real_topics")} == {2}
    looked = examine(warehouse, r.settings(RULES), deep=True, repair=False)
    assert looked.extra["remains"] == []
    assert verify(warehouse, 1)[0].status == verify(warehouse, 2)[0].status == 0


@pytest.mark.slow
def test_a_store_that_lands_again_brings_nothing_back(warehouse: KernelWarehouse, tmp_path: Path) -> None:
    store = w.Store(tmp_path / "store")
    places = [store.append(w.half(n)) for n in range(3)]
    store.append(w.final(0, places[0]))
    store.append(w.op("0,"))
    land_store(warehouse, StoreRequest(str(store.root), "broker-a", timedelta(0)), LOG)
    r.run(warehouse, RULES, w.BORN_MS + 30_000)
    summary, _ = erased(warehouse, ToErase([Key("broker-a", 0, 0)]))
    assert summary.extra["elsewhere"] == ["the store of broker-a (STORE)"]
    again = (Again("broker-a", HALF_TOPIC, 0, 0, 3),)
    land_store(warehouse, StoreRequest(str(store.root), "broker-a", timedelta(0), again=again), LOG)
    assert offsets(warehouse, "half_messages") == {1, 2}
    assert warehouse.read("half_messages").count() == 4


# ---- topics by age ----


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["per_topic", "single"])
def test_a_topic_is_trimmed_by_age(warehouse: KernelWarehouse, layout: r.Layout) -> None:
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW, layout=layout)
    tables = {"T": "topics/T", "U": "topics/U"} if layout == "per_topic" else dict.fromkeys("TU", "real_topics")
    kept = Settings(retention=RetentionSettings.model_validate({"topics": {"T": "1d", "absent": "1d"}}))
    both = Settings(retention=RetentionSettings.model_validate({"topics": {"T": "1d", "U": "1d"}}))
    trimmed = maintain(warehouse, both, dry_run=True)[0].extra["rows_trimmed"]
    assert sum(n or 0 for n in trimmed.values()) == 3
    summary, _ = maintain(warehouse, kept, dry_run=True)
    assert summary.extra["rows_trimmed"] == {tables["T"]: 2}
    maintain(warehouse, kept)
    left = [row["topic"] for name in dict.fromkeys(tables.values()) for row in warehouse.rows(name)]
    assert left == ["U"]
    assert TableUpkeep(warehouse, tables["T"]).lacking_guards == {}
    assert maintain(warehouse, kept)[0].extra["rows_trimmed"] == {}
    checked, _ = verify(warehouse, 1)
    assert checked.status == 0
    assert "2 messages of run 1" in checked.notes[0]
    r.land(warehouse, [half(8)], ops("COMMIT", 8), LATER, {QUEUE: LATER})
    assert r.run(warehouse, RULES, LATER, layout=layout).decisions["COMMIT"] == {"PRODUCER": 1}
    looked = examine(warehouse, r.settings(RULES, layout), deep=True, repair=False)
    assert looked.extra["remains"] == []
