"""Things that a suite of its own needs, fetched into .halfop/ on first use and checked by hash."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.places import ROOT

_SECONDS = 1200


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


def environment(suite: str) -> Path:
    """The folder of the programs of an environment of its own, with the packages of requirements/SUITE.lock."""
    lock = ROOT / "requirements" / f"{suite}.lock"
    with fetching(suite) as folder:
        env = folder / "env"
        if not same(lock, env / lock.name):
            venv.create(env, clear=True, symlinks=True)
            _install(lock, ["--python", str(env / "bin/python")], os.environ)
            shutil.copy(lock, env)
    return env / "bin"


def packages(suite: str, name: str, lock: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """A folder of packages for PYTHONPATH, beside those of this environment."""
    with fetching(suite) as folder:
        target = folder / name
        if not same(lock, target / lock.name):
            shutil.rmtree(target, ignore_errors=True)
            # Spark unpacks to 1 GB; /tmp may be small
            _install(lock, [], {**environ, "TMPDIR": str(folder)}, "--target", str(target))
            shutil.copy(lock, target)
    return target


def _install(lock: Path, python: Sequence[str], environ: Mapping[str, str], *where: str) -> None:
    pip = [sys.executable, "-m", "pip", *python, "install", "--quiet", "--require-hashes", "--no-deps", *where]
    quick = {"DIST_EXTRA_CONFIG": str(ROOT / "requirements/build.cfg")}
    subprocess.run([*pip, "-r", str(lock)], env={**environ, **quick}, check=True, timeout=_SECONDS)


def same(source: Path, copy: Path) -> bool:
    """Whether a lock is the one that was fetched last."""
    return copy.is_file() and source.read_bytes() == copy.read_bytes()
