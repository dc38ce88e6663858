"""Lineage as OpenLineage's own client sends it: every table and file that a call has read and written."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from halfop.frame import openlineage
from halfop.frame.cli import main
from halfop.frame.errors import UsageError
from halfop.frame.openlineage import EndedCall, Lineage, Parent, Touched, named
from halfop.frame.summary import Summary
from halfop.jobs.follow import JOB as FOLLOW
from halfop.jobs.land import JOB as LAND
from halfop.jobs.reconcile import JOB as RECONCILE
from support.json_lines import half, lines, op


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """One message that was committed, and one to ask about, with their op."""
    folder = tmp_path_factory.mktemp("files")
    halves, ops = lines(folder / "half.jsonl", half(1), half(2)), lines(folder / "op.jsonl", op(1, "1"))
    return ["--half", halves, "--op", ops, "--known-until", "2025-06-15T16:00:00Z"]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file that the client is configured to write to."""
    file = tmp_path / "lineage.jsonl"
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(file))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "orders")
    return file


def told(events: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in events.read_text().splitlines()] if events.exists() else []


def names(datasets: list[dict[str, Any]], below: Path) -> set[str]:
    return {str(Path(each["name"]).relative_to(below)) for each in datasets}


def test_landings_and_runs(spark: object, files: list[str], events: Path, tmp_path: Path) -> None:
    warehouse = ["--warehouse", str(tmp_path / "w")]
    assert main(LAND, ["files", *files, *warehouse]) == 0
    begun, landed = told(events)
    assert (begun["eventType"], landed["eventType"]) == ("START", "COMPLETE")
    assert begun["run"]["runId"] == landed["run"]["runId"]
    assert begun["eventTime"] < landed["eventTime"]
    assert landed["job"]["namespace"] == "orders"
    assert landed["job"]["name"] == "land_files"
    assert {each["namespace"] for each in landed["inputs"] + landed["outputs"]} == {"file"}
    read = {each["name"] for each in landed["inputs"] if not each["name"].startswith(str(tmp_path))}
    assert read == {files[1], files[3]}
    written = {"half_messages", "op_messages", "landing_progress", "landed_files"}
    assert names(landed["outputs"], tmp_path / "w") == written

    assert main(RECONCILE, warehouse) == 0
    ran = told(events)[-1]
    assert ran["job"]["name"] == "reconcile"
    assert ran["run"]["facets"]["tags"]["tags"][0] == {"key": "halfop.run_id", "value": "1", "source": "HALFOP"}
    assert names(ran["inputs"], tmp_path / "w") >= {"half_messages", "op_messages", "landing_progress", "decisions"}
    outputs = names(ran["outputs"], tmp_path / "w")
    assert outputs >= {"runs", "decisions", "check_requests", "topics_index"}
    assert any(name.startswith("topics/") for name in outputs)
    (decisions,) = (each for each in ran["outputs"] if each["name"].endswith("/decisions"))
    fields = {each["name"]: each for each in decisions["facets"]["schema"]["fields"]}
    assert fields["queue_offset"]["type"] == "bigint" or fields["queue_offset"]["type"] == "BIGINT"
    assert fields["decision"]["description"]
    assert decisions["outputFacets"]["outputStatistics"]["rowCount"] > 0


def test_steps_of_follow_are_told_apart(spark: object, files: list[str], events: Path, tmp_path: Path) -> None:
    assert main(FOLLOW, ["files", *files, "--once", "--warehouse", str(tmp_path / "w")]) == 0
    ended = [each for each in told(events) if each["eventType"] == "COMPLETE"]
    assert [each["job"]["name"] for each in ended] == ["land_files", "reconcile"]
    assert "decisions" not in names(ended[0]["outputs"], tmp_path / "w")


def test_a_call_that_fails_says_why(spark: object, events: Path, tmp_path: Path) -> None:
    assert main(LAND, ["files", "--half", str(tmp_path / "none.jsonl"), "--warehouse", str(tmp_path / "w")]) == 3
    failed = told(events)[-1]
    assert failed["eventType"] == "FAIL"
    assert "none.jsonl" in failed["run"]["facets"]["errorMessage"]["message"]


