"""maintain: what goes, what stays, and that no run, verification or open message notices."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from halfop.frame.errors import UsageError, WarehouseBusy
from halfop.landing.identity import newest_half
from halfop.landing.progress import ProgressRow
from halfop.rocketmq.names import HALF_TOPIC
from halfop.runs import finish
from halfop.runs.verify import verify
from halfop.settings.model import RetentionSettings, Settings
from halfop.upkeep import maintain as m
from halfop.upkeep.maintain import maintain
from halfop.warehouse.disk import local_path
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.lock import hold
from halfop.warehouse.session import session_settings
from halfop.warehouse.spark_errors import overtaken
from halfop.warehouse.upkeep import TRIMMED_BEFORE, UPKEEP, Size, TableUpkeep
from model.strategies import op_rows
from support import rows as r
from support.dying import Killed, dying
from support.messages import KNOWN, NOW, QUEUE, RULES, half, one_of_each, ops
from support.reader_version import needs_more
from support.spark_jobs import jobs

AT_ONCE = timedelta(0)
LATER = NOW + 100_000
LOOKING = Lock()  # of several threads
NOTHING_KEPT = Settings(retention=RetentionSettings(verify=AT_ONCE, files=AT_ONCE, waits=AT_ONCE, landed=AT_ONCE))


@pytest.fixture(autouse=True)
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small files are enough to be joined."""
    monkeypatch.setattr(m, "_MANY_FILES", 2)


def maintained(
    warehouse: KernelWarehouse, settings: Settings = NOTHING_KEPT, **options: Any
) -> dict[tuple[str, str], Any]:
    _, steps = maintain(warehouse, settings, **options)
    return {(step.what, step.table): step for step in steps}


def offsets(warehouse: KernelWarehouse, name: str) -> set[int]:
    return {row["queue_offset"] for row in warehouse.read(name).select("queue_offset").collect()}


@pytest.mark.slow
def test_what_has_ended_goes_and_what_is_open_stays(warehouse: KernelWarehouse) -> None:
    """A message that waits, one that was discarded and is resumed, one that was discarded and is ended after all."""
    r.land(warehouse, [half(0), half(1, check_times="1", store=NOW - 3_600_000)], ops("COMMIT", 0), NOW, KNOWN)
    r.land(warehouse, [half(2, check_times="1", store=NOW - 3_600_000)], [], NOW + 1, KNOWN)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    r.land(warehouse, [half(3), half(4, store=NOW + 5)], ops("ROLLBACK", 3), NOW + 2, KNOWN)
    r.run(warehouse, RULES, NOW + 10, layout="per_topic")
    r.run(warehouse, RULES, NOW + 20, layout="per_topic")
    r.land(warehouse, [half(5)], [], NOW + 30, KNOWN)

    before = {name: warehouse.version(name) for name in ("half_messages", "decisions", "topics/T")}
    planned = maintained(warehouse, dry_run=True)
    assert {name: warehouse.version(name) for name in before} == before, "a dry run changes nothing"
    steps = maintained(warehouse)
    assert planned[("trim", "half_messages")] == steps[("trim", "half_messages")]
    assert steps[("trim", "half_messages")].rows == 3
    assert offsets(warehouse, "half_messages") == {3, 4, 5}, "4 is open, 3 landed with it, 5 no run has seen"
    assert needs_more(warehouse.root) == set()
    assert steps[("trim", "decisions")].rows == 1, "the WAIT of run 2; run 3's is the open set"
    assert warehouse.properties("half_messages")["delta.appendOnly"] == "true"

    r.resume(warehouse, [(*QUEUE, 1)], NOW + 40)
    r.land(warehouse, [], ops("COMMIT", 2, 4, 5), NOW + 40, {QUEUE: LATER})
    summary = r.run(warehouse, RULES, LATER, layout="per_topic")
    assert summary.decisions["COMMIT"] == {"AFTER_DISCARD": 1, "PRODUCER": 2}
    assert summary.decisions["CHECK"] == {"TIMEOUT": 1}
    delivered = {row["half_queue_offset"] for row in warehouse.read("topics/T").collect()}
    assert delivered == {0, 2, 4, 5}, "the body of 2 was set aside when it was discarded"
    assert [row["tran_state_table_offset"] for row in warehouse.read("check_requests").collect()] == [1]
    assert verify(warehouse, summary.run_id or 0)[0].status == 0
    with pytest.raises(UsageError, match="run 2 can no longer be verified: `maintain` has trimmed"):
        verify(warehouse, 2)


