"""The tools that check a release, in an environment of their own that is made on first use; and users' environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.fetched import fetching, same
from support.places import ROOT

_LOCK = ROOT / "requirements" / "release.lock"
# Of this process's environment, a user's has only how to reach an index, and Java.
_KEPT = ("PIP_", "UV_", "HTTP", "http", "NO_PROXY", "no_proxy", "SSL_", "REQUESTS_")
Done = subprocess.CompletedProcess[str]


def tool(name: str) -> Path:
    """A program of the locked tools."""
    with fetching("release") as folder:
        target = folder / "env"
        if not same(_LOCK, target / _LOCK.name):
            shutil.rmtree(target, ignore_errors=True)
            python = environment(target)
            pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--require-hashes"]
            subprocess.run([*pip, "-r", str(_LOCK)], check=True)
            shutil.copy(_LOCK, target)
    return target / "bin" / name


def environment(folder: Path) -> Path:
    """The Python of a new, empty environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def called(*command: str | Path, home: Path, seconds: float = 1200) -> Done:
    """A call of a user whose home is empty at first; pip's downloads alone are kept for the next suite."""
    environ = {name: value for name, value in os.environ.items() if name.startswith(_KEPT)}
    environ |= {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "JAVA_HOME": str(_java())}
    with fetching("release") as folder:
        environ["PIP_CACHE_DIR"] = str(folder / "pip")
    words = [str(each) for each in command]
    return subprocess.run(words, cwd=home, env=environ, capture_output=True, text=True, check=False, timeout=seconds)


def _java() -> Path:
    return Path(os.environ["HALFOP_JAVA"]).resolve().parents[1]
