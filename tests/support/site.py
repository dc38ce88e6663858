"""The pages as a site: built by a mkdocs that is installed on first use, some 15 MB, and checked by it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from support.fetched import fetching, same
from support.places import ROOT

_LOCK = ROOT / "requirements" / "site.lock"


def build(home: Path, html: Path) -> subprocess.CompletedProcess[str]:
    """Builds the site of a checkout, and returns what mkdocs said: a warning is a failure."""
    mkdocs = [str(_environment() / "bin/mkdocs"), "build", "--strict", "--site-dir", str(html)]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ["NO_MKDOCS_2_WARNING"] = "1"
    return subprocess.run(mkdocs, cwd=home, env=environ, capture_output=True, text=True, check=False, timeout=120)


def _environment() -> Path:
    with fetching("site") as folder:
        env = folder / "env"
        if not same(_LOCK, env / _LOCK.name):
            venv.create(env, clear=True, symlinks=True)
            pip = [sys.executable, "-m", "pip", "--python", str(env / "bin/python"), "install", "--quiet"]
            subprocess.run([*pip, "--require-hashes", "--no-deps", "-r", str(_LOCK)], check=True, timeout=600)
            shutil.copy(_LOCK, env)
    return env
