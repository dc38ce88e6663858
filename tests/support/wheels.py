"""The wheel, built as a user's pip builds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

from support.places import ROOT

PARTS = ("lib", "schemas", "conf", "demo", "tools", "pyproject.toml", "setup.py", "README.md", "LICENSE")


def built(folder: Path) -> Path:
    """The wheel, in the folder; from a copy, because building leaves files beside the sources."""
    source = folder / "source"
    (source / "requirements").mkdir(parents=True)
    copy(ROOT / "requirements" / "jars.lock", source / "requirements")
    for part in PARTS:
        if (ROOT / part).is_dir():
            copytree(ROOT / part, source / part, ignore=ignore_patterns("__pycache__"))
        else:
            copy(ROOT / part, source)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "-w", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("halfop-*.whl")
    return wheel
