"""The notebooks run from a clean kernel on the demo's warehouse; what is kept of their output is small."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.places import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def called(*arguments: str, **environment: str) -> None:
    command = [str(ROOT / "spark-submit.sh"), *arguments]
    told = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert told.returncode == 0, told.stderr[-3000:]


def cells(notebook: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]


def pictures(notebook: Path) -> int:
    return sum("image/svg+xml" in output.get("data", {}) for cell in cells(notebook) for output in cell["outputs"])


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An empty warehouse with the demo's below it, as ./spark-submit.sh demo leaves them."""
    root = str(tmp_path_factory.mktemp("notebooks") / "warehouse")
    called("setup", "--notebooks")
    called("demo", "--warehouse", root)
    return root


@pytest.mark.notebooks
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_a_clean_kernel(notebook: Path, warehouse: str, tmp_path: Path) -> None:
    execute = ["jupyter", "nbconvert", "--to", "notebook", "--execute", "--output-dir", str(tmp_path), str(notebook)]
    called("exec", *execute, HALFOP_WAREHOUSE=warehouse)
    assert pictures(tmp_path / notebook.name) >= 4
    assert {entry.name for entry in Path(warehouse).iterdir()} == {"demo"}, "nothing is written beside the demo's"
    assert not list((Path(warehouse) / "demo").glob("_simulation*"))


@pytest.mark.notebooks
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_kept_with_its_output(notebook: Path) -> None:
    assert [cell["execution_count"] for cell in cells(notebook)] == list(range(1, len(cells(notebook)) + 1))
    assert pictures(notebook) >= 4
    assert str(ROOT) not in notebook.read_text(), "no paths of the machine that ran it"


def test_all_together_are_small() -> None:
    assert len(NOTEBOOKS) == 2
    assert sum(path.stat().st_size for path in NOTEBOOKS) < 500_000