@pytest.mark.slow
def test_late_ops_of_what_was_trimmed_are_held_against_its_end(warehouse: KernelWarehouse) -> None:
    r.land(warehouse, [half(0), half(1)], [*ops("COMMIT", 0), *ops("ROLLBACK", 1)], NOW, KNOWN)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    r.run(warehouse, RULES, NOW + 10, layout="per_topic")
    assert maintained(warehouse)[("trim", "half_messages")].rows == 2
    late = [op_rows(QUEUE, 70, "0,1", ["COMMIT"], NOW), op_rows(QUEUE, 71, "0,1", ["ROLLBACK"], NOW)]
    r.land(warehouse, [half(7)], [op for rows in late for op in rows], LATER, {QUEUE: LATER})
    summary = r.run(warehouse, RULES, LATER, layout="per_topic")
    found = {(row["reason"], row["queue_offset"], row["half_offset"]) for row in warehouse.rows("rejected")}
    assert found == {("REDUNDANT", 70, 0), ("CONFLICT", 70, 1), ("CONFLICT", 71, 0), ("REDUNDANT", 71, 1)}
    assert summary.decisions == {"CHECK": {"TIMEOUT": 1}}


@pytest.mark.slow
def test_rows_that_are_still_there_though_trimming_was_said(warehouse: KernelWarehouse) -> None:
    """A deletion that was killed, or rows that land with an old instant or none."""
    one_of_each(warehouse)
    TableUpkeep(warehouse, "half_messages").set({TRIMMED_BEFORE: "2999-01-01 00:00:00"})
    summary = r.run(warehouse, RULES, NOW, layout="per_topic")
    assert (summary.status, summary.decisions["COMMIT"]) == (0, {"PRODUCER": 3})


