"""deploy/: systemd takes the units, and cron's line does what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.json_lines import half, lines, op
from support.places import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
HERE = str(ROOT)


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        text = unit.read_text().replace("/opt/halfop", HERE).replace("User=halfop", "User=root")
        (tmp_path / unit.name).write_text(text)
    verify = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / unit.name) for unit in UNITS)]
    told = subprocess.run(verify, capture_output=True, text=True, check=False, timeout=60)
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock")
def test_crons_line_says_what_failed_and_nothing_else(tmp_path: Path) -> None:
    schedule = next(line for line in (DEPLOY / "crontab").read_text().splitlines() if line.startswith("*/5"))
    halves = lines(tmp_path / "h.jsonl", half(1))
    ops = lines(tmp_path / "o.jsonl", op(1, "1"), op(2, "1", outcome="ROLLBACK"))
    line = schedule.split(maxsplit=5)[5].replace("/opt/halfop", HERE)
    line = line.replace("follow broker --namesrv 127.0.0.1:9876", f"follow files --half {halves} --op {ops}")
    told = subprocess.run(
        ["/bin/sh", "-c", line],
        env=os.environ | {"HALFOP_WAREHOUSE": str(tmp_path / "warehouse")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    first, *log = told.stdout.splitlines()
    assert (first, told.stderr) == ("halfop follow: status 5", "")
    assert '"rejected": {"OP.CONFLICT": 1}' in log[-1]
