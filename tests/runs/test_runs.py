"""Traces of runs on disk: topics and their folders, an interrupted run, a failing sink, a dry run, exit statuses."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from chispa import assert_df_equality
from halfop.examine.examine import examine
from halfop.frame.cli import main
from halfop.frame.errors import LostRows, UsageError
from halfop.planning.plan import Plan
from halfop.planning.run import Run
from halfop.runs import finish
from halfop.runs.reconcile import Request, preview, reconcile
from halfop.runs.record import CLOSE_APP, last_run
from halfop.sinks import staging, write
from halfop.sinks.projections import HALF, PAYLOAD, About, Form, in_pieces, projected
from halfop.sinks.targets import app_of
from halfop.sinks.topics import TopicTables
from halfop.warehouse import reading
from halfop.warehouse import schema as topics
from halfop.warehouse.delta_log import DeltaLog
from halfop.warehouse.kernel import KernelWarehouse
from halfop.warehouse.parquet import arrow_schema
from halfop.warehouse.rows import FoundRows
from halfop.warehouse.schema import table
from halfop.warehouse.tables import Marker, spec_of
from halfop.warehouse.where import Where
from model.strategies import op_rows
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from support import rows as r
from support.dying import Killed, dying
from support.entry_points import job_of
from support.messages import KNOWN, NOW, QUEUE, RULES, half, one_of_each, ops
from support.ways import BY_SPARK

# ---- topics and their folders ----

LONG, RETRY = "L" * 127, "%RETRY%" + "r" * 248
STRANGE = ["%RETRY%g", "%DLQ%g", "a|b", "Case", "case", "CASE", "_hidden", "-", LONG, RETRY]


@pytest.mark.slow
def test_hundreds_of_topics_in_one_run_each_find_their_table(warehouse: KernelWarehouse) -> None:
    names = [*STRANGE, *(f"topic-{n}" for n in range(120))]
    halves = [half(n, name, body=name.encode()) for n, name in enumerate(names)]
    r.land(warehouse, halves, ops("COMMIT", *range(len(names))), NOW, KNOWN)
    r.run(warehouse, RULES, NOW, layout="per_topic")

    index = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
    assert sorted(index) == sorted(names)
    folders = {path.name for path in Path(warehouse.path("topics")).iterdir()}
    assert folders == set(index.values())
    assert len({folder.lower() for folder in folders}) == len(names), "a file system that ignores case keeps them apart"
    for name in STRANGE:
        (row,) = warehouse.read(f"topics/{index[name]}").select("topic", "body").collect()
        assert (row["topic"], bytes(row["body"])) == (name, name.encode())
    written = [warehouse.log.marker(warehouse.path(f"topics/{folder}"), "halfop.sink.topic") for folder in folders]
    assert written == [1] * len(names)


@pytest.mark.thorough
def test_a_topic_keeps_its_folder_and_skips_runs_without_messages(warehouse: KernelWarehouse) -> None:
    r.land(warehouse, [half(0, "Case"), half(1, "Other")], ops("COMMIT", 0, 1), NOW, KNOWN)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    before = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
    r.land(warehouse, [half(2, "Case"), half(3, "case")], ops("COMMIT", 2, 3), NOW, KNOWN)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    after = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
    assert after == before | {"case": after["case"]}
    assert warehouse.version(f"topics/{after['Other']}") == 0
    assert warehouse.read(f"topics/{after['Case']}").count() == 2


HOSTILE = ["..", "../x", "/x", "a/b", "a\\b", "", " ", "a\x00b", "x" * 4096, "%RETRY%" + "x" * 249, "..%2fx", "file:x"]


def test_a_hostile_name_is_a_reject_and_never_a_path(warehouse: KernelWarehouse) -> None:
    names = [*HOSTILE, "ok"]
    halves = [half(n, name) for n, name in enumerate(names)]
    r.land(warehouse, halves, ops("COMMIT", *range(len(names))), NOW, KNOWN)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    assert [path.name for path in Path(warehouse.path("topics")).iterdir()] == ["ok"]
    assert warehouse.read("rejected").where("reason = 'BAD_REAL_TOPIC'").count() == len(HOSTILE)


@pytest.mark.parametrize("name", [*HOSTILE, *STRANGE, "_", "__"])
def test_a_folder_is_one_harmless_name(name: str) -> None:
    (folder,) = topics.directories([name], {}).values()
    assert len(folder) <= 100
    assert name in HOSTILE or not folder.startswith(("_", ".")), "readers would take it for hidden"


@pytest.mark.thorough
def test_a_topic_of_underscores_keeps_the_folder_of_an_older_version(warehouse: KernelWarehouse) -> None:
    old = ".d2e2adf7177b7a8a"
    row = {"topic": "_", "directory": old, "run_id": 0, "created_at": r.instant(NOW)}
    warehouse.make("topics_index")
    warehouse.commit("topics_index", [row])
    r.land(warehouse, [half(0, "_"), half(1, "__")], ops("COMMIT", 0, 1), NOW, KNOWN)
    assert r.run(warehouse, RULES, NOW, layout="per_topic").status == 0
    index = {row["topic"]: row["directory"] for row in warehouse.rows("topics_index")}
    assert index["_"] == old
    assert index["__"].startswith("topic.")
    for name in ("_", "__"):
        assert TopicTables.of(warehouse).rows(name).select("topic").collect() == [(name,)]


# ---- an interrupted run ----


STEPS: list[tuple[str, Any, str, bool] | tuple[str, Any, str, bool, int]] = [
    ("before the plan", Plan, "commit", False),
    ("after the plan", Plan, "commit", True),
    ("before any sink", write.Sinks, "write", False),
    ("between staging and the first table", staging, "_staged", True),
    ("before the first table", staging, "all_at_once", False),
    ("between two tables", DeltaLog, "commit_files", False, 4),  # after the run's opening, topics_index and one table
    ("after the messages", write, "write_messages", True),
    ("before the rejects", write.Sinks, "_write_rejects", False),
    ("before the close", finish, "write_closed", False),
    ("after the close", finish, "write_closed", True),
]
QUICK = [("between two tables", "few rows")]  # the others: tests/run -m slow
NOT_OF_FEW = ["between staging and the first table"]
RESULTS = ["decisions", "trans_check_max_time", "check_requests", "rejected", "topics_index", "topics/T", "topics/U"]


@pytest.fixture(scope="module")
def undisturbed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> KernelWarehouse:
    warehouse = KernelWarehouse(spark, str(tmp_path_factory.mktemp("undisturbed") / "w"))
    one_of_each(warehouse)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    return warehouse


@pytest.mark.parametrize(
    ("step", "way"),
    [
        pytest.param(step, way, id=f"{step[0]}, {way}", marks=[pytest.mark.slow] * ((step[0], way) not in QUICK))
        for step in STEPS
        for way in ("few rows", "by workers", "by Spark")
        if way != "few rows" or step[0] not in NOT_OF_FEW
    ],
)
def test_a_run_that_dies_is_finished_by_the_next_start(
    warehouse: KernelWarehouse,
    undisturbed: KernelWarehouse,
    monkeypatch: pytest.MonkeyPatch,
    step: tuple[str, Any, str, bool] | tuple[str, Any, str, bool, int],
    way: str,
) -> None:
    title, *where = step
    if way != "few rows":
        monkeypatch.setattr(reading, "FEW", BY_SPARK)
    if way == "by Spark":
        monkeypatch.setattr(staging, "written_by_workers", lambda *_: None)
    one_of_each(warehouse)
    with dying(monkeypatch, *where), pytest.raises(Killed):
        r.run(warehouse, RULES, NOW, layout="per_topic")
    summary = reconcile(warehouse, Request(r.settings(RULES, "per_topic"), r.instant(NOW)))
    found = last_run(warehouse)
    assert found is not None
    assert found[1], "closed"
    assert (summary.run_id, found[0].run_id) == (2, 2)
    assert any("finished run 1" in note for note in summary.notes) is (title != "after the close")
    same_first_run(warehouse, undisturbed)
    assert not list(Path(warehouse.path("_staging")).glob("*")), "what was staged is gone"


def same_first_run(warehouse: KernelWarehouse, expected: KernelWarehouse) -> None:
    for name in RESULTS:
        ours, theirs = (_first_run(each, name) for each in (warehouse, expected))
        assert_df_equality(ours, theirs, ignore_row_order=True, ignore_nullable=True)


def _first_run(warehouse: KernelWarehouse, name: str) -> DataFrame:
    rows = warehouse.read(name).where(F.col("run_id") == 1)
    return rows.drop("properties")  # a map cannot be ordered


def test_a_sink_that_fails_stops_no_other_and_is_made_up_for(
    warehouse: KernelWarehouse, undisturbed: KernelWarehouse
) -> None:
    one_of_each(warehouse)
    blocked = Path(warehouse.path("topics/U"))
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where the table's folder should be")
    request = Request(r.settings(RULES, "per_topic"), r.instant(NOW))
    summary = reconcile(warehouse, request)
    assert summary.status == 1
    assert list(summary.extra["failed_sinks"]) == ["topics/U"]
    assert summary.rows_written["topics"] == 2, "those of U are not written"
    assert warehouse.read("topics/T").count() == 2
    assert warehouse.read("check_requests").count() == 1
    blocked.unlink()
    again = reconcile(warehouse, request)
    assert (again.status, again.rows_written["topics"]) == (0, 1)
    same_first_run(warehouse, undisturbed)


def test_a_topic_whose_table_nobody_can_look_at_stops_no_other(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has a setting for its values, so each run looks at its table; it can be parked as any other."""

    def spec(self: KernelWarehouse, name: str) -> Any:
        if name == "topics/U":
            raise PermissionError("no look at topics/U")
        return look(self, name)

    value = ("topics.U.value.format=json", "topics.U.value.schema=a BIGINT")
    values = (*value, "topics.U.cluster_by=half_queue_offset", "topics.layout=per_topic")
    at = ("--now", str(NOW), *(each for given in values for each in ("--set", given)))
    r.land(warehouse, [half(20, "U")], ops("COMMIT", 20), NOW, KNOWN)
    assert _called(warehouse, capsys, *at)[0] == 0
    one_of_each(warehouse)
    look = KernelWarehouse.spec
    monkeypatch.setattr(KernelWarehouse, "spec", spec)
    status, told = _called(warehouse, capsys, *at)
    assert (status, [*told["failed_sinks"]], told["rows_written"]["topics"]) == (1, ["topics/U"], 2)
    assert _called(warehouse, capsys, *at, "--park-sink", "topics/U")[1]["owed"] == ["topics/U of run 2"]


