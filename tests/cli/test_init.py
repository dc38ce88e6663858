"""A project folder: its settings can be read, its sample lands, its schedule is one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from halfop.frame.cli import main
from halfop.jobs.init import JOB
from halfop.settings.load import load_settings
from support.json_lines import half, lines, op
from support.places import ROOT


@pytest.mark.parametrize("schedule", ["cron", "airflow"])
def test_a_project_names_its_own_tables_and_commands(
    tmp_path: Path, schedule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a b$" / "我的😀"
    assert main(JOB, [str(folder), "--schedule", schedule]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert json.loads(shown[-1])["path"] == str(folder)
    assert load_settings(folder / "halfop.yaml", environ={}).warehouse_root == str(folder / "warehouse")
    assert f"cd '{folder}'\n" in (folder / "README.md").read_text()
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    of_schedule = {"cron": {"crontab"}, "airflow": {"variables.json", "dags/halfop.py"}}[schedule]
    assert files == {"halfop.yaml", "README.md", "sample/halves.jsonl", "sample/ops.jsonl"} | of_schedule
    assert {*shown[:-2]} == {str(folder / name) for name in files}


def test_the_checkout_s_own_warehouse_is_not_the_project_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "halfop.yaml").write_text("rules: {ask: true}\nwarehouse: /data/production\n")
    monkeypatch.setenv("HALFOP_HOME", str(tmp_path))
    assert main(JOB, [str(tmp_path / "project")]) == 0
    made = load_settings(tmp_path / "project" / "halfop.yaml", environ={})
    assert (made.warehouse_root, made.rules.ask) == (str(tmp_path / "project" / "warehouse"), True)
    calls = [line for line in (tmp_path / "project" / "README.md").read_text().splitlines() if " --config " in line]
    assert len(calls) == 4
    assert all("--warehouse warehouse" in line for line in calls), "whatever HALFOP_WAREHOUSE is"


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(JOB, [str(tmp_path)]) == 0
    (tmp_path / "halfop.yaml").write_text("mine")
    assert main(JOB, [str(tmp_path), "--schedule", "airflow"]) == 2
    assert "has halfop.yaml, sample/halves.jsonl, sample/ops.jsonl, README.md already" in capsys.readouterr().err
    assert ((tmp_path / "halfop.yaml").read_text(), (tmp_path / "dags").exists()) == ("mine", False)


def test_a_folder_that_cron_cannot_name_is_refused(tmp_path: Path) -> None:
    assert main(JOB, [str(tmp_path / "a\nb")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(JOB, [str(tmp_path / "file" / "project")]) == 2
    assert "cannot be written: Not a directory; name another folder" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_streams_that_the_caller_has_closed_stop_no_job(tmp_path: Path, closed: str) -> None:
    code = 'exec "$0" -c "from halfop.command import run; run()" init "$1" ' + closed
    command = ["bash", "-c", code, sys.executable, str(tmp_path / "project")]
    environ = {"PYTHONPATH": str(ROOT / "lib")}
    told = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
    assert (tmp_path / "project" / "halfop.yaml").is_file()


def test_airflow_takes_the_variable(tmp_path: Path) -> None:
    assert main(JOB, [str(tmp_path), "--schedule", "airflow"]) == 0
    given = json.loads((tmp_path / "variables.json").read_text())["halfop"]
    assert given["home"] == str(ROOT)
    assert given["options"] == ["--config", str(tmp_path / "halfop.yaml")]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock")
def test_crons_line_says_what_failed_and_nothing_else(tmp_path: Path) -> None:
    project = tmp_path / "a 100% project"
    assert main(JOB, [str(project)]) == 0
    schedule = next(line for line in (project / "crontab").read_text().splitlines() if line.startswith("*/5"))
    halves = lines(tmp_path / "h.jsonl", half(1))
    ops = lines(tmp_path / "o.jsonl", op(1, "1"), op(2, "1", outcome="ROLLBACK"))
    line = schedule.split(maxsplit=5)[5].replace(r"\%", "%")  # as cron gives it to the shell
    line = line.replace("follow broker --namesrv 127.0.0.1:9876", f"follow files --half {halves} --op {ops}")
    told = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False, timeout=600)
    first, *log = told.stdout.splitlines()
    assert (first, told.stderr) == ("halfop follow: status 5", "")
    assert '"rejected": {"OP.CONFLICT": 1}' in log[-1]
    assert (project / "warehouse" / "decisions").is_dir()
