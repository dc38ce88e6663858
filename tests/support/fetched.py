"""Things that a suite of its own needs, fetched into .halfop/ on first use and checked by hash."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.places import ROOT


def state(suite: str) -> Path:
    """The folder of what has been fetched for a suite."""
    return ROOT / ".halfop" / suite


@contextmanager
def fetching(suite: str) -> Iterator[Path]:
    """Lets one process fetch at a time."""
    folder = state(suite)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield folder


def fetched_jars(suite: str) -> Path:
    """The folder with the jars of tests/systems/SUITE/jars.lock."""
    lock = ROOT / "tests/systems" / suite / "jars.lock"
    with fetching(suite) as folder:
        jars = folder / "jars"
        if not same(lock, jars / lock.name):
            fetch = [sys.executable, str(ROOT / "tools/fetch_jars.py")]
            of = [os.environ["HALFOP_JAVA"], os.environ["SPARK_HOME"], str(lock), str(jars)]
            subprocess.run([*fetch, *of], check=True)
    return jars


def same(source: Path, copy: Path) -> bool:
    """Whether a lock is the one that was fetched last."""
    return copy.is_file() and source.read_bytes() == copy.read_bytes()