@pytest.mark.thorough
def test_who_cannot_be_told_costs_no_work(
    spark: object,
    files: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY", '{"total": 0}')
    with caplog.at_level(logging.WARNING):
        assert main(LAND, ["files", *files, "--warehouse", str(tmp_path / "w")]) == 0
    assert "no lineage is sent" in caplog.text
    assert not [name for name in os.environ if name.startswith("OPENLINEAGE__TRANSPORT__TRANSPORTS")], "left there"


@pytest.mark.parametrize("kind", ["nosuch", "http"])
def test_a_wrong_configuration_costs_no_work(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", kind)
    told = openlineage.lineage(os.environ).of_call("land", lambda: Summary("land", status=1))
    assert told.status == 1
    assert "no lineage is sent" in caplog.text


def test_without_the_client_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    silent = openlineage.lineage({"OPENLINEAGE_URL": "http://marquez:5000"})
    assert silent.of_call("land", lambda: Summary("land", status=1)).status == 1
    assert "pip install openlineage-python" in caplog.text


@pytest.mark.parametrize("environ", [{}, {"OPENLINEAGE_URL": "http://marquez:5000", "OPENLINEAGE_DISABLED": "true"}])
def test_nothing_is_told_unless_asked_for(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not openlineage._wanted(environ)
    (tmp_path / "openlineage.yml").write_text("transport:\n  type: console\n")
    assert openlineage._wanted(environ) == (not environ)


def test_a_call_that_wrote_nothing_is_not_told() -> None:
    calls: list[EndedCall] = []
    run = "0190f5b5-6c5f-7cc4-9f3a-1f0b6c1d2e3f"
    mine = Lineage(calls.append, openlineage._parent({"OPENLINEAGE_PARENT_ID": f"airflow/dag.task/of/{run}\n"}))
    mine.touched.read["file:/w/runs"] = 3
    mine.of_call("reconcile", lambda: Summary("reconcile"))
    assert not calls
    mine.of_call("reconcile", lambda: Summary("reconcile", status=1))
    assert calls[0].touched == Touched(), "what an earlier call has read is not this one's"
    assert calls[0].parent == Parent("airflow", "dag.task/of", run)


@pytest.mark.parametrize(
    ("uri", "name"),
    [
        ("file:/data/w/runs", ("file", "/data/w/runs")),
        ("/data/in.jsonl", ("file", "/data/in.jsonl")),
        ("/data/a#b/w?/runs", ("file", "/data/a#b/w?/runs")),
        ("s3a://bucket/a#b/runs", ("s3://bucket", "a#b/runs")),
        ("s3a://bucket/w/runs/", ("s3://bucket", "w/runs")),
        ("hdfs://namenode:8020/w/runs", ("hdfs://namenode:8020", "/w/runs")),
        ("abfss://c@account.dfs.core.windows.net/w", ("abfss://c@account.dfs.core.windows.net", "/w")),
        ("rocketmq://10.0.0.1:10911/TOPIC", ("rocketmq://10.0.0.1:10911", "TOPIC")),
    ],
)
def test_names_follow_openlineage_s_rules(uri: str, name: tuple[str, str]) -> None:
    assert named(uri) == name


@pytest.mark.parametrize("given", ["airflow/dag.task/manual__2026-11-26", "{{ macros.lineage }}", "x"])
def test_a_parent_that_is_none_costs_no_work(
    given: str, events: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", given)
    openlineage.lineage(os.environ).of_call("land", lambda: Summary("land", status=1))
    assert "is sent without a parent" in caplog.text
    assert [each["eventType"] for each in told(events)] == ["START", "FAIL"]


def test_whatever_goes_wrong_in_telling_hides_no_error(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Summary:
        raise UsageError("the work's own")

    mine = openlineage.lineage(os.environ)
    monkeypatch.setattr(openlineage, "named", lambda _: 1 / 0)
    mine.touched.read["/w"] = None
    with pytest.raises(UsageError, match="the work's own"):
        mine.of_call("land", fail)


def test_a_folder_that_may_not_be_looked_into_names_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "stat", denied)
    assert not openlineage._wanted({})