@pytest.mark.slow
def test_messages_of_a_run_that_was_left_open_took_until_its_plan(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_of_each(warehouse)
    request = Request(r.settings(RULES), r.instant(NOW))
    with dying(monkeypatch, finish, "write_closed", False), pytest.raises(Killed):
        reconcile(warehouse, request)
    latency = reconcile(warehouse, request).extra["commit_latency"]
    assert latency["seconds"] / latency["messages"] < 3600, "it was planned at its instant, which is long ago"


@pytest.mark.slow
def test_a_parked_sink_is_owed_and_written_run_by_run(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one_of_each(warehouse)
    blocked = Path(warehouse.path("topics/U"))
    blocked.parent.mkdir(parents=True)
    blocked.write_text("a file where the table's folder should be")
    parked, asked = ("--park-sink", "topics/U"), ("--park-sink", "check_requests")
    at = ("--now", str(NOW), "--set", "rules.transaction_check_max=1")
    assert _called(warehouse, capsys, *at)[1]["failed_sinks"].keys() == {"topics/U"}
    status, told = _called(warehouse, capsys, *at, *parked, *asked)
    assert (status, told["owed"]) == (0, ["topics/U of run 1"]), "check_requests had been written"

    r.land(warehouse, [half(7, "U")], ops("COMMIT", 7), NOW, KNOWN)
    with dying(monkeypatch, finish, "write_closed", False), pytest.raises(Killed):
        _called(warehouse, capsys, *at, *parked)
    assert _called(warehouse, capsys, *at)[1]["failed_sinks"].keys() == {"topics/U"}, "tried before the open run"
    status, told = _called(warehouse, capsys, *at, *parked)
    assert (status, told["owed"]) == (0, ["topics/U of run 1", "topics/U of run 3"])

    blocked.unlink()
    status, told = _called(warehouse, capsys, *at)
    assert (status, told.get("owed")) == (0, None)
    assert [note for note in told["notes"] if "owed" in note] == [
        "wrote what run 1 owed: topics/U",
        "wrote what run 3 owed: topics/U",
    ]
    rows = warehouse.read("topics/U").orderBy("run_id").select("run_id", "half_queue_offset").collect()
    assert [tuple(row) for row in rows] == [(1, 1), (3, 7)]
    for wrong, near in (("topcs/U", "topics/TOPIC"), ("check_request", "check_requests"), ("topics/u", "topics/U")):
        status, told = _called(warehouse, capsys, "--park-sink", wrong)
        assert (status, f"the nearest known sink is {near}" in told["error"]) == (2, True), told


@pytest.mark.slow
def test_slices_of_a_backlog_carry_what_is_owed(warehouse: KernelWarehouse, capsys: pytest.CaptureFixture[str]) -> None:
    r.land(warehouse, [half(n, "U") for n in range(9)], ops("COMMIT", *range(9)), NOW, KNOWN)
    at = ("--now", str(NOW), "--max-rows", "3")
    status, told = _called(warehouse, capsys, *at, "--park-sink", "topics/U")
    assert (status, told["owed"]) == (0, [f"topics/U of run {run}" for run in (1, 2, 3)])
    assert "topics" not in told["rows_written"]
    assert examine(warehouse, r.settings(RULES), deep=True, repair=False).status == 0, "what is owed is not lost"
    assert _called(warehouse, capsys, *at)[0] == 0
    assert warehouse.read("topics/U").count() == 9


@pytest.mark.thorough
def test_slices_of_a_backlog_see_that_ops_share_a_key(warehouse: KernelWarehouse) -> None:
    both = [*op_rows(QUEUE, 7, "8", ["COMMIT"], NOW - 2_000), *op_rows(QUEUE, 7, "1", ["COMMIT"], NOW - 1_000)]
    r.land(warehouse, [half(n) for n in range(9)], both, NOW, KNOWN)
    summary = reconcile(warehouse, Request(r.settings(RULES), r.instant(NOW), max_rows=3))
    assert summary.decisions["COMMIT"] == {"PRODUCER": 1}, "not that of the second row, a rebuilt broker's"
    assert summary.extra["rejected"] == {"OP.KEY_REUSED": 1}
    assert summary.extra["open_messages"] == 8, "each counts once, though every slice carries it"
    spent = [row["seconds"]["plan"] for row in warehouse.rows("runs") if row["event"] == "CLOSED"]
    assert sum(spent) == pytest.approx(summary.seconds["plan"]), "each run records its own"


@pytest.mark.slow
def test_a_dry_run_shows_the_rest_of_a_sliced_backlog(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    r.land(warehouse, [half(n) for n in range(9)], ops("COMMIT", *range(9)), NOW, KNOWN)
    request = Request(r.settings(RULES), r.instant(NOW), max_rows=3)
    with dying(monkeypatch, finish, "write_closed", True), pytest.raises(Killed):
        reconcile(warehouse, request)
    begun = warehouse.read("decisions").where("decision = 'COMMIT'").count()
    assert preview(warehouse, request)[0].decisions == {"COMMIT": {"PRODUCER": 9 - begun}}
    monkeypatch.setattr("halfop.runs.reconcile.VERSION", "9")
    reconcile(warehouse, request)
    versions = {row["run_id"]: row["rules_version"] for row in warehouse.rows("runs") if row["event"] == "CLOSED"}
    assert [versions[run_id] == "9" for run_id in (1, 2, 3)] == [False, True, True]


@pytest.mark.thorough
def test_runs_that_only_spark_may_write(warehouse: KernelWarehouse) -> None:
    """A user's constraint is checked by Spark alone, so it writes the table, each record once."""
    r.land(warehouse, [half(0), half(1)], ops("COMMIT", 0), NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    warehouse.spark.sql(f"ALTER TABLE delta.`{warehouse.path('runs')}` ADD CONSTRAINT known CHECK (run_id > 0)")
    assert not warehouse.takes_files("runs")
    r.land(warehouse, [], ops("COMMIT", 1), NOW, KNOWN)
    assert r.run(warehouse, RULES, NOW + 1000).decisions == {"COMMIT": {"PRODUCER": 1}}
    assert sorted(row["run_id"] for row in warehouse.rows("runs")) == [1, 1, 2, 2]


def altered(warehouse: KernelWarehouse, name: str, *changes: str) -> None:
    for change in changes:
        warehouse.spark.sql(f"ALTER TABLE delta.`{warehouse.path(name)}` {change}")


def data_files(warehouse: KernelWarehouse, name: str) -> set[str]:
    return {path.name for path in Path(warehouse.path(name)).glob("*.parquet")}


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["few rows", "by workers", "by Spark"])
def test_tables_of_messages_that_only_spark_may_write(
    warehouse: KernelWarehouse, undisturbed: KernelWarehouse, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A user has given them constraints. A row that breaks one fails its own table alone, until the user drops it."""
    if way != "few rows":
        monkeypatch.setattr(reading, "FEW", BY_SPARK)
        monkeypatch.setattr(staging, "FEW", BY_SPARK)
    if way == "by Spark":
        monkeypatch.setattr(staging, "written_by_workers", lambda *_: None)
    for name, kept in (("topics/T", "true"), ("check_requests", "true"), ("topics/U", "queue_id IS NULL")):
        warehouse.log.create(warehouse.path(name), spec_of(name))
        altered(warehouse, name, f"ADD CONSTRAINT theirs CHECK ({kept} OR run_id < 0)")
    one_of_each(warehouse)
    request = Request(r.settings(RULES, "per_topic"), r.instant(NOW))
    summary = reconcile(warehouse, request)
    assert (summary.status, [*summary.extra["failed_sinks"]]) == (1, ["topics/U"])
    assert "theirs" in summary.extra["failed_sinks"]["topics/U"]
    altered(warehouse, "topics/U", "DROP CONSTRAINT theirs")
    assert reconcile(warehouse, request).status == 0
    same_first_run(warehouse, undisturbed)
    for name in ("topics/T", "check_requests"):
        listed = {Path(file.path).name for file in warehouse.listed(name)}
        assert data_files(warehouse, name) == listed, "no second copy of a body lies there"


@pytest.mark.thorough
def test_a_dropped_column_comes_back_with_its_values(warehouse: KernelWarehouse) -> None:
    """In the files of a table with column mapping it has another name than before."""
    r.land(warehouse, [half(0)], ops("COMMIT", 0), NOW, KNOWN)
    r.run(warehouse, RULES, NOW, layout="per_topic")
    mapped = "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', "
    altered(warehouse, "topics/T", f"{mapped} 'delta.minWriterVersion' = '5')", "DROP COLUMN transaction_id")
    r.land(warehouse, [half(1)], ops("COMMIT", 1), NOW, KNOWN)
    assert r.run(warehouse, RULES, NOW + 1000, layout="per_topic").status == 0
    rows = warehouse.spark.read.format("delta").load(warehouse.path("topics/T")).orderBy("half_queue_offset")
    assert [tuple(row) for row in rows.select("half_queue_offset", "transaction_id").collect()] == [
        (0, None),
        (1, half(1).uniq_key),
    ]


@pytest.mark.thorough
def test_what_dead_drivers_staged_is_cleared(warehouse: KernelWarehouse) -> None:
    one_of_each(warehouse)
    left = Path(warehouse.path("_staging/run-0-0123abc"))
    left.mkdir(parents=True)
    r.run(warehouse, RULES, NOW)
    assert not left.exists()


def one_piece(rows: pa.RecordBatch, form: Form, about: About) -> dict[str, pa.Array]:
    (piece,) = in_pieces(rows, form, about)
    return projected(piece, form, about)


@pytest.mark.usefixtures("spark")
def test_each_tables_columns_are_all_written() -> None:
    kinds = {f.name: f.type for name in ("decisions", "half_messages") for f in arrow_schema(table(name).struct)}
    names = sorted({*HALF, *(column for columns in PAYLOAD.values() for column in columns)})
    none = pa.RecordBatch.from_pylist([], schema=pa.schema([(name, kinds[name]) for name in names]))
    columns = {decision: sorted(one_piece(none, Form(decision), About(1, 2, True, {}, False))) for decision in PAYLOAD}
    tables = {"COMMIT": "real_topic", "DISCARD": "trans_check_max_time", "CHECK": "check_requests"}
    assert columns == {decision: sorted(table(name).names) for decision, name in tables.items()}
    assert table("real_topics").names == table("real_topic").names


@pytest.mark.usefixtures("spark")
def test_a_message_without_a_key_is_asked_about_by_its_offset_message_id() -> None:
    kinds = {f.name: f.type for name in ("decisions", "half_messages") for f in arrow_schema(table(name).struct)}
    cells = [{"uniq_key": key, "offset_msg_id": "0A", "broker_name": "b"} for key in (None, "", "k")]
    schema = pa.schema([(name, kinds[name]) for name in sorted({*HALF, *PAYLOAD["CHECK"]})])
    rows = one_piece(pa.RecordBatch.from_pylist(cells, schema=schema), Form("CHECK"), About(1, 2, False, {}, False))
    assert rows["msg_id"].to_pylist() == ["0A", "0A", "k"]


def test_a_body_that_is_gone_fails_the_run(warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    one_of_each(warehouse)
    with dying(monkeypatch, write.Sinks, "write", False), pytest.raises(Killed):
        r.run(warehouse, RULES, NOW)
    real = KernelWarehouse.found

    def without_one(
        self: KernelWarehouse, name: str, version: int | None = None, where: Where | None = None
    ) -> FoundRows:
        found = real(self, name, version, where)
        if name != "half_messages":
            return found
        return found._replace(rows=found.rows.filter(pc.not_equal(found.rows["queue_offset"], 1)))

    monkeypatch.setattr(KernelWarehouse, "found", without_one)
    summary = reconcile(warehouse, Request(r.settings(RULES), r.instant(NOW)))
    assert summary.status == 1
    assert "must get 3 messages, but half_messages has 2" in summary.extra["failed_sinks"]["real_topics"]
    assert warehouse.version("real_topics") == -1
    found = last_run(warehouse)
    assert found is not None
    assert not found[1], "still open"


def test_a_run_whose_end_is_lost_is_refused(warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be finished again and again: its marker says that the row of its end has been written."""

    def marker_alone(warehouse: KernelWarehouse, run: Run, *_: object) -> None:
        warehouse.commit_files("runs", [], Marker(CLOSE_APP, run.run_id))

    r.land(warehouse, [half(0)], [], NOW, KNOWN)
    monkeypatch.setattr(finish, "write_closed", marker_alone)
    for now in (NOW, NOW + 1):
        with pytest.raises(LostRows, match=r"runs has lost what run 1 wrote.*`examine --repair`"):
            r.run(warehouse, RULES, now)
    monkeypatch.undo()
    looked = examine(warehouse, r.settings(RULES), deep=False, repair=False)
    assert (looked.status, looked.extra["remains"]) == (3, ["runs lacks how run 1 ended"])
    assert examine(warehouse, r.settings(RULES), deep=False, repair=True).status == 0
    assert r.run(warehouse, RULES, NOW + 1).status == 0


def test_runs_that_were_removed_are_refused_before_another_opens(warehouse: KernelWarehouse) -> None:
    """A new run 1 would be green, and decide nothing: its decisions would be those that are there."""
    r.land(warehouse, [half(0), half(1)], ops("COMMIT", 0), NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    shutil.rmtree(Path(warehouse.root, "runs"))
    for _ in range(2):
        with pytest.raises(LostRows, match=r"runs has lost what run 1 wrote.*`examine --repair`"):
            r.run(warehouse, RULES, NOW + 1)
    looked = examine(warehouse, r.settings(RULES), deep=False, repair=False)
    assert (looked.status, looked.extra["remains"]) == (3, ["runs lacks run 1"])
    assert examine(warehouse, r.settings(RULES), deep=False, repair=True).status == 0
    r.land(warehouse, [], ops("COMMIT", 1), NOW + 2, {QUEUE: NOW + 2})
    assert r.run(warehouse, RULES, NOW + 2).status == 0
    assert [(d.key[2], d.decision) for d in r.decisions(warehouse, 2)] == [(1, "COMMIT")]
    assert sorted(row["half_queue_offset"] for row in warehouse.read("real_topics").collect()) == [0, 1]


def test_a_marker_of_a_run_that_decided_nothing_for_a_table(warehouse: KernelWarehouse) -> None:
    """So `examine --repair` leaves one if `decisions` has lost what the table has: the message is decided again."""
    r.land(warehouse, [half(0)], [], NOW, KNOWN)
    r.run(warehouse, RULES, NOW)
    warehouse.make("real_topics")
    warehouse.commit_files("real_topics", [], Marker(app_of("real_topics"), 1))
    r.land(warehouse, [], ops("COMMIT", 0), NOW + 1, {QUEUE: NOW + 1})
    r.run(warehouse, RULES, NOW + 1)
    assert warehouse.read("real_topics").count() == 1


# ---- dry run, exit status ----


def test_a_dry_run_tells_what_a_run_would_decide_and_writes_nothing(warehouse: KernelWarehouse) -> None:
    one_of_each(warehouse)
    before = sorted(str(path) for path in Path(warehouse.root).rglob("*"))
    summary, sample = preview(warehouse, Request(r.settings(RULES), r.instant(NOW)))
    assert sorted(str(path) for path in Path(warehouse.root).rglob("*")) == before
    assert summary.decisions == r.run(warehouse, RULES, NOW).decisions
    assert {row["decision"] for row in sample} == set(summary.decisions) - {"WAIT"}


@pytest.mark.thorough
def test_a_dry_run_counts_rejects(warehouse: KernelWarehouse) -> None:
    one_of_each(warehouse)
    told = preview(warehouse, Request(r.settings(RULES), r.instant(NOW)))[0].extra["rejected"]
    assert told == r.run(warehouse, RULES, NOW).extra["rejected"]
    assert sum(told.values()) > 1


@pytest.mark.thorough
def test_a_dry_run_of_an_open_run_goes_by_what_that_has_recorded(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_of_each(warehouse)
    with dying(monkeypatch, finish, "planned", False), pytest.raises(Killed):
        r.run(warehouse, RULES, NOW)
    with pytest.raises(UsageError, match=r"--now .*: run 1, which is open, comes first"):
        preview(warehouse, Request(r.settings(RULES), r.instant(NOW + 1)))
    others = replace(RULES, check_max=0, file_reserved_time=1)
    summary, _ = preview(warehouse, Request(r.settings(others), r.instant(NOW)))
    assert "given now (rules.file_reserved_time, rules.transaction_check_max)" in summary.notes[0]
    same = preview(warehouse, Request(r.settings(RULES)))[0]
    assert (same.decisions, same.notes) == (summary.decisions, ["dry run: nothing was written"])


@pytest.mark.thorough
@pytest.mark.usefixtures("logging_as_before")
def test_a_failed_run_says_which_it_is_and_what_it_has_decided(
    warehouse: KernelWarehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one_of_each(warehouse)

    def no_space(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(finish, "write_closed", no_space)
    status, told = _called(warehouse, capsys, "--now", str(NOW))
    assert (status, told["run_id"], told["job"]) == (1, 1, "reconcile")
    assert "no space left" in told["error"]
    assert told["decisions"]["COMMIT"] == {"PRODUCER": told["rows_written"]["topics"]}


def _called(
    warehouse: KernelWarehouse, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, dict[str, Any]]:
    status = main(job_of("reconcile"), ["--warehouse", warehouse.root, *options])
    return status, json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.usefixtures("logging_as_before")
def test_exit_statuses(warehouse: KernelWarehouse, capsys: pytest.CaptureFixture[str]) -> None:
    status, told = _called(warehouse, capsys)
    assert (status, "nothing has landed" in told["notes"][0]) == (0, True)
    one_of_each(warehouse)
    at = ["--now", str(NOW)]
    assert _called(warehouse, capsys, "--dry-run", *at)[0] == 0
    assert _called(warehouse, capsys, "--dry-run", "--fail-on", "conflicts", *at)[0] == 5
    assert _called(warehouse, capsys, "--dry-run", "--fail-on", "rejects=99%", *at)[0] == 0
    assert _called(warehouse, capsys, "--verify", "1", "--fail-on", "conflicts")[0] == 2
    status, told = _called(warehouse, capsys, "--fail-on", "conflicts", *at)
    assert (status, told["rejected"]["OP.CONFLICT"]) == (5, 1)
    assert _called(warehouse, capsys, "--fail-on", "conflicts", *at)[0] == 0, "told once"
    assert _called(warehouse, capsys, "--fail-on", "rejects=1 %", *at)[0] == 2
    status, told = _called(warehouse, capsys, "--now", str(NOW - 1))
    assert (status, "time never goes back" in told["error"]) == (2, True)
    status, told = _called(warehouse, capsys, "--now", "9999-01-01")
    assert (status, "--allow-future" in told["error"]) == (2, True)


@pytest.mark.thorough
def test_each_reason_of_a_reject_is_told_with_its_number_an_example_and_what_is_allowed(
    warehouse: KernelWarehouse, caplog: pytest.LogCaptureFixture
) -> None:
    """A new user's topics: a warning a reason and run, whatever the number of rows."""
    topics = ["支付-Topic", "user_events.v1", "支付-Topic", "T"]
    r.land(warehouse, [half(n, topic) for n, topic in enumerate(topics)], ops("COMMIT", 0, 3), NOW, {QUEUE: NOW})
    with caplog.at_level(logging.WARNING, "halfop.reconcile"):
        summary = r.run(warehouse, RULES, NOW)
    assert summary.extra["rejected"] == {"HALF.BAD_REAL_TOPIC": 3, "OP.HALF_REJECTED": 1}
    topic, op = caplog.messages
    assert topic.startswith("run 1 rejected 3 rows as HALF.BAD_REAL_TOPIC (no or illegal REAL_TOPIC)")
    assert "; one of them: b/0/0: uniq_key " in topic
    assert (
        "real topic 支付-Topic. A topic has 1 to 127 characters: letters a to z and A to Z, digits, _ - % and |"
        in topic
    )
    assert op.startswith("run 1 rejected 1 row as OP.HALF_REJECTED (")
    caplog.clear()
    r.run(warehouse, RULES, NOW + 1)
    assert not caplog.messages, "told once"


# ---- files that are not read ----


@pytest.mark.slow
def test_an_incremental_run_opens_no_file_of_earlier_decisions(warehouse: KernelWarehouse) -> None:
    spark = warehouse.spark
    spark.conf.set("spark.databricks.delta.stats.skipping", "true")
    try:
        looked_back = []
        for n in range(3):
            first = n * 10
            r.land(
                warehouse,
                [half(o) for o in range(first, first + 10)],
                ops("COMMIT", *range(first, first + 10)),
                NOW,
                KNOWN,
            )
            looked_back.append(r.run(warehouse, RULES, NOW).extra["files_looked_back_into"])
        assert all(n == 0 for looked in looked_back for n in looked.values()), looked_back
        r.land(warehouse, [], ops("ROLLBACK", 5), NOW, KNOWN)
        assert r.run(warehouse, RULES, NOW).extra["files_looked_back_into"] == {"decisions": 1}
        assert warehouse.read("rejected").where("reason = 'CONFLICT'").count() == 1
    finally:
        spark.conf.set("spark.databricks.delta.stats.skipping", "false")
