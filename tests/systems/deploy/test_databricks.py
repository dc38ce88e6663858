"""deploy/databricks: the bundle's wheel, built as the bundle builds it, and its task in a session of Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import rmtree

import pytest
import yaml
from support.json_lines import half, lines, op
from support.places import ROOT

from systems.connect.local_server import local_server

BUNDLE = ROOT / "deploy" / "databricks"
pytestmark = [pytest.mark.deploy, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the wheel brings, and nothing else."""
    folder = tmp_path_factory.mktemp("bundle")
    pip = [sys.executable, "-m", "pip"]
    offline = ["-q", "--no-deps", "--no-index"]
    try:
        build = [*pip, "wheel", *offline, "--no-build-isolation", "-w", str(folder), str(BUNDLE)]
        subprocess.run(build, check=True, timeout=300)
    finally:
        for made in (BUNDLE / "build", BUNDLE / "halfop_databricks.egg-info"):
            rmtree(made, ignore_errors=True)
    (wheel,) = folder.glob("*.whl")
    install = [*pip, "install", *offline, "--target", str(folder / "there"), str(wheel)]
    subprocess.run(install, check=True, timeout=300)
    return folder / "there"


def test_the_wheel_brings_no_spark(installed: Path) -> None:
    (metadata,) = installed.glob("*.dist-info/METADATA")
    needed = [line.split()[1] for line in metadata.read_text().splitlines() if line.startswith("Requires-Dist: ")]
    assert [each for each in needed if "spark" in each] == []
    assert any(each.startswith("pyarrow") for each in needed)


def test_the_task_reconciles_audits_and_reports(installed: Path, tmp_path: Path) -> None:
    half_file, op_file = lines(tmp_path / "h.jsonl", half(1), half(2)), lines(tmp_path / "o.jsonl", op(1))
    land = ["land", "files", "--half", half_file, "--op", op_file]
    warehouse = str(tmp_path / "warehouse")
    launcher = str(ROOT / "spark-submit.sh")
    subprocess.run([launcher, *land, "--warehouse", warehouse], check=True, timeout=600)
    jobs = yaml.safe_load((BUNDLE / "databricks.yml").read_text())["resources"]["jobs"]
    task = jobs["halfop_serverless"]["tasks"][0]["python_wheel_task"]
    known = {"${var.warehouse}": warehouse, "report=${var.report}": f"report={tmp_path}/report.html"}
    words = [known.get(word, word) for word in task["parameters"]]
    words += ["--set", "run.max_rows=100000", "--set", "disk.sync=false"]
    with local_server(tmp_path) as server:
        server.call("reconcile", "--help")  # installs what a client needs
        path = f"{installed}:{ROOT / '.halfop/connect'}"
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "HALFOP"))}
        call = f"import {task['package_name']} as task; task.{task['entry_point']}()"
        done = subprocess.run(
            [sys.executable, "-c", call, *words],
            env=environ | {"PYTHONPATH": path, "SPARK_REMOTE": server.address},
            capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    ended = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"job"')]
    assert [each["job"] for each in ended] == ["reconcile", "audit", "report"]
    assert ended[0]["decisions"]["COMMIT"] == {"PRODUCER": 1}
    assert (tmp_path / "report.html").is_file()
