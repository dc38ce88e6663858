"""pack: a Python that runs where none is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.places import ROOT

_LOOK = """
import ctypes, hashlib, json, lzma, multiprocessing, sqlite3, ssl, sys, zlib
import numpy, pyarrow.parquet, pydantic, yaml
files = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
print(json.dumps([sys.path, sorted(files), ssl.OPENSSL_VERSION]))
"""
_OF_THE_C_LIBRARY = ("ld-", "libc.", "libm.", "libdl.", "librt.", "libpthread.", "libutil.", "libresolv.", "libcrypt.")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pack")
    archive = folder / "env.tar.gz"
    said = subprocess.run(
        [sys.executable, "-I", str(ROOT / "tools" / "pack_env.py"), str(archive)], check=True, capture_output=True
    ).stdout.decode()
    assert said == f"--archives {archive}#env --conf spark.pyspark.python=./env/bin/python\n"
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "env", filter="tar")
    archive.unlink()
    return folder / "env"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_all_that_it_loads_comes_from_the_archive_but_the_c_library(unpacked: Path) -> None:
    """The archive is in a folder of another name than it was made in, and has no environment."""
    moved = unpacked.rename(unpacked.with_name("moved"))
    try:
        said = subprocess.run(
            [moved / "bin" / "python", "-c", _LOOK], env={}, capture_output=True, text=True, check=True
        )
        path, files, _ = json.loads(said.stdout)
        assert [each for each in path if each and not Path(each).is_relative_to(moved)] == []
        others = [Path(each).name for each in files if not Path(each).is_relative_to(moved)]
        assert [name for name in others if not name.startswith(_OF_THE_C_LIBRARY)] == []
    finally:
        moved.rename(unpacked)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or sys.base_prefix == "/usr", reason="only root can hide a folder, but not /usr")
def test_it_runs_where_neither_the_environment_nor_its_python_is(unpacked: Path) -> None:
    hidden = " && ".join(f"mount -t tmpfs none '{prefix}'" for prefix in (sys.base_prefix, sys.prefix))
    look = f"{hidden} && ! test -e '{sys.executable}' && exec '{unpacked}/bin/python' -c \"$0\""
    system = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    command = ["unshare", "-m", "sh", "-c", look, _LOOK]
    said = subprocess.run(command, env=system, capture_output=True, text=True, check=False)
    if "unshare failed" in said.stderr:
        pytest.skip("this machine lets no process hide folders")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)[2].startswith("OpenSSL")
