"""deploy/: systemd takes the units."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
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
