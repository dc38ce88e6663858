"""Few rows go past Delta's connector: what that writes and decides is what the connector's way writes and decides."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from halfop.landing import op_outcomes as op_rows
from halfop.landing import progress
from halfop.landing.files import landed_files
from halfop.landing.files.sources import InputFile
from halfop.landing.progress import Queue
from halfop.rocketmq.names import OP_TOPIC
from halfop.warehouse import kernel, parquet, reading
from halfop.warehouse.by_spark import SparkWarehouse
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.parquet import UnreadableFile, arrow_schema, searched, stats_of, write_files
from halfop.warehouse.progress import TABLE, progress_rows
from halfop.warehouse.reading import Limits
from halfop.warehouse.rows import Stage, frame_of
from halfop.warehouse.schema import table
from halfop.warehouse.session import HeldSettings, few_rows_settings, session_settings
from halfop.warehouse.tables import Marker, Warehouse
from halfop.warehouse.where import between, equal, is_null
from model import fleet as f
from model import reference as m
from model.strategies import START, Charter, Phase, copied_histories
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from support import rows as r
from support.rules.rule_words import NOW, commit, half
from support.warehouses import LANDED, with_tables
from support.ways import BY_SPARK, read_by_spark

MINUTE = 60_000
PHASES = [Phase(START + 7_000, (START + 2 * MINUTE,), (START + 2 * MINUTE,))]
CHARTER = Charter(m.Settings(check_max=2, file_reserved_time=60 * MINUTE), tuple(PHASES), START + 10 * MINUTE)


@pytest.mark.parametrize("sizes", [(2, 0, 3), (0, 1), (1, 0), (0, 0), ()])
def test_files_without_a_matching_row_hide_no_others(spark: SparkSession, sizes: tuple[int, ...]) -> None:
    """PySpark takes an empty batch for the last one."""
    schema = pa.schema([("n", pa.int64())])
    parts = [pa.table({"n": [number] * size}, schema=schema) for number, size in enumerate(sizes)]
    rows = pa.concat_tables(parts) if parts else schema.empty_table()
    assert frame_of(spark, rows).count() == sum(sizes)
    stage = Stage(spark)
    with stage.begun():
        assert stage.rows(stage.take(rows)) == rows.combine_chunks()


def test_a_stage_is_here_until_it_takes_rows_that_are_there(spark: SparkSession) -> None:
    stage, here, there = Stage(spark), pa.table({"n": [1]}), spark.range(3)
    name = "spark.sql.optimizer.disableHints"
    own = spark.conf.get(name, None)
    assert stage.rows(there) is there, "before it has begun"
    with stage.begun():
        taken = stage.take(here)
        assert (stage.is_here, stage.rows(taken), spark.conf.get(name)) == (True, here, "true")
        with stage.begun():
            assert stage.take(there) is there
        assert (stage.is_here, spark.conf.get(name, None)) == (False, own), "to the end of the outer block"
        with stage.begun():
            assert stage.rows(taken) is taken
    with pytest.raises(ZeroDivisionError), stage.begun():
        _ = 1 // (not stage.is_here)
    assert (stage.is_here, spark.conf.get(name, None)) == (False, own)


# ---- a history, played both ways ----


def played(warehouse: Warehouse, ships: list[f.Ship]) -> dict[str, Counter[object]]:
    """The rows that the runs have written."""
    runs = f.sail(warehouse, CHARTER, ships)
    return {
        "decisions": Counter(d for run in runs for d in r.decisions(warehouse, run)),
        "rejected": Counter(r.rejected(warehouse)),
        "delivered": Counter(r.delivered(warehouse)),
        "discards": Counter(r.discards(warehouse)),
        "requests": Counter(r.requests(warehouse)),
    }


@pytest.mark.parametrize(
    "reader", [pytest.param("connector", marks=pytest.mark.slow), pytest.param("files", marks=pytest.mark.thorough)]
)
def test_both_ways_write_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    ships = f.fleet(f.generated(copied_histories(CHARTER), 12, 7))
    here, by_spark = (KernelWarehouse(spark, str(tmp_path / name)) for name in ("here", "by_spark"))
    found = played(here, ships)
    assert written_by(here, "decisions") == ({"halfop"}, {"parquet-cpp-arrow"})
    read_by_spark(monkeypatch, reader)
    assert played(by_spark, ships) == found
    engines, writers = written_by(by_spark, "decisions")
    assert ("halfop" in engines) is (reader == "files")
    assert writers == {"parquet-mr"}
    assert all(found.values())


@pytest.mark.slow
def test_spark_s_public_api_writes_the_same(spark: SparkSession, tmp_path: Path) -> None:
    ships = f.fleet(f.generated(copied_histories(CHARTER), 4, 7))
    found = played(KernelWarehouse(spark, str(tmp_path / "here")), ships)
    assert played(SparkWarehouse(spark, str(tmp_path / "by_spark")), ships) == found
    assert all(found.values())


def written_by(warehouse: KernelWarehouse, name: str) -> tuple[set[str], set[str]]:
    """The engines that have committed files to a table, and the programs that wrote the files."""
    engines = set()
    for commit_file in Path(warehouse.path(name), "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit_file.read_text().splitlines()]
        if any("add" in action for action in actions):
            engines |= {each["commitInfo"]["engineInfo"] for each in actions if "commitInfo" in each}
    files = Path(warehouse.path(name)).rglob("open=*/*.parquet")
    writers = {pq.read_metadata(file).created_by.split()[0] for file in files}
    return {"halfop" if "halfop" in engine else engine for engine in engines}, writers


# ---- files ----


def rows_of(warehouse: KernelWarehouse) -> None:
    halves = [replace(half(offset=n), broker=f"b{n % 2}", uniq_key=f"k{n}" if n % 3 else None) for n in range(10)]
    r.land(warehouse, halves, [commit(offset=3)], NOW)


def test_a_condition_leaves_out_files_that_cannot_hold_such_a_row(warehouse: KernelWarehouse) -> None:
    for first in (0, 100, 200):
        halves = [half(offset=n) for n in range(first, first + 3)]
        r.land(warehouse, [replace(halves[0], uniq_key=f"k{first}" if first else None), *halves[1:]], [], NOW + first)
    assert warehouse.select("half_messages", where=between("queue_offset", 101, 150)).files == 1
    assert warehouse.select("half_messages", where=between("queue_offset", 50, 99)).files == 0
    assert warehouse.select("half_messages", where=equal("landed_at", (NOW + 200) * 1000)).files == 1
    assert warehouse.select("half_messages", where=is_null("uniq_key")).files == 1


def test_more_rows_than_few_are_sparks(warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    rows_of(warehouse)
    monkeypatch.setattr(reading, "FEW", Limits(files=10, bytes=10**9, rows=9))
    assert warehouse.read("half_messages").count() == 10
    assert "LocalRelation" not in warehouse.read("half_messages")._jdf.queryExecution().optimizedPlan().toString()


def test_spark_reads_the_versions_of_rows_written_here(warehouse: KernelWarehouse) -> None:
    """Row tracking and the change feed: the way by Spark relies on both."""
    r.land(warehouse, [half(offset=0)], [], NOW)
    first = warehouse.version("half_messages")
    r.land(warehouse, [half(offset=1)], [], NOW)
    rows = warehouse.spark.read.format("delta").load(warehouse.path("half_messages"))
    found = {row[0]: row[1] for row in rows.select("queue_offset", "_metadata.row_commit_version").collect()}
    assert found == {0: first, 1: warehouse.version("half_messages")}
    added = warehouse.connector.added(warehouse.path("half_messages"), table("half_messages"), first, first + 1)
    assert [row["queue_offset"] for row in added.collect()] == [1]


def test_paths_are_no_patterns(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = KernelWarehouse(spark, str(tmp_path / "a b[1]{x}*%20"))
    with_tables(warehouse, *LANDED)
    rows_of(warehouse)
    read_by_spark(monkeypatch, "files")
    assert warehouse.read("half_messages").count() == 10
    assert file_index(warehouse) == "InMemoryFileIndex"


@pytest.mark.parametrize("why", ["more files", "another form"])
def test_other_reads_are_the_connectors(warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    rows_of(warehouse)
    read_by_spark(monkeypatch, "connector" if why == "another form" else "files")
    if why == "more files":
        monkeypatch.setattr(kernel, "limits", lambda _: BY_SPARK)
    warehouse = KernelWarehouse(warehouse.spark, warehouse.root)
    assert warehouse.read("half_messages").count() == 10
    assert file_index(warehouse) == "TahoeLogFileIndex", "Delta's own"


def file_index(warehouse: KernelWarehouse) -> str:
    """The class by which Spark knows the files of half_messages."""
    plan = warehouse.read("half_messages")._jdf.queryExecution().executedPlan().toString()
    found = re.search(r"Location: (\w+)", plan)
    assert found, plan
    return found[1]


def test_spark_reads_the_files_of_partitions(warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    r.land(warehouse, [half(offset=n) for n in range(3)], [commit(offset=1)], NOW)
    r.run(warehouse, m.Settings(), NOW)
    here = Counter(warehouse.read("decisions").select("queue_offset", "open", "decision").collect())
    read_by_spark(monkeypatch, "files")
    assert Counter(warehouse.read("decisions").select("queue_offset", "open", "decision").collect()) == here
    assert {row["open"] for row in warehouse.read("decisions", where=equal("open", True)).collect()} == {True}


# ---- statistics ----

AT = datetime(2025, 6, 15, 1, 2, 3, 4_001, tzinfo=timezone.utc)


def stats(**cells: object) -> dict[str, object]:
    spec = table("half_messages")
    rows = pa.Table.from_pylist([cells], schema=arrow_schema(spec.struct))
    written: list[pq.FileMetaData] = []
    pq.write_table(rows, pa.BufferOutputStream(), metadata_collector=written)
    found: dict[str, object] = json.loads(stats_of(written[0], searched(spec)))
    return found


@pytest.mark.usefixtures("spark")  # the columns' types come from it
def test_bounds_are_rounded_outwards() -> None:
    found = stats(uniq_key="k" * 40, queue_offset=7, born_timestamp=AT)
    assert found["minValues"] == {"uniq_key": "k" * 32, "queue_offset": 7, "born_timestamp": "2025-06-15T01:02:03.004Z"}
    assert found["maxValues"] == {
        "uniq_key": "k" * 32 + "\U0010ffff",
        "queue_offset": 7,
        "born_timestamp": "2025-06-15T01:02:03.005Z",
    }
    assert found["numRecords"] == 1
    assert isinstance(found["nullCount"], dict)
    assert found["nullCount"]["real_topic"] == 1
    assert found["nullCount"]["queue_offset"] == 0


@pytest.mark.usefixtures("spark")  # the columns' types come from it
def test_an_instant_that_no_calendar_has_is_no_bound() -> None:
    far = 20_000 * 365 * 86_400_000_000
    found = stats(queue_offset=7, born_timestamp=far)
    assert found["maxValues"] == {"queue_offset": 7}


def test_a_file_is_written_once_and_for_its_partition(warehouse: KernelWarehouse) -> None:
    warehouse.make("decisions")
    spec = table("decisions")
    rows = pa.Table.from_pylist(
        [{"open": n == 0, "queue_offset": n} for n in range(3)], schema=arrow_schema(spec.struct)
    )
    files = write_files(warehouse.files, warehouse.path("decisions"), spec, rows)
    assert sorted((file.partition["open"], json.loads(file.stats or "")["numRecords"]) for file in files) == [
        (False, 2),
        (True, 1),
    ]
    warehouse.commit("decisions", rows, Marker("tests", 1))
    warehouse.commit("decisions", rows, Marker("tests", 1))
    found = warehouse.spark.read.format("delta").load(warehouse.path("decisions"))
    assert {(row["open"], row["queue_offset"]) for row in found.collect()} == {(True, 0), (False, 1), (False, 2)}
    assert found.count() == 3


# ---- tables that a user's own pipeline has made or changed ----


def by_spark_sql(warehouse: KernelWarehouse, *statements: str) -> None:
    for statement in statements:
        warehouse.spark.sql(statement.format(half=f"delta.`{warehouse.path('half_messages')}`"))


def test_a_table_of_other_partitions_is_sparks(warehouse: KernelWarehouse) -> None:
    by_spark_sql(
        warehouse,
        "CREATE TABLE {half} (broker_name STRING, queue_id INT, queue_offset BIGINT) USING delta "
        "PARTITIONED BY (broker_name)",
        "INSERT INTO {half} VALUES ('b', 0, 7)",
    )
    (found,) = warehouse.read("half_messages", where=equal("broker_name", "b")).collect()
    assert (found["broker_name"], found["queue_offset"], found["uniq_key"]) == ("b", 7, None)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {half} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE {half} ADD CONSTRAINT known CHECK (queue_offset >= 0)",
    ],
    ids=["column mapping", "constraint"],
)
def test_a_table_that_asks_more_of_its_writers_is_sparks(warehouse: KernelWarehouse, change: str) -> None:
    r.land(warehouse, [half(offset=1)], [], NOW)
    by_spark_sql(warehouse, change)
    before = warehouse.version("half_messages")
    r.land(warehouse, [half(offset=2)], [], NOW)
    rows = warehouse.landed_between("half_messages", before, warehouse.version("half_messages"))
    assert [row["queue_offset"] for row in rows.collect()] == [2]
    assert {row["queue_offset"] for row in warehouse.read("half_messages").collect()} == {1, 2}


def test_marks_that_only_the_properties_have_count(warehouse: KernelWarehouse) -> None:
    marked = half(age=3 * MINUTE, store=NOW - 2 * MINUTE)
    cells = r.half_cells(marked, NOW) | {"properties": {"TRANSACTION_CHECK_TIMES": "2"}}
    with_tables(warehouse, *LANDED)
    instants = {name: r.instant(cells[name]) for name in ("born_timestamp", "store_timestamp", "landed_at")}
    warehouse.commit("half_messages", [cells | instants])
    r.run(warehouse, m.Settings(), NOW)
    (decided,) = r.decisions(warehouse, 1)
    assert (decided.decision, decided.check_times) == ("CHECK", 3)


# ---- what may go wrong ----


def test_a_file_that_is_no_parquet_is_named(warehouse: KernelWarehouse) -> None:
    r.land(warehouse, [half()], [], NOW)
    (file,) = Path(warehouse.path("half_messages")).glob("*.parquet")
    make_unreadable(file)
    with pytest.raises(UnreadableFile, match=file.name):
        KernelWarehouse(warehouse.spark, warehouse.root).read("half_messages")


def make_unreadable(file: Path) -> None:
    """The file keeps its size, so that only who reads it notices."""
    file.write_bytes(b"PAR1".ljust(file.stat().st_size - 4, b"x") + b"PAR1")


def test_a_folder_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = KernelWarehouse(spark, str(tmp_path / "a b%20c=ü"))
    r.land(warehouse, [half(offset=n) for n in range(3)], [], NOW)
    r.run(warehouse, m.Settings(), NOW)
    assert len(r.decisions(warehouse, 1)) == 3
    assert warehouse.spark.read.format("delta").load(warehouse.path("decisions")).count() == 3


def test_landings_leave_few_files_of_progress(warehouse: KernelWarehouse) -> None:
    queue = Queue("b", 0)
    for offset in range(1, 53):
        progress.move(
            warehouse, [progress.ProgressRow("b", OP_TOPIC, 0, offset, offset * 1_000, 1, 60 - offset)], "STORE"
        )
    assert warehouse.select(TABLE).files == 52
    before = progress_rows(warehouse)
    progress.tidy(warehouse)
    assert progress_rows(warehouse) == before
    assert progress.known_until(warehouse, [queue]) == [52_000]
    assert warehouse.select(TABLE).files == 1
    assert warehouse.spark.read.format("delta").load(warehouse.path(TABLE)).count() == 1


def test_a_file_that_landed_is_found_among_many_with_paths_alike(warehouse: KernelWarehouse) -> None:
    """The bounds in Delta's log have only their first 32 characters."""
    paths = [f"file:/srv/exports/of/broker-a/half-{n}.jsonl" for n in range(3)]
    files = [InputFile("half", "json", path, 1, str(n) * 64) for n, path in enumerate(paths)]
    warehouse.make(landed_files.TABLE)
    for each in files:
        row = {"path": each.uri, "size": each.size, "sha256": each.sha256, "kind": each.kind, "rows": 1}
        warehouse.commit(landed_files.TABLE, [row | {"landed_at": r.instant(NOW)}])
    changed = replace(files[2], sha256="3" * 64)
    assert landed_files.already_landed(warehouse, [files[1], changed]) == {files[1]: NOW * 1_000}
    assert warehouse.select(landed_files.TABLE, where=landed_files._near([files[1], changed])).files == 1


