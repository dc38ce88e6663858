"""Places of the checkout, and what a process that tests start needs to import as they do."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
DATA, PROGRAMS = TESTS / "data", TESTS / "programs"
IMPORTS = {"PYTHONPATH": f"{ROOT / 'lib'}:{TESTS}"}  # modules of lib/, and of tests/