@pytest.mark.slow
def test_a_rebuilt_broker_is_known_though_its_half_messages_have_been_trimmed(warehouse: KernelWarehouse) -> None:
    r.land(warehouse, [half(0), half(1)], ops("COMMIT", 1), NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    row = ProgressRow(QUEUE[0], HALF_TOPIC, QUEUE[1], 2, NOW, None, 0)
    before = newest_half(warehouse, row, 2**63 - 1)
    TableUpkeep(warehouse, "half_messages").delete("true", {})
    assert before is not None
    assert newest_half(warehouse, row, 2**63 - 1) == before
    assert [place[:2] for place in before[1]] == [(1, 100)]


def test_files_are_joined_where_a_kill_has_left_no_checksum(warehouse: KernelWarehouse) -> None:
    """Delta then reads the checkpoint, by the thread's active session."""
    for n in range(3):
        r.land(warehouse, [half(n)], [], NOW + n, KNOWN)
    path = warehouse.path("half_messages")
    delta: Any = warehouse.spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
    delta.forTable(warehouse.spark._jsparkSession, path).checkpoint()
    version = warehouse.version("half_messages")
    for checksum in Path(path, "_delta_log").glob("*.crc"):
        checksum.unlink()
    delta.clearCache()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(TableUpkeep(warehouse, "half_messages").compact, version).result()
    assert len(warehouse.spark.read.format("delta").load(path).inputFiles()) == 1


@pytest.mark.slow
def test_files_are_joined_up_to_the_pins_and_the_next_runs_find_everything(warehouse: KernelWarehouse) -> None:
    for n in range(2):
        r.land(warehouse, [half(n)], ops("COMMIT", n), NOW + n, KNOWN)
        r.run(warehouse, RULES, NOW + n, layout="per_topic")
    pinned = warehouse.version("half_messages")
    r.land(warehouse, [half(20)], ops("COMMIT", 20), NOW + 10, KNOWN)
    steps = maintained(warehouse, Settings(retention=RetentionSettings(verify=AT_ONCE, files=AT_ONCE)))
    for name in ("half_messages", "op_messages", "topics/T", "runs"):
        assert ("compact", name) in steps
    files = warehouse.spark.read.format("delta").load(warehouse.path("half_messages")).inputFiles()
    assert len(files) == 2, "one of all that runs have read, and the new one as it landed"
    assert ("compact", "half_messages") not in maintained(warehouse), "it is done until the next run"
    with pytest.raises(Exception, match="oncurrent") as raised:
        TableUpkeep(warehouse, "half_messages").compact(pinned)
    assert overtaken(raised.value), "what nothing locks out may have come first"
    assert warehouse.read("half_messages", pinned).count() == 2, "the version that the last run has read is whole"
    r.run(warehouse, RULES, LATER, layout="per_topic")
    delivered = [row["half_queue_offset"] for row in warehouse.read("topics/T").collect()]
    assert sorted(delivered) == [0, 1, 20]


@pytest.mark.slow
def test_what_is_verifiable_stays_so(warehouse: KernelWarehouse) -> None:
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    r.land(warehouse, [half(20)], ops("COMMIT", 6, 20), LATER, {QUEUE: LATER})
    r.run(warehouse, RULES, LATER, layout="per_topic")
    maintained(warehouse, Settings(retention=RetentionSettings(waits=AT_ONCE, landed=AT_ONCE, files=AT_ONCE)))
    for run_id in (1, 2):
        assert verify(warehouse, run_id)[0].status == 0
    kept, log_kept = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
    for given, wanted in (("30 days", "30 days"), ("1 week", "30 days"), ("52 weeks", "52 weeks")):
        TableUpkeep(warehouse, "half_messages").set({log_kept: "interval 365 days", kept: f"interval {given}"})
        maintained(warehouse, Settings())
        properties = warehouse.properties("half_messages")
        assert (properties[log_kept], properties[kept]) == ("interval 365 days", f"interval {wanted}")


def test_a_warehouse_that_needs_nothing_costs_no_spark_job(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(m, "_MANY_FILES", 8)
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    done: list[object] = []
    for_ever = Settings(retention=RetentionSettings(waits=None, landed=None))  # these rows are of long ago
    assert jobs(warehouse.spark, lambda: done.append(maintained(warehouse, for_ever))) == 0
    assert done == [{}]


@pytest.mark.thorough
def test_a_vacuum_keeps_what_it_is_told_to_whatever_the_table_says(warehouse: KernelWarehouse) -> None:
    """Delta 4.4 takes the table's own retention instead: it removed files that the last run's pins need."""
    for n in range(2):
        r.land(warehouse, [half(n)], [], NOW + n, KNOWN)
    table, path = TableUpkeep(warehouse, "half_messages"), warehouse.path("half_messages")
    table.set({"delta.deletedFileRetentionDuration": "interval 0 hours"})
    with session_settings(warehouse.spark, UPKEEP):
        table.compact(warehouse.version("half_messages"))
        table.vacuum(timedelta(days=1))
        assert len(data_files(path)) == 3
        table.set({"delta.deletedFileRetentionDuration": "interval 7 days"})
        table.vacuum(AT_ONCE)
    assert len(data_files(path)) == 1
    assert needs_more(warehouse.root) == set()


def data_files(path: str) -> list[Path]:
    return list(Path(local_path(path)).glob("*.parquet"))


@pytest.mark.thorough
def test_a_landing_and_a_run_work_while_tables_are_looked_at(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock is held for a table's commit alone, and only the lock of those who write that table."""
    for n in range(2):
        r.land(warehouse, [half(n)], ops("COMMIT", n), NOW + n, KNOWN)
        r.run(warehouse, RULES, NOW + n, layout="per_topic")
    free: dict[str, tuple[bool, ...]] = {}

    def compact(table: TableUpkeep, version: int) -> None:
        free[table.name] = tuple(is_free(warehouse, group) for group in ("landing", "run"))

    def small(table: TableUpkeep, version: int) -> Size:
        free["look"] = tuple(is_free(warehouse, group) for group in ("landing", "run"))
        return Size(2, 2)

    monkeypatch.setattr(TableUpkeep, "compact", compact)
    monkeypatch.setattr(TableUpkeep, "small", small)
    maintained(warehouse)
    assert free.pop("look") == (True, True)
    assert free["half_messages"] == (False, True)
    assert free["decisions"] == free["topics/T"] == free["runs"] == (True, False)


def is_free(warehouse: KernelWarehouse, group: str) -> bool:
    try:
        with LOOKING, hold(warehouse, group):
            return True
    except WarehouseBusy:
        return False


def test_an_open_run_holds_everything(warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    one_of_each(warehouse)
    with dying(monkeypatch, finish, "write_closed", after=False), pytest.raises(Killed):
        r.run(warehouse, RULES, NOW)
    with pytest.raises(WarehouseBusy, match="run 1 is open"):
        maintain(warehouse, NOTHING_KEPT)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["delete", "compact", "vacuum", "set"])
@pytest.mark.parametrize("after", [False, True])
def test_maintain_that_dies_is_made_up_for(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch, at: str, after: bool
) -> None:
    r.land(warehouse, [half(200, store=NOW + 50_000)], [], NOW, KNOWN)  # its first WAIT is to be trimmed
    for n in range(2):
        r.land(warehouse, [half(n), half(n + 100)], ops("COMMIT", n), NOW + n, KNOWN)
        r.run(warehouse, RULES, NOW + n)
    with dying(monkeypatch, TableUpkeep, at, after), pytest.raises(Killed):
        maintained(warehouse)
    r.land(warehouse, [half(50)], ops("COMMIT", 50, 100), LATER, {QUEUE: LATER})
    maintained(warehouse)
    r.run(warehouse, RULES, LATER)
    maintained(warehouse)
    assert warehouse.properties("decisions")["delta.appendOnly"] == "true"
    delivered = sorted(row["half_queue_offset"] for row in warehouse.read("real_topics").collect())
    assert delivered == [0, 1, 50, 100]


@pytest.mark.slow
def test_a_deletion_that_dies_half_way_leaves_the_feed_off_and_no_row_out(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that land while the change feed is off are found without it."""
    r.land(warehouse, [half(0)], ops("COMMIT", 0), NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    with dying(monkeypatch, TableUpkeep, "set", after=True), pytest.raises(Killed):
        maintained(warehouse)
    r.run(warehouse, RULES, NOW + 5)
    r.land(warehouse, [half(1)], ops("COMMIT", 1), NOW + 10, KNOWN)
    r.run(warehouse, RULES, NOW + 20)
    delivered = sorted(row["half_queue_offset"] for row in warehouse.read("real_topics").collect())
    assert delivered == [0, 1]


def test_the_table_of_end_is_kept_small_under_its_own_lock(warehouse: KernelWarehouse) -> None:
    r.land(warehouse, [], [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    with hold(warehouse, "run"):
        warehouse.make("endings")
    ending = {"plan_id": "p", "broker_name": "b", "queue_id": 0, "queue_offset": 2, "state": "SENT", "at": NOW}
    for _ in range(2):
        r.append(warehouse, "endings", [ending])
    with hold(warehouse, "ending"), pytest.raises(WarehouseBusy, match="ending lock"):
        maintained(warehouse, Settings())
    assert maintained(warehouse, Settings())[m.COMPACT, "endings"].files == 2