def test_only_files_that_may_have_what_op_messages_name_are_read(warehouse: KernelWarehouse) -> None:
    for first in (0, 100, 200):
        r.land(warehouse, [half(offset=first)], [], NOW + first)
    for file in Path(warehouse.path("half_messages")).glob("*.parquet"):
        if pq.read_table(file)["queue_offset"].to_pylist() != [100]:
            make_unreadable(file)
    fresh = KernelWarehouse(warehouse.spark, warehouse.root)
    items = fresh.frame([("", 0, 100, "")], "broker_name STRING, queue_id INT, half_offset BIGINT, body STRING")
    halves, finals = op_rows._near(fresh, equal("broker_name", ""), items, op_rows._named(items))
    assert ([row["queue_offset"] for row in halves.collect()], finals.collect()) == ([100], [])


def test_small_files_that_are_kept_count_more_than_their_values(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_CACHED_BYTES", 250_000)
    for number in range(10):
        r.land(warehouse, [half(offset=number)], [], NOW)
    assert warehouse.read("half_messages").count() == 10
    kept = warehouse._few_rows.reader._kept.values()
    assert 0 < sum(rows.num_columns for rows in kept) < 200


def test_files_from_elsewhere_are_few_only_if_few_are_new(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is fetched after the other; those that a process keeps cost nothing, so its cycles stay as quick."""
    for number in range(6):
        r.land(warehouse, [half(offset=number)], [], NOW)
    monkeypatch.setattr(parquet, "_FETCHED", 3)
    few_rows = KernelWarehouse(warehouse.spark, warehouse.root)._few_rows
    monkeypatch.setattr(few_rows.reader._files, "local", lambda _: None)
    path, spec = warehouse.path("half_messages"), table("half_messages")
    assert few_rows.of(path, spec, None, None) is None
    for low in (0, 3):
        assert few_rows.of(path, spec, None, between("queue_offset", low, low + 2)) is not None
    assert few_rows.of(path, spec, None, None) is not None


def test_progress_that_another_landing_has_moved_is_not_replaced(warehouse: KernelWarehouse) -> None:
    for offset in (1, 2):
        progress.move(warehouse, [progress.ProgressRow("b", OP_TOPIC, 0, offset, None, 1, None)], "STORE")
    seen = warehouse.version(TABLE) - 1
    assert not warehouse.replace_rows(TABLE, seen, progress_rows(warehouse, seen))
    assert [row["next_offset"] for row in progress_rows(warehouse)] == [2]


def test_settings_for_few_rows_end_with_their_last_holder(spark: SparkSession) -> None:
    name, settings = "spark.sql.optimizer.disableHints", few_rows_settings(spark)
    before = spark.conf.get(name, None)
    with settings.held():
        with settings.held():
            assert spark.conf.get(name) == "true"
        assert spark.conf.get(name) == "true"
    assert spark.conf.get(name, None) == before
    with settings.held():
        settings.leave()
        assert spark.conf.get(name, None) == before
        with settings.held():
            assert spark.conf.get(name, None) == before
    with settings.held():
        assert spark.conf.get(name) == "true"
    assert spark.conf.get(name, None) == before


def test_a_setting_stays_while_another_thread_holds_it(spark: SparkSession) -> None:
    """Two plays of `simulate` wrote files at once; the first to end took the second's setting away."""
    name = "spark.sql.maxConcurrentOutputFileWriters"
    own = spark.conf.get(name, None)
    first, second, other = (session_settings(spark, {name: value}) for value in ("2", "2", "3"))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert spark.conf.get(name) == "2"
    with other:
        assert spark.conf.get(name) == "3"
        second.__exit__(None, None, None)
        assert spark.conf.get(name) == "3"
    assert spark.conf.get(name, None) == own


def test_rows_of_one_run_are_found_by_their_file(warehouse: KernelWarehouse) -> None:
    warehouse.make("runs")
    for run_id in (1, 2, 3):
        warehouse.commit("runs", [{"run_id": run_id, "event": "OPENED"}], Marker("tests", run_id))
    assert warehouse.select("runs", where=equal("run_id", 2)).files == 1


def test_a_session_gets_its_own_settings_back_though_one_fails() -> None:
    own = {"a": "1", "b": "2", "c": "3"}
    session = Mock()
    session.conf.get.side_effect = own.get
    failing = set[str]()

    def put(key: str, value: str) -> None:
        if key in failing:
            raise ConnectionError(key)
        own[key] = value

    session.conf.set.side_effect = put
    settings = HeldSettings(session)
    with pytest.raises(ConnectionError), settings.held(dict.fromkeys("abc", "9")):
        failing.add("b")
    assert own == {"a": "1", "b": "9", "c": "3"}
    failing.clear()
    with settings.held({"b": "8"}):
        pass
    assert own == {"a": "1", "b": "2", "c": "3"}


def test_a_key_that_is_kept_from_sessions_is_passed_over() -> None:
    own = {"a": "1", "c": "3"}
    session = Mock()

    def kept(key: str, *_: object) -> Any:
        if key in ("b", "c"):
            raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] {key}", errorClass="CONFIG_NOT_AVAILABLE")
        raise AnalysisException(key, errorClass="OTHER")

    session.conf.get.side_effect = lambda key, _: own.get(key) or kept(key)
    session.conf.set.side_effect = lambda key, value: own.update({key: value}) if key == "a" else kept(key)
    settings = HeldSettings(session)
    for _ in range(2):
        with settings.held(dict.fromkeys("abc", "9")):
            assert own == {"a": "9", "c": "3"}
        assert own == {"a": "1", "c": "3"}
    with pytest.raises(AnalysisException, match="d"), settings.held({"a": "9", "d": "9"}):
        pass
