"""The entry script itself: from any directory, through a link, with spaces in paths, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from support.places import ROOT

pytestmark = pytest.mark.process

SCRIPT = ROOT / "spark-submit.sh"


def called(
    *arguments: str, script: Path = SCRIPT, cwd: Path | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(script), *arguments],
        cwd=cwd,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture
def link(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder"
    folder.mkdir()
    path = folder / "halfop link"
    path.symlink_to(SCRIPT)
    return path


def test_help_names_every_job(link: Path, tmp_path: Path) -> None:
    told = called("--help", script=link, cwd=tmp_path)
    assert told.returncode == 0
    for job in (SCRIPT.parent / "jobs").glob("[!_]*.py"):
        assert f"\n  {job.stem} " in told.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "which job?"),
        (["nosuch"], "no job 'nosuch'\njobs:\n  audit "),
        (["reconcil"], "no job 'reconcil'; did you mean reconcile?\n"),
        (["stup", "--dev"], "no job 'stup'; did you mean setup?\n"),
        (["../jobs/land"], "no job '../jobs/land'"),
        (["--nosuch", "x", "reconcile"], "no option --nosuch"),
        (["--conf"], "--conf needs a value"),
    ],
)
def test_what_cannot_run_is_status_2_and_says_why(arguments: list[str], why: str) -> None:
    told = called(*arguments)
    assert (told.returncode, told.stdout) == (2, "")
    assert why in told.stderr


def test_a_job_runs_through_spark_submit_and_ends_with_its_summary(link: Path, tmp_path: Path) -> None:
    """From a caller without a locale, as cron is, too."""
    warehouse, metrics = tmp_path / "订单 ware house", tmp_path / "metrics"
    metrics.mkdir()
    job = ["reconcile", "--warehouse", str(warehouse), "--set", f"metrics.folder={metrics}"]
    told = called("--conf", "spark.ui.enabled=false", *job, script=link, cwd=tmp_path, LC_ALL="C")
    assert told.returncode == 0, told.stderr
    summary = json.loads(told.stdout.splitlines()[-1])
    assert (summary["job"], summary["status"]) == ("reconcile", 0)
    assert "nothing has landed" in summary["notes"][0]
    assert (warehouse / ".run.lock").is_file()
    assert not list(warehouse.glob("[!.]*")), "an empty warehouse stays empty"
    text = (metrics / "halfop_reconcile.prom").read_text()
    assert 'halfop_exit_status{command="reconcile",name="halfop"} 0.0\n' in text


def test_a_jobs_error_is_its_exit_status_and_a_relative_path_is_of_the_callers_folder(
    link: Path, tmp_path: Path
) -> None:
    (tmp_path / "orders.jsonl").touch()
    planned = ("end", "--where", "true", "--rollback", "--plan", "orders.jsonl")
    told = called(*planned, "--warehouse", str(tmp_path / "w"), script=link, cwd=tmp_path)
    assert told.returncode == 2
    assert "--plan orders.jsonl: there is a file already" in told.stderr
    assert json.loads(told.stdout.splitlines()[-1])["status"] == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_summary_that_a_full_disk_refuses_is_status_1(tmp_path: Path) -> None:
    command = [str(SCRIPT), "reconcile", "--warehouse", str(tmp_path / "w")]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert done.stderr.startswith("halfop reconcile: /dev/stdout: the disk is full. Make room on it, ")


def test_the_tests_say_how_they_are_called() -> None:
    told = subprocess.run(
        [str(ROOT / "tests" / "run"), "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    marks = set(re.findall(r"^    \"(\w+): .*tests/run -m \1", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    assert told.returncode == 0
    assert told.stdout.startswith("usage: tests/run")
    assert {line.split(":")[0].strip() for line in told.stdout.splitlines()} >= marks > {"slow", "browser"}


@pytest.mark.parametrize(("only", "status"), [("rocketmq/test_numbers.py", 0), ("test_nosuch.py", 4)])
def test_the_quick_tests_say_how_long_they_took(only: str, status: int) -> None:
    """However quiet pytest is, and with pytest's own exit status."""
    command = [str(SCRIPT.parent / "tests" / "quick"), "-n", "0", "-q", "-q", f"tests/{only}"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert told.returncode == status, told.stdout + told.stderr
    assert re.fullmatch(rf"tests/quick: \d+ s, status {status}", told.stderr.splitlines()[-1])
