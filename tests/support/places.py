"""Where things of the checkout lie, and how a program of tests/ finds what it imports."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
# The environment of a process that imports as tests do: modules of lib/ and of tests/.
IMPORTS = {"PYTHONPATH": f"{ROOT / 'lib'}:{TESTS}"}
