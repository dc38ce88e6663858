"""The pages as a site: built by a mkdocs that is installed on first use, some 15 MB, and checked by it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support.fetched import environment


def build(home: Path, html: Path) -> subprocess.CompletedProcess[str]:
    """Builds the site of a checkout, and returns what mkdocs said: a warning is a failure."""
    mkdocs = [str(environment("site") / "mkdocs"), "build", "--strict", "--site-dir", str(html)]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ["NO_MKDOCS_2_WARNING"] = "1"
    return subprocess.run(mkdocs, cwd=home, env=environ, capture_output=True, text=True, check=False, timeout=120)
